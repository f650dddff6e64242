"""Actions of the operations page: bulk, time travel, rebuilds, keyboard."""

import re
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.ops_data import be_read, bury, enqueue, statuses, travel
from tests.browser.visit import Visit
from tests.support.running.processes import eventually
from tests.support.running.service_process import ServiceProcess

LONG_MS = 60_000


def counted(page: Page, sentence: str) -> None:
    expect(page.get_by_role("dialog").get_by_text(sentence)).to_be_visible()


def press(page: Page, name: str | re.Pattern[str]) -> None:
    page.get_by_role("button", name=name).click()


def test_a_bulk_retry_shows_the_count_and_retries_no_more(
    visit: Visit, service: ServiceProcess
) -> None:
    dead, other = bury(service, 7), bury(service, 2, queue="invoices")
    page = visit.open("/ops#jobs/status=DEAD&queue=email")
    expect(page.locator("tbody tr")).to_have_count(7)

    press(page, "Retry all")
    counted(page, "7 jobs match. Nothing has been changed yet.")
    assert statuses(service, dead) == {"DEAD"}

    press(page, "Retry 7 jobs")
    counted(page, "7 jobs retried.")
    assert statuses(service, dead) == {"PENDING"}
    assert statuses(service, other) == {"DEAD"}
    press(page, "Close")
    expect(page.get_by_text("No matching jobs.")).to_be_visible()


def test_a_bulk_cancel_goes_through_all_pages_and_takes_no_other(
    visit: Visit, service: ServiceProcess
) -> None:
    many = enqueue(service, 230, type="newsletter")
    kept = enqueue(service, 3)
    page = visit.open("/ops#jobs/status=PENDING&type=newsletter")

    press(page, "Cancel all")
    counted(page, "230 jobs match.")
    press(page, "Cancel 230 jobs")

    counted(page, "230 jobs cancelled.")
    assert len(service.events("job.cancelled")) == 230
    assert statuses(service, many[::50]) == {"CANCELLED"}
    assert statuses(service, kept) == {"PENDING"}


def click(page: Page, name: str) -> None:
    page.get_by_role("button", name=name).click()


def click_without_leaving_the_field(page: Page, name: str) -> None:
    """As a screen reader does: the field keeps the focus, so it tells nothing of its change."""
    page.get_by_role("button", name=name).dispatch_event("click")


CLICKS = pytest.mark.parametrize("pressed", [click, click_without_leaving_the_field])


@CLICKS
def test_cancel_all_takes_the_filter_that_is_typed_without_enter(
    visit: Visit, service: ServiceProcess, pressed: Callable[[Page, str], None]
) -> None:
    mails, invoices = enqueue(service, 3), enqueue(service, 4, queue="invoices")
    page = visit.open("/ops#jobs/status=PENDING")
    expect(page.locator("tbody tr")).to_have_count(7)

    page.get_by_label("Queue").fill("email")
    pressed(page, "Cancel all")

    counted(page, "3 jobs match.")
    counted(page, "Only status PENDING, queue email.")
    press(page, "Cancel 3 jobs")
    counted(page, "3 jobs cancelled.")
    press(page, "Close")
    expect(page.get_by_text("No matching jobs.")).to_be_visible()
    assert page.url.endswith("#jobs/status=PENDING&queue=email")
    assert statuses(service, mails) == {"CANCELLED"}
    assert statuses(service, invoices) == {"PENDING"}


@CLICKS
def test_redrive_all_takes_the_filter_that_is_typed_without_enter(
    visit: Visit, service: ServiceProcess, pressed: Callable[[Page, str], None]
) -> None:
    late, wrong = bury(service, 2, "timeout after 30 s"), bury(service, 3, "no such address")
    page = visit.open("/ops#dead")
    expect(page.locator(".letter")).to_have_count(5)

    page.get_by_label("Error contains").fill("timeout")
    pressed(page, "Redrive all")

    counted(page, "2 jobs match.")
    press(page, "Redrive 2 jobs")
    counted(page, "2 jobs redriven.")
    assert statuses(service, late) == {"PENDING"}
    assert statuses(service, wrong) == {"DEAD"}


def test_a_status_that_allows_no_bulk_action_opens_no_dialog(
    visit: Visit, service: ServiceProcess
) -> None:
    bury(service, 2)
    page = visit.open("/ops#jobs/status=DEAD")
    expect(page.locator("tbody tr")).to_have_count(2)

    page.evaluate(
        """() => {
          document.querySelector("select").value = "";
          document.querySelector(".actions button").click();
        }"""
    )

    expect(page.get_by_role("button", name="Retry all")).to_be_disabled()
    expect(page.get_by_role("dialog")).to_be_hidden()


@pytest.mark.parametrize(
    ("view", "verb", "done"),
    [("#jobs/status=DEAD", "Retry", "retried"), ("#dead", "Redrive", "redriven")],
)
def test_a_bulk_action_is_refused_and_recounted_if_more_jobs_match(
    visit: Visit, service: ServiceProcess, view: str, verb: str, done: str
) -> None:
    visit.expected_status = 409
    seen = bury(service, 3)
    page = visit.open(f"/ops{view}")
    press(page, f"{verb} all")
    counted(page, "3 jobs match.")

    unseen = bury(service, 2)
    press(page, f"{verb} 3 jobs")

    counted(page, "5 jobs match now, not 3. Nothing has been changed yet.")
    assert statuses(service, seen + unseen) == {"DEAD"}
    press(page, f"{verb} 5 jobs")
    counted(page, f"5 jobs {done}.")
    assert statuses(service, seen + unseen) == {"PENDING"}


def test_a_job_that_is_no_longer_dead_is_skipped(visit: Visit, service: ServiceProcess) -> None:
    first, second = bury(service, 2)
    page = visit.open("/ops#jobs/status=DEAD")
    press(page, "Retry all")
    counted(page, "2 jobs match.")

    service.ask("POST", f"/api/jobs/{first['id']}/cancel")
    press(page, "Retry 2 jobs")

    counted(page, "1 job retried.")
    assert statuses(service, [first]) == {"CANCELLED"}
    assert statuses(service, [second]) == {"PENDING"}


def test_a_redrive_takes_only_jobs_with_the_error(visit: Visit, service: ServiceProcess) -> None:
    late, wrong = bury(service, 4, "timeout after 30 s"), bury(service, 3, "no such address")
    page = visit.open("/ops#dead")
    page.get_by_label("Error contains").fill("timeout")
    page.get_by_label("Error contains").press("Enter")
    expect(page.locator(".letter")).to_have_count(4)

    press(page, "Redrive all")
    counted(page, "4 jobs match.")
    press(page, "Redrive 4 jobs")

    counted(page, "4 jobs redriven.")
    assert statuses(service, late) == {"PENDING"}
    assert statuses(service, wrong) == {"DEAD"}


def test_a_reason_is_requested_where_the_api_takes_one(
    visit: Visit, service: ServiceProcess
) -> None:
    bury(service, 1)
    page = visit.open("/ops#dead")
    press(page, "Redrive all")
    counted(page, "1 job matches.")
    takes_already = "reason" in schema_of(service.get("/openapi.json"))["properties"]
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Reason")).to_be_visible(visible=takes_already)

    sent: list[Any] = []
    page.route("**/openapi.json", with_reason)
    page.route("**/api/dlq/redrive", lambda route: without_reason(route, sent))
    page.reload()
    press(page, "Redrive all")
    dialog.get_by_label("Reason").fill("the mail server is back")
    press(page, "Redrive 1 job")
    counted(page, "1 job redriven.")
    assert [one.get("reason") for one in sent] == [None, "the mail server is back"]


def schema_of(described: Any) -> Any:
    body = described["paths"]["/api/dlq/redrive"]["post"]["requestBody"]
    name = body["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
    return described["components"]["schemas"][name]


def with_reason(route: Route) -> None:
    """As of a service whose redrives take one, whether this one does or not."""
    described = route.fetch().json()
    schema_of(described)["properties"]["reason"] = {"type": "string"}
    route.fulfill(json=described)


def without_reason(route: Route, sent: list[Any]) -> None:
    body: Any = route.request.post_data_json
    sent.append(dict(body))
    body.pop("reason", None)
    route.continue_(post_data=body)


def test_a_filter_may_contain_any_character(visit: Visit, service: ServiceProcess) -> None:
    bury(service, 2, "50% of a&b = c+d / #7")
    bury(service, 1, "other")
    page = visit.open("/ops#dead")
    expect(page.locator(".letter")).to_have_count(3)
    page.get_by_label("Error contains").fill("50% of a&b = c+d / #7")
    page.get_by_label("Error contains").press("Enter")
    expect(page.locator(".letter")).to_have_count(2)
    page.reload()
    expect(page.locator(".letter")).to_have_count(2)
    expect(page.get_by_label("Error contains")).to_have_value("50% of a&b = c+d / #7")


def test_an_interrupted_bulk_action_reports_its_progress(
    visit: Visit, service: ServiceProcess
) -> None:
    visit.is_server_away_expected = True
    bury(service, 3)
    page = visit.open("/ops#jobs/status=DEAD")
    press(page, "Retry all")
    counted(page, "3 jobs match.")

    service.signal_and_wait(signal.SIGTERM)
    press(page, "Retry 3 jobs")

    expect(page.get_by_role("dialog")).to_contain_text(
        "0 jobs retried. Daybook is unreachable", timeout=LONG_MS
    )
    press(page, "Close")
    service.restart()
    press(page, "Retry all")
    counted(page, "3 jobs match.")


def then(page: Page) -> dict[str, list[str]]:
    return {
        status: page.locator(f'.then ol[data-status="{status}"] .number').all_inner_texts()
        for status in ("PENDING", "PROCESSING", "COMPLETE", "DEAD")
    }


def state_at(service: ServiceProcess, position: int) -> dict[str, list[str]]:
    orders = service.get(f"/api/orders?asOf={position}&limit=500")["orders"]
    return {
        status: [f"#{one['orderNumber']}" for one in orders if one["status"] == status]
        for status in ("PENDING", "PROCESSING", "COMPLETE", "DEAD")
    }


def shows(page: Page, orders: dict[str, list[str]]) -> bool:
    return then(page) == orders


def be_at(page: Page, position: int) -> None:
    expect(page.locator("ops-past")).to_have_attribute("data-position", str(position))


@pytest.mark.parametrize("service", [1], indirect=True)
def test_time_travel_matches_the_api_at_every_position(
    visit: Visit, service: ServiceProcess
) -> None:
    service.orders(3)
    service.order("VIP")
    service.bot(autoClaim=True)
    assert service.has_completed(4)
    head = service.position
    page = visit.open("/ops#past")
    be_at(page, head)
    assert then(page) == state_at(service, head)

    for position in [0, *range(1, head, max(1, head // 8)), head]:
        travel(page, position)
        # A column may be drawn a moment after the position.
        assert eventually(partial(shows, page, state_at(service, position))), position
        bots = service.get(f"/api/bots?asOf={position}")["bots"]
        expect(page.locator(".bot")).to_have_count(len(bots))


@pytest.mark.parametrize("service", [1], indirect=True)
def test_play_goes_from_the_first_event_to_the_last_and_stops_there(
    visit: Visit, service: ServiceProcess
) -> None:
    service.orders(2)
    service.bot(autoClaim=True)
    assert service.has_completed(2)
    head = service.position
    page = visit.open("/ops#past")
    be_at(page, head)
    page.get_by_label("Speed").select_option("20")

    press(page, "Play")

    be_at(page, 0)
    expect(page.get_by_role("button", name="Play")).to_be_visible(timeout=LONG_MS)
    be_at(page, head)
    assert then(page) == state_at(service, head)
    press(page, "Back")
    be_at(page, head - 1)
    assert then(page) == state_at(service, head - 1)


def test_a_rebuild_shows_progress_and_result(visit: Visit, service: ServiceProcess) -> None:
    service.orders(5)
    page = visit.open("/ops#house")
    page.get_by_label("orders", exact=True).check()
    page.get_by_label("bots", exact=True).check()

    press(page, "Rebuild")
    expect(page.get_by_role("progressbar", name="Progress of the rebuild")).to_be_visible()
    expect(page.get_by_role("button", name="Verify")).to_be_disabled()

    expect(page.locator("p.message")).to_contain_text("Rebuilt at", timeout=LONG_MS)
    expect(page.locator("p.message")).to_contain_text("All tables match the log.")
    expect(page.get_by_role("row", name=re.compile("orders 5 none"))).to_be_visible()
    expect(page.locator("tbody tr")).to_have_count(2)


def test_a_rebuild_can_be_stopped(visit: Visit, service: ServiceProcess) -> None:
    page = visit.open("/ops#house")
    press(page, "Verify")
    press(page, "Stop")
    expect(page.locator("p.message")).to_contain_text("tables unchanged")
    expect(page.get_by_role("button", name="Verify")).to_be_enabled()
    assert service.get("/api/rebuilds")["rebuild"]["state"] == "stopped"


def test_the_doctor_shows_findings_and_next_steps(visit: Visit, service: ServiceProcess) -> None:
    bury(service, 2)
    page = visit.open("/ops#house")
    press(page, "Run checks")

    expect(page.get_by_text("Checked at")).to_be_visible(timeout=LONG_MS)
    dead = page.locator(".finding", has_text="dead letters")
    expect(dead).to_contain_text("2 jobs are dead letters.")
    expect(dead).to_contain_text("→ Look at GET /api/dlq")
    assert page.locator(".finding.bad").count() == 0


def test_everything_is_reached_with_the_keyboard_alone(
    visit: Visit, service: ServiceProcess
) -> None:
    dead = bury(service, 2)
    page = visit.open("/ops")
    be_read(page)

    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    tab_to(page, "Jobs")
    page.keyboard.press("Enter")
    # The loading view, too; invisible elements take no focus.
    expect(page.get_by_label("Status")).to_be_visible()
    be_read(page)
    page.get_by_label("Status").focus()
    expect(page.get_by_label("Status")).to_be_focused()
    page.keyboard.type("dead")
    expect(page.locator("tbody tr")).to_have_count(2)
    # A button that cannot be pressed yet is passed over.
    expect(page.get_by_role("button", name="Retry all")).to_be_enabled()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Shift+Tab")
    expect(page.get_by_role("button", name="Retry all")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Retry 2 jobs")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(page.get_by_role("button", name="Retry all")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Retry 2 jobs")).to_be_focused()
    page.keyboard.press("Enter")
    counted(page, "2 jobs retried.")
    assert statuses(service, dead) == {"PENDING"}


def test_input_is_kept_while_the_list_refreshes(visit: Visit, service: ServiceProcess) -> None:
    bury(service, 1, subject="booking-7")
    page = visit.open("/ops#jobs")
    be_read(page)
    page.get_by_label("Subject").focus()
    page.keyboard.type("booking-8")
    for _ in range(2):
        with page.expect_response(lambda answer: "/api/jobs?" in answer.url) as read:
            pass
        # Not requested yet.
        assert "booking" not in read.value.url
    expect(page.get_by_label("Subject")).to_have_value("booking-8")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page.locator("tbody tr")).to_have_count(0)


def test_the_slider_of_time_moves_with_arrow_keys(visit: Visit, service: ServiceProcess) -> None:
    service.orders(3)
    head = service.position
    page = visit.open("/ops#past")
    be_at(page, head)
    page.get_by_role("slider").focus()
    page.keyboard.press("ArrowLeft")
    be_at(page, head - 1)
    assert then(page) == state_at(service, head - 1)
    page.keyboard.press("Home")
    be_at(page, 0)


def tab_to(page: Page, name: str) -> None:
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == name:
            return
    raise AssertionError(f"{name} cannot be reached with Tab")


def fail(service: ServiceProcess, bot: Any, error: str) -> None:
    service.order()
    order = service.ask("POST", f"/api/bots/{bot['id']}/claim")["order"]
    failure = {"claimId": order["claimId"], "error": error, "retryable": False}
    service.ask("POST", f"/api/orders/{order['id']}/fail", failure)


# SX-01
def test_a_disabled_bot_is_listed_and_restored_with_a_reason(
    visit: Visit, service: ServiceProcess
) -> None:
    bot = service.bot(failuresMax=2, completion="ack")
    for error in ("burnt", "the fryer is off"):
        fail(service, bot, error)
    page = visit.open("/ops#dead")
    card = page.locator(".letter", has_text="the fryer is off")
    expect(card).to_contain_text("after 2 failures in a row")

    page.get_by_role("button", name=f"Restore bot {bot['id']}").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Restore").click()
    # It is not done without a reason.
    expect(dialog).to_be_visible()
    dialog.get_by_label("Reason").fill("The fryer is repaired.")
    dialog.get_by_role("button", name="Restore").click()

    expect(page.get_by_text("No bots out of service.")).to_be_visible()
    (restored,) = service.events("bot.restored")
    assert restored["data"]["because"] == "The fryer is repaired."
    assert service.get(f"/api/bots/{bot['id']}")["bot"]["status"] == "IDLE"


def test_a_bot_out_of_service_is_explained_and_restored_where_it_is_looked_at(
    visit: Visit, service: ServiceProcess
) -> None:
    bot = service.bot(failuresMax=1, completion="ack")
    fail(service, bot, "the fryer is off")
    page = visit.open(f"/ops#item/{bot['id']}")
    expect(page.get_by_text("It is out of service: 1 claim has failed")).to_be_visible()

    press(page, "Restore")
    page.get_by_label("Reason").fill("Switched on.")
    page.get_by_role("dialog").get_by_role("button", name="Restore").click()

    expect(page.get_by_text("The bot does not claim by itself")).to_be_visible()
