"""Login: pages require an API key and return to where the visitor came from."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.browser.visit import Visit, visiting
from tests.conftest import fresh_database
from tests.support.running.service_process import ServiceProcess, write_guest_key

# Well-formed, but not issued.
UNKNOWN = "dbk_staff_x"


@pytest.fixture
def admin_key(tmp_path: Path, service: ServiceProcess) -> str:
    assert service.url
    return (tmp_path / "admin.key").read_text().strip()


@pytest.fixture
def service(server: str, template: str, tmp_path: Path) -> Iterator[ServiceProcess]:
    """The default: every request requires a key."""
    with fresh_database(server, template) as conninfo:
        variables = {
            "DAYBOOK_AUTH": "keys",
            "DAYBOOK_DATA_DIR": str(tmp_path),
            "DAYBOOK_GUEST_KEY_FILE": write_guest_key(tmp_path / "guest.key"),
        }
        with ServiceProcess(conninfo, delay_seconds=2, **variables) as service:
            yield service


@pytest.fixture
def visit(chromium: Browser, service: ServiceProcess) -> Iterator[Visit]:
    with visiting(chromium, service.url) as one:
        # Chromium itself writes down that there was no good key.
        one.expected_status = 401
        yield one


def show_key(page: Page, key: str) -> None:
    """By keyboard alone: the field is where one starts."""
    expect(page.get_by_label("API key")).to_be_focused()
    page.keyboard.type(key)
    page.keyboard.press("Enter")


def test_a_visitor_without_a_key_logs_in_and_returns(visit: Visit, admin_key: str) -> None:
    page = visit.open("/ops#jobs")
    expect(page).to_have_url(f"{visit.url}/login?next=%2Fops%23jobs")

    show_key(page, admin_key)

    expect(page).to_have_url(f"{visit.url}/ops#jobs")
    expect(page.get_by_text("No matching jobs.")).to_be_visible()


def test_a_board_works_once_it_is_logged_in(visit: Visit, admin_key: str) -> None:
    board = visit.open("/")
    expect(board).to_have_url(re.compile(r"/login\?next=%2F$"))
    show_key(board, admin_key)

    board.get_by_role("button", name="New VIP order").click()

    expect(board.locator(".order .number")).to_have_text(["#1"])


def test_an_invalid_key_shows_an_error_and_another_can_be_entered(
    visit: Visit, admin_key: str
) -> None:
    page = visit.open("/login?next=/ops")
    show_key(page, UNKNOWN)

    expect(page.get_by_role("alert")).to_contain_text("Invalid, expired or revoked API key")
    assert visit.context.cookies() == []

    page.get_by_label("API key").fill("")
    show_key(page, admin_key)
    expect(page).to_have_url(f"{visit.url}/ops")


def test_no_script_can_read_the_key_and_nothing_but_its_cookie_keeps_it(
    visit: Visit, admin_key: str
) -> None:  # SEC-19
    page = visit.open("/login?next=/")
    show_key(page, admin_key)
    expect(page).to_have_url(f"{visit.url}/")
    expect(page.locator("daybook-freshness")).to_have_attribute("data-state", "live")

    (cookie,) = visit.context.cookies()

    assert cookie["value"] == admin_key
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert page.evaluate("document.cookie") == ""
    kept = page.evaluate("JSON.stringify([localStorage, sessionStorage])")
    assert admin_key not in kept + page.content()


def test_the_address_that_is_printed_at_the_start_logs_in_and_is_cleaned(
    visit: Visit, admin_key: str
) -> None:
    page = visit.open(f"/login#{admin_key}")

    expect(page.get_by_text("Logged in as")).to_be_visible()
    assert page.url == f"{visit.url}/login"
    page.go_back()
    page.go_forward()
    assert admin_key not in page.url
    assert not any(admin_key in url for url in visit.requests)


def test_a_logged_out_visitor_must_log_in_again(visit: Visit, admin_key: str) -> None:
    page = visit.open(f"/login#{admin_key}")
    page.get_by_role("button", name="Log out").press("Enter")
    expect(page.get_by_label("API key")).to_be_visible()

    assert visit.context.cookies() == []
    page.goto(visit.url + "/ops")
    expect(page).to_have_url(re.compile("/login"))


@pytest.mark.parametrize("elsewhere", ["//example.org/", "https://example.org/", "/\\example.org"])
def test_login_redirects_only_to_this_origin(visit: Visit, admin_key: str, elsewhere: str) -> None:
    page = visit.open(f"/login?next={elsewhere}")
    show_key(page, admin_key)

    expect(page.get_by_text("Logged in as")).to_be_visible()
    assert page.url.startswith(f"{visit.url}/login")


def test_a_page_of_an_earlier_login_is_refused_with_advice(visit: Visit, admin_key: str) -> None:
    # SEC-19
    page = visit.open(f"/login?next=/#{admin_key}")
    expect(page).to_have_url(f"{visit.url}/")
    expect(page.locator("daybook-freshness")).to_have_attribute("data-state", "live")
    visit.expected_status = 403

    page.get_by_role("button", name="New VIP order").click()
    expect(page.locator(".order .number")).to_have_text(["#1"])

    page.route("**/api/orders", lambda route: route.continue_(headers=_without(route)))
    page.get_by_role("button", name="New VIP order").click()
    expect(page.get_by_text("another login: reload it")).to_be_visible()
    expect(page.locator(".order .number")).to_have_text(["#1"])


def _without(route: Route) -> dict[str, str]:
    """As a page would ask that was made for another login."""
    headers = route.request.headers
    return {name: value for name, value in headers.items() if name != "x-csrf-token"}
