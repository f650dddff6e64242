"""Locators of the board."""

from typing import Any

from playwright.sync_api import Locator, Page, expect

LIVE = "live"
MINUS_BOT = "\N{MINUS SIGN} Bot"


def column(page: Page, status: str) -> Locator:
    return page.locator(f'order-column[status="{status}"] .order .number')


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def be_live(page: Page) -> None:
    expect(page.locator("daybook-freshness")).to_have_attribute("data-state", LIVE)


def shown(page: Page) -> dict[str, Any]:
    """The content of the page's stores."""
    orders, bots = page.evaluate("[daybook.orders.orders, daybook.bots.list]")
    return {"orders": orders, "bots": bots}


def is_leader(page: Page) -> bool:
    leads: bool = page.evaluate("daybook.bots.isLeader")
    return leads
