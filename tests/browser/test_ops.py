"""The operations page: views, search and explanations."""

import re
import signal
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.ops_data import be_read, bury, busy_day, claim, complete, enqueue
from tests.browser.test_guests import add_guest
from tests.browser.visit import Visit
from tests.support.running.service_process import ServiceProcess


def card(page: Page, queue: str) -> Any:
    return page.locator(".queue", has=page.get_by_role("heading", name=queue, exact=True))


def look_up(page: Page, wanted: str) -> None:
    page.get_by_role("searchbox", name="Id of an order").fill(wanted)
    page.get_by_role("button", name="Explain").click()


def test_queues_show_depth_rates_and_the_age_of_the_oldest(
    visit: Visit, service: ServiceProcess
) -> None:
    # S1-30
    enqueue(service, 20)
    complete(service, claim(service, 5))
    bury(service, 2, queue="invoices")

    page = visit.open("/ops")
    be_read(page)

    mails = card(page, "email")
    expect(mails.locator('[data-figure="pending"]')).to_have_text("15")
    expect(card(page, "invoices").locator('[data-figure="dead"]')).to_have_text("2")
    expect(mails.locator(".age")).to_have_text(re.compile(r"^\d+ s$"))
    # Charts include the time before the page was opened: rates come from the log.
    expect(mails.locator("polyline.created")).to_have_count(1)
    heights = mails.locator("polyline.completed").get_attribute("points").split()
    assert len({point.split(",")[1] for point in heights}) > 1

    enqueue(service, 5)
    expect(mails.locator('[data-figure="pending"]')).to_have_text("20")


def test_jobs_blocked_in_their_lane_are_counted(visit: Visit, service: ServiceProcess) -> None:
    enqueue(service, 4, partition="guest-17")
    enqueue(service, 1, queue="invoices")
    page = visit.open("/ops")
    mails = card(page, "email")
    expect(mails.locator('[data-figure="pending"]')).to_have_text("1")
    expect(mails.locator('[data-figure="behind"]')).to_have_text("3")
    expect(mails.get_by_text("blocked in lane")).to_be_visible()
    expect(card(page, "invoices").get_by_text("blocked in lane")).to_be_hidden()


def test_a_queue_is_paused_and_resumed(visit: Visit, service: ServiceProcess) -> None:
    enqueue(service)
    page = visit.open("/ops")

    page.get_by_role("button", name="Pause email").click()
    expect(page.get_by_role("button", name="Resume email")).to_be_visible()
    assert service.get("/api/queues/email")["queue"]["paused"] is True

    page.get_by_role("button", name="Resume email").click()
    expect(page.get_by_role("button", name="Pause email")).to_be_visible()
    assert service.get("/api/queues/email")["queue"]["paused"] is False


def test_jobs_are_filtered_and_the_address_keeps_the_filter(
    visit: Visit, service: ServiceProcess
) -> None:
    enqueue(service, 3)
    enqueue(service, 2, queue="invoices", type="issue", subject="guest-17")
    page = visit.open("/ops#jobs")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(5)

    page.get_by_label("Subject").fill("guest-17")
    page.get_by_label("Subject").press("Enter")

    expect(rows).to_have_count(2)
    assert "subject=guest-17" in page.url
    page.reload()
    expect(rows).to_have_count(2)
    page.get_by_label("Status").select_option("DEAD")
    expect(page.get_by_text("No matching jobs.")).to_be_visible()
    page.go_back()
    expect(rows).to_have_count(2)


def test_jobs_are_filtered_by_tag_and_retried_by_it(visit: Visit, service: ServiceProcess) -> None:
    bury(service, 2, tags=["vip", "eu"])
    bury(service, 1)
    page = visit.open("/ops#jobs/status=DEAD")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(3)

    page.get_by_label("Tag", exact=True).fill("vip")
    page.get_by_label("Tag", exact=True).press("Enter")

    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("vip, eu")
    page.get_by_role("button", name="Retry all …").click()
    page.get_by_role("button", name="Retry 2 jobs").click()
    expect(rows).to_have_count(0)


def test_a_dead_letter_shows_its_error_payload_and_history_as_text(
    visit: Visit, service: ServiceProcess
) -> None:
    nasty = "<img src=x onerror=alert(1)> exploded"
    (dead,) = bury(service, 1, nasty, payload={"note": "<script>alert(2)</script>"})
    page = visit.open("/ops#dead")

    expect(page.locator(".letter .error")).to_have_text(nasty)
    page.get_by_text("Payload and history").click()
    expect(page.locator(".letter pre").first).to_contain_text("<script>alert(2)</script>")
    expect(page.locator(".timeline strong")).to_have_text(
        ["created", "claimed", "failed", "moved to dlq"]
    )

    # It stays open while the page asks again and again.
    page.wait_for_timeout(2500)
    expect(page.locator(".timeline strong").first).to_be_visible()
    page.get_by_role("button", name=f"Retry job {dead['id']}").click()
    expect(page.get_by_text("No dead jobs.")).to_be_visible()


@pytest.mark.parametrize("service", [60], indirect=True)
def test_workers_and_leases_are_listed(visit: Visit, service: ServiceProcess) -> None:
    enqueue(service, 3, leaseSeconds=600)
    claim(service, 2, worker="mailer-1")
    service.order()
    service.bot(autoClaim=True)

    page = visit.open("/ops#workers")

    expect(page.get_by_role("row", name=re.compile("mailer-1 worker 2"))).to_be_visible()
    expect(page.get_by_role("row", name=re.compile("#1 · NORMAL"))).to_be_visible()
    expect(page.get_by_role("row", name=re.compile("email · send .* mailer-1"))).to_have_count(2)


@pytest.mark.parametrize("service", [60], indirect=True)
def test_anything_is_explained_and_has_its_timeline(visit: Visit, service: ServiceProcess) -> None:
    order, second = service.order(), service.order()
    bot = service.bot(autoClaim=True)
    (job,) = enqueue(service)
    service.ask("POST", "/api/restaurants", {"slug": "corner", "name": "The Corner"})
    ticket = add_guest(service, "Ada Lovelace", 1)
    page = visit.open("/ops")

    for thing, kind, why, steps in (
        (order, "order", "HeldByBot", ["created", "claimed"]),
        (second, "order", "NoIdleBot", ["created"]),
        (bot, "bot", "WorksOn", ["created", "claimed"]),
        (job, "job", "BehindPriority", ["created"]),
        (ticket, "ticket", "InLine", ["created"]),
    ):
        look_up(page, thing["id"])
        expect(page.locator("main h2").first).to_have_text(f"{kind} {thing['id']}")
        expect(page.locator(".reasons code").first).to_have_text(why)
        expect(page.locator(".next")).to_contain_text("Next: ")
        expect(page.locator(".timeline strong")).to_have_text(steps)
    assert "Ada" not in page.locator("main").inner_text()


def test_an_unknown_id_and_one_that_is_none_are_answered_in_a_sentence(visit: Visit) -> None:
    page = visit.open("/ops")

    look_up(page, "00000000-0000-7000-8000-000000000000")
    expect(page.get_by_text("No order, bot, job or ticket has the id")).to_be_visible()

    look_up(page, "four")
    expect(page.get_by_text("Invalid id")).to_be_visible()


def test_every_view_has_an_empty_state(visit: Visit) -> None:
    page = visit.open("/ops")
    for address, sentence in (
        ("queues", "No queues yet"),
        ("jobs", "No matching jobs."),
        ("dead", "No dead jobs."),
        ("workers", "No active workers or bots"),
        ("past", "before the first event"),
        ("maintenance", "No checks run yet."),
    ):
        page.goto(f"{visit.url}/ops#{address}")
        expect(page.get_by_text(sentence)).to_be_visible()
        expect(page.locator("daybook-freshness")).to_contain_text("Position 0 · lag")


def test_the_page_shows_a_disconnection_and_reconnects(
    visit: Visit, service: ServiceProcess
) -> None:
    visit.is_server_away_expected = True
    busy_day(service)
    page = visit.open("/ops")
    be_read(page)

    service.signal_and_wait(signal.SIGTERM)
    expect(page.get_by_text("Disconnected: showing the last known data.")).to_be_visible()
    expect(card(page, "email")).to_be_visible()

    service.restart()
    expect(page.locator(".banner")).to_be_hidden(timeout=30_000)
    be_read(page)
