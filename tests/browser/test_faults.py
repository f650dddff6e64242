"""The board without stream, server or network."""

import json
import signal
import time

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.pages import MINUS_BOT, be_live, column, press, shown
from tests.browser.visit import Visit
from tests.support.running.processes import eventually
from tests.support.running.service_process import ServiceProcess


def be(page: Page, state: str) -> None:
    expect(page.locator("daybook-freshness")).to_have_attribute("data-state", state)


def refuse(route: Route) -> None:
    route.abort()


def test_without_the_stream_the_board_asks_every_two_seconds(
    visit: Visit, service: ServiceProcess
) -> None:
    # S0-47
    visit.is_server_away_expected = True
    visit.context.route("**/api/stream*", refuse)
    board = visit.open()
    be(board, "polling")

    service.order()
    started = time.monotonic()
    expect(column(board, "PENDING")).to_have_text(["#1"])
    assert time.monotonic() - started < 3

    visit.context.unroute("**/api/stream*", refuse)
    be_live(board)


def test_a_silent_stream_counts_as_disconnected(visit: Visit, service: ServiceProcess) -> None:
    # A connection that is half open neither tells anything nor ends.
    board = visit.open()
    be_live(board)
    visit.is_server_away_expected = True

    service.freeze()
    try:
        freshness = board.locator("daybook-freshness")
        expect(freshness).not_to_have_attribute("data-state", "live", timeout=40_000)
    finally:
        service.thaw()

    be_live(board)
    service.order()
    expect(column(board, "PENDING")).to_have_text(["#1"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_board_recovers_by_itself_when_the_server_restarts_in_the_middle_of_an_order(
    visit: Visit, service: ServiceProcess, number: signal.Signals
) -> None:  # S0-44
    visit.is_server_away_expected = True
    board = visit.open()
    be_live(board)
    service.order()
    service.bot(autoClaim=True)
    expect(column(board, "PROCESSING")).to_have_text(["#1"])

    service.signal_and_wait(number)
    be(board, "offline")
    expect(board.get_by_text("Disconnected: showing the board as of")).to_be_visible()
    service.restart()

    expect(column(board, "COMPLETE")).to_have_text(["#1"], timeout=20_000)
    be_live(board)
    expect(board.get_by_text("Disconnected")).to_be_hidden()
    assert len(service.events("order.completed")) == 1


def test_changes_during_a_network_failure_appear_afterwards(
    visit: Visit, service: ServiceProcess
) -> None:  # S0-48
    visit.is_server_away_expected = True
    board = visit.open()
    be_live(board)
    service.order()
    expect(column(board, "PENDING")).to_have_text(["#1"])

    visit.context.set_offline(True)
    be(board, "offline")
    service.order("VIP")
    expect(column(board, "PENDING")).to_have_text(["#1"])
    visit.context.set_offline(False)

    expect(column(board, "PENDING")).to_have_text(["#2", "#1"])
    be_live(board)


def test_a_board_that_is_opened_without_a_server_shows_its_last_state(
    visit: Visit, service: ServiceProcess
) -> None:  # S0-48
    visit.is_server_away_expected = True
    board = visit.open()
    be_live(board)
    service.orders(3)
    expect(column(board, "PENDING")).to_have_count(3)
    assert eventually(lambda: "feedme-board" in board.evaluate("Object.keys(localStorage)"))
    saved = "JSON.parse(localStorage.getItem('feedme-board'))"
    assert eventually(lambda: len(board.evaluate(saved)["orders"]) == 3)

    visit.context.route("**/api/**", refuse)
    board.reload()

    expect(column(board, "PENDING")).to_have_text(["#1", "#2", "#3"])
    expect(board.get_by_text("Disconnected: showing the board as of")).to_be_visible()
    visit.context.unroute("**/api/**", refuse)
    be_live(board)
    assert shown(board)["orders"] == service.get("/api/orders")["orders"]


@pytest.mark.parametrize("kept", ["{", "null", json.dumps({"orders": 3}), '"x"'])
def test_a_state_that_cannot_be_read_is_of_no_consequence(
    visit: Visit, service: ServiceProcess, kept: str
) -> None:
    service.order()
    script = f"localStorage.setItem('feedme-board', {json.dumps(kept)})"
    visit.context.add_init_script(script)

    board = visit.open()

    expect(column(board, "PENDING")).to_have_text(["#1"])


def test_an_order_that_was_pressed_while_the_server_was_away_is_made_once(
    visit: Visit, service: ServiceProcess
) -> None:
    visit.is_server_away_expected = True
    board = visit.open()
    be_live(board)
    answered: list[bool] = []

    def lose_the_answer(route: Route) -> None:
        if answered:
            route.continue_()
            return
        route.fetch()
        answered.append(True)
        route.abort()

    visit.context.route("**/api/orders", lose_the_answer)
    press(board, "New normal order")

    expect(column(board, "PENDING")).to_have_text(["#1"])
    board.wait_for_timeout(1500)
    assert len(service.events("order.created")) == 1
    expect(board.locator(".word")).to_have_count(0)


def test_offline_actions_are_queued_and_sent_later(visit: Visit, service: ServiceProcess) -> None:
    visit.is_server_away_expected = True
    board = visit.open()
    be_live(board)
    visit.context.set_offline(True)

    press(board, "New normal order")
    press(board, "New VIP order")

    waiting = board.get_by_role("list", name="Waiting to send").get_by_role("listitem")
    expect(waiting).to_have_count(2)
    expect(waiting.first).to_contain_text("New normal order: waiting to send since")
    assert service.get("/api/orders")["orders"] == []

    visit.context.set_offline(False)
    expect(waiting).to_have_count(0)
    expect(column(board, "PENDING")).to_have_text(["#2", "#1"])
    assert [one["data"]["kind"] for one in service.events("order.created")] == ["NORMAL", "VIP"]
    expect(board.locator(".word")).to_have_count(0)


def test_queued_actions_survive_a_restart_and_a_reload(
    visit: Visit, service: ServiceProcess
) -> None:
    visit.is_server_away_expected = True
    board = visit.open()
    be_live(board)
    service.signal_and_wait(signal.SIGTERM)
    press(board, "New normal order")
    waiting = board.get_by_role("list", name="Waiting to send").get_by_role("listitem")
    expect(waiting).to_have_count(1)

    service.restart()
    board.reload()

    expect(column(board, "PENDING")).to_have_text(["#1"])
    expect(waiting).to_have_count(0)
    board.wait_for_timeout(1000)
    assert len(service.events("order.created")) == 1


def test_queued_actions_can_be_discarded(visit: Visit, service: ServiceProcess) -> None:
    visit.is_server_away_expected = True
    board = visit.open()
    be_live(board)
    visit.context.set_offline(True)
    press(board, "+ Bot")
    board.get_by_role("button", name="Discard + Bot").click()
    expect(board.locator("daybook-outbox")).to_be_hidden()
    # Requests that were still under way have given up after 5 s.
    board.wait_for_timeout(5000)
    visit.context.set_offline(False)
    be_live(board)
    assert service.get("/api/bots")["bots"] == []


def test_each_offline_removal_takes_another_bot(visit: Visit, service: ServiceProcess) -> None:
    visit.is_server_away_expected = True
    first, *_ = [service.bot() for _ in range(3)]
    board = visit.open()
    expect(board.locator(".bot")).to_have_count(3)
    visit.context.set_offline(True)
    press(board, MINUS_BOT)
    press(board, MINUS_BOT)
    visit.context.set_offline(False)
    expect(board.locator(".bot")).to_have_count(1)
    assert [bot["id"] for bot in service.get("/api/bots")["bots"]] == [first["id"]]


def test_a_refusal_is_shown_as_a_notice(visit: Visit, service: ServiceProcess) -> None:
    visit.expected_status = 403
    board = visit.open()
    be_live(board)
    visit.context.route(
        "**/api/orders",
        lambda route: route.fulfill(
            status=403, json={"code": "forbidden", "detail": "The kitchen is closed."}
        ),
    )

    press(board, "New normal order")

    words = board.locator(".word")
    expect(words).to_contain_text("New normal order: The kitchen is closed.")
    expect(board.locator("daybook-outbox")).to_be_hidden()
    words.get_by_role("button", name="Dismiss").click()
    expect(words).to_have_count(0)
    assert service.get("/api/orders")["orders"] == []


def test_a_view_that_could_not_be_fetched_comes_when_the_server_is_back(visit: Visit) -> None:
    visit.is_server_away_expected = True
    visit.context.route("**/ops/workers.js*", refuse)
    page = visit.open("/ops")
    expect(page.locator("ops-queues")).to_be_visible()

    page.get_by_role("link", name="Workers").click()
    page.wait_for_timeout(500)
    expect(page.locator("ops-queues")).to_be_visible()
    visit.context.unroute("**/ops/workers.js*", refuse)

    expect(page.get_by_text("No active workers or bots")).to_be_visible()
