"""The board as people use it: pressed, watched, and read."""

from playwright.sync_api import Locator, Page, expect

from tests.browser.house import House
from tests.browser.visit import Visit


def column(page: Page, status: str) -> Locator:
    return page.locator(f'order-column[status="{status}"] .order .number')


def test_an_order_goes_from_pending_through_processing_to_complete(
    visit: Visit, house: House
) -> None:  # S0-34
    board = visit.open()
    expect(board.get_by_text("No order waits.")).to_be_visible()

    board.get_by_role("button", name="New normal order").click()
    expect(column(board, "PENDING")).to_have_text(["#1"])

    board.get_by_role("button", name="+ Bot").click()
    expect(column(board, "PROCESSING")).to_have_text(["#1"])
    expect(board.locator(".bot .what")).to_have_text("cooking #1")

    expect(column(board, "COMPLETE")).to_have_text(["#1"])
    expect(board.locator(".bot .what")).to_have_text("idle")
    assert house.has_completed(1)
