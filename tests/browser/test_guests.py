"""Waitlist pages: guest, display and desk."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.visit import Visit
from tests.support.running.service_process import ServiceProcess

WAITLIST = "/api/restaurants/corner"
HOSTILE = '<img src=x onerror="document.title=1"> & Ada 🍜'


@pytest.fixture
def corner(service: ServiceProcess) -> ServiceProcess:
    service.ask("POST", "/api/restaurants", {"slug": "corner", "name": "The Corner"})
    return service


def join(page: Page, name: str, party: int = 2, mobile: str = "+4915112345678") -> None:
    page.get_by_label("Your name").fill(name)
    page.get_by_label("Mobile number").fill(mobile)
    page.get_by_label("Party size").fill(str(party))
    page.get_by_role("button", name="Get a ticket").click()


def add_guest(service: ServiceProcess, name: str, number: int) -> Any:
    body = {"name": name, "mobileNumber": f"+49151123400{number:02}", "partySize": 2}
    return service.ask("POST", f"{WAITLIST}/tickets", body)["ticket"]


def rows(page: Page, status: str) -> Locator:
    return page.locator(f'ol[data-status="{status}"] .ticket')


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


@pytest.mark.usefixtures("corner")
def test_guest_and_staff_see_the_same_ticket(visits: Callable[..., Visit]) -> None:
    guest, staff = visits().open("/r/corner"), visits().open("/desk/corner")
    expect(guest.get_by_text("No guests waiting")).to_be_visible()

    join(guest, "Ada Lovelace", party=4)
    expect(guest.locator("#token")).to_have_text("RCORNER-000001")
    expect(guest.locator("#headline")).to_have_text("You are next")
    expect(rows(staff, "WAITING")).to_contain_text("Ada Lovelace · 4 people")

    staff.get_by_label("This desk").fill("Desk 2")
    press(staff, "Call next")
    expect(rows(staff, "CALLED")).to_contain_text("called to Desk 2 at")
    expect(guest.locator("#headline")).to_have_text("It is your turn")
    expect(guest.get_by_text("Please come to Desk 2 now.")).to_be_visible()

    press(staff, "Recall RCORNER-000001")
    expect(rows(staff, "CALLED")).to_contain_text(", again at")
    press(staff, "Seat RCORNER-000001")
    expect(guest.locator("#headline")).to_have_text("Enjoy your meal")
    expect(staff.get_by_text("No guests called.")).to_be_visible()


# S2-O1
def test_the_desk_shows_daily_figures(visit: Visit, corner: ServiceProcess) -> None:
    ticket = add_guest(corner, "Ada", 1)
    add_guest(corner, "Charles", 2)
    corner.ask("POST", f"{WAITLIST}/tickets/{ticket['id']}/cancel")
    desk = visit.open("/desk/corner")

    expect(desk.locator("#day")).to_have_text("Today 2 joined · 0 seated · 1 left the waitlist.")


def test_a_guest_sees_the_position_advance(visit: Visit, corner: ServiceProcess) -> None:
    for number in range(2):
        add_guest(corner, f"Guest {number}", number)
    guest = visit.open("/r/corner")
    expect(guest.get_by_text("2 parties waiting")).to_be_visible()

    join(guest, "Grace")
    expect(guest.locator("#headline")).to_have_text("2 ahead of you")
    before = guest.locator("#estimate").inner_text()
    corner.ask("POST", f"{WAITLIST}/call-next")

    expect(guest.locator("#headline")).to_have_text("1 ahead of you")
    expect(guest.locator("#estimate")).not_to_have_text(before)


def test_a_no_show_is_returned_to_the_former_position(
    visits: Callable[..., Visit], corner: ServiceProcess
) -> None:
    guest, staff = visits().open("/r/corner"), visits().open("/desk/corner")
    join(guest, "Ada")
    expect(guest.locator("#headline")).to_have_text("You are next")
    add_guest(corner, "Grace", 1)

    press(staff, "Call next")
    press(staff, "No-show RCORNER-000001")
    expect(guest.locator("#headline")).to_have_text("You missed your call")
    press(staff, "Return to waitlist RCORNER-000001")

    expect(rows(staff, "WAITING").locator(".token")).to_have_text(
        ["RCORNER-000001", "RCORNER-000002"]
    )
    expect(guest.locator("#headline")).to_have_text("You are next")


def test_a_reload_keeps_the_ticket_and_the_guest_can_leave(
    visit: Visit, corner: ServiceProcess
) -> None:
    guest = visit.open("/r/corner")
    join(guest, "Ada")
    expect(guest.locator("#token")).to_have_text("RCORNER-000001")

    guest.reload()
    expect(guest.locator("#token")).to_have_text("RCORNER-000001")
    press(guest, "Leave the waitlist")
    expect(guest.locator("#headline")).to_have_text("You left the waitlist")
    press(guest, "Join again")
    expect(guest.get_by_role("button", name="Get a ticket")).to_be_visible()
    assert corner.get(f"{WAITLIST}/board")["board"]["waiting"] == 0


# S2-34
def test_a_join_with_a_lost_response_creates_one_ticket(
    visit: Visit, corner: ServiceProcess
) -> None:
    visit.is_server_away_expected = True
    guest = visit.open("/r/corner")
    lost: list[bool] = []

    def lose_the_answer(route: Any) -> None:
        if lost or route.request.method != "POST":
            route.continue_()
            return
        route.fetch()
        lost.append(True)
        route.abort()

    visit.context.route("**/tickets", lose_the_answer)
    join(guest, "Ada")

    expect(guest.locator("#token")).to_have_text("RCORNER-000001")
    assert corner.get(f"{WAITLIST}/board")["board"]["waiting"] == 1


def test_the_display_shows_called_and_next_tokens(visit: Visit, corner: ServiceProcess) -> None:
    display = visit.open("/r/corner/display")
    expect(display.get_by_text("No calls yet")).to_be_visible()
    for number in range(4):
        add_guest(corner, f"Guest {number}", number)
    corner.ask("POST", f"{WAITLIST}/call-next")
    corner.ask("POST", f"{WAITLIST}/call-next", {"desk": "Desk 1"})

    expect(display.locator("#last")).to_have_text("RCORNER-000002")
    expect(display.locator("#last-desk")).to_have_text("Desk 1")
    expect(display.locator("#earlier li")).to_have_text(["RCORNER-000001"])
    expect(display.locator("#next li")).to_have_text(["RCORNER-000003", "RCORNER-000004"])
    assert "Guest" not in display.locator("body").inner_text()


def test_markup_in_a_name_is_shown_as_text(visit: Visit, corner: ServiceProcess) -> None:
    # SEC-20
    add_guest(corner, HOSTILE, 1)

    staff = visit.open("/desk/corner")

    expect(rows(staff, "WAITING").locator(".guest")).to_have_text(f"{HOSTILE} · 2 people")
    assert staff.title() == "The Corner · Desk"


@pytest.mark.parametrize("path", ["/r/nowhere", "/r/nowhere/display", "/desk/nowhere"])
def test_an_unknown_restaurant_shows_not_found(visit: Visit, path: str) -> None:
    visit.expected_status = 404
    page = visit.open(path)

    expect(page.get_by_text("Restaurant not found")).to_be_visible()


def test_the_desk_can_be_worked_with_the_keyboard_alone(
    visit: Visit, corner: ServiceProcess
) -> None:
    add_guest(corner, "Ada", 1)
    staff = visit.open("/desk/corner")
    expect(rows(staff, "WAITING")).to_have_count(1)

    staff.get_by_label("This desk").focus()
    staff.keyboard.type("Desk 1")
    staff.keyboard.press("Tab")
    staff.keyboard.press("Enter")
    expect(rows(staff, "CALLED")).to_have_count(1)
    staff.keyboard.press("Tab")
    assert staff.evaluate("document.activeElement.textContent") == "Seat"
    staff.keyboard.press("Enter")

    expect(rows(staff, "CALLED")).to_have_count(0)


@pytest.mark.parametrize("path", ["/r/corner", "/r/corner/display", "/desk/corner"])
def test_every_page_shows_its_position_and_lag(
    visit: Visit, corner: ServiceProcess, path: str
) -> None:
    page = visit.open(path)

    expect(page.locator("daybook-freshness")).to_contain_text(f"Position {corner.position}")
    expect(page.locator("daybook-freshness")).to_contain_text("lag")
