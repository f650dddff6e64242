"""The pictures of the documentation: `PICTURES=1 ./test --browser -k picture`.

Without PICTURES they are drawn in light and dark schemes and on a phone, but not saved: each
shows the time of day and would differ.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.ops_data import be_read, break_bot, busy_day, enqueue, travel
from tests.browser.pages import be_live, column
from tests.browser.test_guests import add_guest
from tests.browser.visit import IMAGES, Visit
from tests.support.running.service_process import ServiceProcess

DESKTOP = {"viewport": {"width": 1280, "height": 800}}
PHONE = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2, "is_mobile": True}
DARK = {"color_scheme": "dark"}
GUESTS = ["Ada Lovelace", "Grace Hopper", "Barbara Liskov", "Leslie Lamport", "Jim Gray", "Pat"]


@pytest.fixture
def picture(tmp_path: Path) -> Callable[[Page, str], None]:
    directory = IMAGES if os.environ.get("PICTURES") else tmp_path

    def take(page: Page, name: str) -> None:
        directory.mkdir(exist_ok=True)
        # Cards that fly would be caught in mid-air.
        page.wait_for_timeout(700)
        page.screenshot(path=directory / f"{name}.png")
        too_wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
        assert not page.evaluate(too_wide), f"{name} is wider than its screen"

    return take


@pytest.mark.parametrize("service", [30], indirect=True)
def test_a_picture_of_the_board(
    visits: Callable[..., Visit], service: ServiceProcess, picture: Callable[[Page, str], None]
) -> None:
    service.orders(9)
    bots = [service.bot(completion="ack")["id"] for _ in range(3)]
    for order in service.ask("POST", "/api/bots/claim", {"botIds": bots})["claims"]:
        done = {"status": "COMPLETE", "claimId": order["order"]["claimId"]}
        service.ask("PATCH", f"/api/orders/{order['order']['id']}", done)
    for bot in bots:
        service.ask("DELETE", f"/api/bots/{bot}")
    service.orders(3, "VIP")
    for _ in range(3):
        service.bot(autoClaim=True)
    service.orders(2, "VIP")
    looks: dict[str, dict[str, Any]] = {
        "board-light": DESKTOP,
        "board-dark": DESKTOP | DARK,
        "board-phone": PHONE,
    }
    for name, look in looks.items():
        board = visits(**look).open()
        expect(column(board, "PROCESSING")).to_have_count(3)
        be_live(board)
        board.wait_for_timeout(1500)
        picture(board, name)


def test_a_picture_of_an_empty_board(
    visits: Callable[..., Visit], picture: Callable[[Page, str], None]
) -> None:
    board = visits(**DESKTOP).open()
    expect(board.get_by_text("No pending orders.")).to_be_visible()
    picture(board, "board-empty")


@pytest.mark.parametrize("service", [30], indirect=True)
def test_a_picture_of_a_board_in_trouble(
    visits: Callable[..., Visit], service: ServiceProcess, picture: Callable[[Page, str], None]
) -> None:
    break_bot(service)
    service.bot(autoClaim=True)
    service.orders(4)
    looks: dict[str, dict[str, Any]] = {
        "board-offline": DESKTOP,
        "board-offline-phone": PHONE | DARK,
    }
    for name, look in looks.items():
        visit = visits(**look)
        visit.is_server_away_expected = True
        board = visit.open()
        expect(column(board, "PROCESSING")).to_have_count(1)
        be_live(board)
        visit.context.set_offline(True)
        for pressed in ("New normal order", "New VIP order"):
            board.get_by_role("button", name=pressed).click()
        expect(board.locator("daybook-outbox li")).to_have_count(2)
        picture(board, name)


def test_a_picture_of_every_page_for_guests(
    visits: Callable[..., Visit], service: ServiceProcess, picture: Callable[[Page, str], None]
) -> None:
    service.ask("POST", "/api/restaurants", {"slug": "corner", "name": "The Corner"})
    for number, name in enumerate(GUESTS):
        add_guest(service, name, number)
    for desk in ("Desk 1", "Desk 2"):
        service.ask("POST", "/api/restaurants/corner/call-next", {"desk": desk})
    form = visits(**PHONE).open("/r/corner")
    expect(form.get_by_text("4 parties waiting")).to_be_visible()
    picture(form, "counter-form")
    form.get_by_label("Your name").fill("Edsger")
    form.get_by_label("Mobile number").fill("+4915199999999")
    form.get_by_role("button", name="Get a ticket").click()
    expect(form.locator("#headline")).to_have_text("4 ahead of you")
    picture(form, "counter-ticket")
    for name, path, look in (
        ("display", "/r/corner/display", DESKTOP),
        ("desk", "/desk/corner", DESKTOP),
        ("desk-dark", "/desk/corner", DESKTOP | DARK),
        ("desk-phone", "/desk/corner", PHONE),
    ):
        page = visits(**look).open(path)
        expect(page.locator("#restaurant")).to_have_text("The Corner")
        picture(page, name)


@pytest.mark.parametrize("service", [4], indirect=True)
def test_a_picture_of_every_view_of_the_back_office(
    visits: Callable[..., Visit], service: ServiceProcess, picture: Callable[[Page, str], None]
) -> None:
    busy_day(service)
    break_bot(service)
    (dead, *_) = service.get("/api/dlq")["jobs"]
    views = {
        "queues": "#queues",
        "jobs": "#jobs/status=PENDING",
        "dead": "#dead",
        "workers": "#workers",
        "past": "#past",
        "house": "#house",
        "item": f"#item/{dead['id']}",
    }
    looks: dict[str, dict[str, Any]] = {
        "light": DESKTOP,
        "dark": DESKTOP | DARK,
        "phone": PHONE,
    }
    for look, options in looks.items():
        visit = visits(**options)
        for name, address in views.items():
            page = visit.open(f"/ops{address}")
            be_read(page)
            if name == "house":
                page.get_by_role("button", name="Verify").click()
                page.get_by_role("button", name="Run checks").click()
                expect(page.get_by_text("Checked at")).to_be_visible(timeout=60_000)
                expect(page.locator(".message")).to_contain_text("Verified", timeout=60_000)
            if name == "past":
                third = service.events("order.claimed")[2]["position"]
                travel(page, third)
                expect(page.locator(".bot .what").first).to_contain_text("cooking")
            if name == "queues":
                enqueue(service, 5)
                page.wait_for_timeout(4500)
            picture(page, f"ops-{name}-{look}")
            if name == "jobs":
                page.get_by_role("button", name="Cancel all").click()
                expect(page.get_by_text("Nothing has been changed yet.")).to_be_visible()
                picture(page, f"ops-bulk-{look}")
            page.close()
