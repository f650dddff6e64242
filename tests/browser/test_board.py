"""The board in a browser: actions, updates and content."""

import random
import time
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.pages import MINUS_BOT, be_live, column, press, shown
from tests.browser.visit import Visit
from tests.support.running.processes import eventually
from tests.support.running.service_process import ServiceProcess


def test_an_order_goes_from_pending_through_processing_to_complete(
    visit: Visit, service: ServiceProcess
) -> None:  # S0-34, S0-46
    board = visit.open()
    expect(board.get_by_text("No pending orders.")).to_be_visible()

    press(board, "New normal order")
    expect(column(board, "PENDING")).to_have_text(["#1"])

    press(board, "+ Bot")
    expect(column(board, "PROCESSING")).to_have_text(["#1"])
    expect(board.locator(".bot .what")).to_have_text("cooking #1")

    expect(column(board, "COMPLETE")).to_have_text(["#1"])
    expect(board.locator(".bot .what")).to_have_text("idle")
    assert service.has_completed(1)


def test_a_vip_order_is_ahead_of_normal_ones_and_behind_other_vips(visit: Visit) -> None:
    board = visit.open()

    for kind in ("normal", "VIP", "normal", "VIP"):
        press(board, f"New {kind} order")
        board.wait_for_timeout(100)

    expect(column(board, "PENDING")).to_have_text(["#2", "#4", "#1", "#3"])


@pytest.mark.parametrize("service", [60], indirect=True)
def test_minus_bot_removes_the_newest_and_its_order_returns_to_its_position(
    visit: Visit, service: ServiceProcess
) -> None:
    board = visit.open()
    first, second = service.bot(autoClaim=True), service.bot(autoClaim=True)
    for _ in range(4):
        service.order()
    expect(column(board, "PROCESSING")).to_have_text(["#2", "#1"])

    press(board, MINUS_BOT)

    expect(column(board, "PROCESSING")).to_have_text(["#1"])
    expect(column(board, "PENDING")).to_have_text(["#2", "#3", "#4"])
    assert service.get(f"/api/bots/{second['id']}")["bot"]["deletedAt"] is not None
    assert [bot["id"] for bot in service.get("/api/bots")["bots"]] == [first["id"]]


@pytest.mark.parametrize("service", [60], indirect=True)
def test_the_board_equals_the_api_after_any_commands_without_reading_twice(
    visit: Visit, service: ServiceProcess
) -> None:  # S0-46, S0-49
    board = visit.open()
    be_live(board)
    chance = random.Random(11)
    for _ in range(60):
        do_something(service, chance)
    expect(board.locator("daybook-freshness")).to_contain_text(f"Position {service.position:,} ")
    # A restored order is unknown to the board, which then reads again after 250 ms.
    board.wait_for_timeout(1000)
    before = [url for url in visit.requests if url.endswith("/api/board")]

    assert eventually(lambda: shown(board)["orders"] == service.get("/api/orders")["orders"])
    assert shown(board)["bots"] == service.get("/api/bots")["bots"][::-1]
    assert [url for url in visit.requests if url.endswith("/api/board")] == before
    # As a follower, as the leader, and for orders that left the board.
    assert len(before) <= 2 + len(service.events("order.restored"))


def do_something(service: ServiceProcess, chance: random.Random) -> None:
    orders, bots = service.get("/api/orders")["orders"], service.get("/api/bots")["bots"]
    open_orders = [one for one in orders if one["status"] in ("PENDING", "PROCESSING")]
    cooked = [one for one in orders if one["status"] == "PROCESSING"]
    idle = [bot for bot in bots if bot["status"] == "IDLE"]
    choices: list[Callable[[], Any]] = [
        lambda: service.order(chance.choice(["NORMAL", "VIP"])),
        lambda: len(bots) < 4 and service.bot(completion="ack"),
        lambda: idle and service.ask("POST", f"/api/bots/{chance.choice(idle)['id']}/claim"),
        lambda: cooked and finish(service, chance.choice(cooked), chance),
        lambda: len(open_orders) > 5 and delete(service, chance.choice(open_orders), chance),
        lambda: bots and service.ask("PATCH", f"/api/bots/{bots[0]['id']}", {"status": "IDLE"}),
        lambda: len(bots) > 2 and service.ask("DELETE", f"/api/bots/{bots[0]['id']}"),
    ]
    chance.choice(choices)()


def finish(service: ServiceProcess, order: Any, chance: random.Random) -> Any:
    claim = {"claimId": order["claimId"]}
    if chance.random() < 0.5:
        return service.ask("PATCH", f"/api/orders/{order['id']}", {"status": "COMPLETE", **claim})
    failure = {**claim, "error": "burnt", "retryable": chance.random() < 0.7}
    return service.ask("POST", f"/api/orders/{order['id']}/fail", failure)


def delete(service: ServiceProcess, order: Any, chance: random.Random) -> Any:
    deleted = service.ask("DELETE", f"/api/orders/{order['id']}")
    if chance.random() < 0.5:
        return service.ask("POST", f"/api/orders/{order['id']}/restore")
    return deleted


@pytest.mark.parametrize("service", [10], indirect=True)
def test_a_bar_runs_with_the_servers_clock_even_if_the_devices_is_wrong(
    visit: Visit, service: ServiceProcess
) -> None:  # S0-34, S0-35, S0-37, S0-50, D-08
    visit.context.add_init_script("const real = Date.now; Date.now = () => real() - 3_600_000;")
    board = visit.open()
    be_live(board)
    service.order()
    bot = service.bot(autoClaim=True)["id"]
    expect(board.locator(".bot .what")).to_have_text("cooking #1")

    state = f"daybook.bots.bots.get('{bot}')"
    readings = []
    for _ in range(10):
        readings.append(board.evaluate(f"{state}.remainingMs"))
        board.wait_for_timeout(100)

    assert set(board.evaluate(state)) == {"remainingMs", "status", "currentOrderId", "lastTick"}
    assert 0 < readings[-1] < readings[0] <= 10_000
    # Each reading is another: the countdown moves every 100 ms.
    assert len(set(readings)) >= 8
    width = board.locator(".fill").evaluate(
        "bar => new DOMMatrix(getComputedStyle(bar).transform).a"
    )
    assert 0 < width < 1


def test_a_completion_is_announced_once(visit: Visit, service: ServiceProcess) -> None:
    # S0-36
    board = visit.open()
    board.evaluate(
        "window.details = []; addEventListener('bot-order-complete', (e) => details.push(e.detail))"
    )
    be_live(board)
    orders = [service.order() for _ in range(3)]
    bots = [service.bot(autoClaim=True) for _ in range(2)]
    expect(column(board, "COMPLETE")).to_have_count(3, timeout=20_000)

    details = board.evaluate("details")
    assert sorted(one["orderId"] for one in details) == sorted(order["id"] for order in orders)
    assert {one["botId"] for one in details} == {bot["id"] for bot in bots}


def test_a_completion_appears_the_moment_it_happens(
    visit: Visit, service: ServiceProcess
) -> None:  # S0-47
    board = visit.open()
    be_live(board)
    bot = service.bot(completion="ack")["id"]
    delays = []
    for number in range(1, 6):
        service.order()
        order = service.ask("POST", f"/api/bots/{bot}/claim")["order"]
        expect(column(board, "PROCESSING")).to_have_count(1)
        done = {"status": "COMPLETE", "claimId": order["claimId"]}
        service.ask("PATCH", f"/api/orders/{order['id']}", done)
        started = time.monotonic()
        expect(column(board, "COMPLETE")).to_have_count(number)
        delays.append(time.monotonic() - started)

    print(f"from a completion's answer to its card: {sorted(delays)[2] * 1000:.0f} ms (median)")
    assert sorted(delays)[2] < 0.5


def test_dead_orders_are_linked(visit: Visit, service: ServiceProcess) -> None:
    board = visit.open()
    be_live(board)
    service.order()
    claimed = service.ask("POST", f"/api/bots/{service.bot(completion='ack')['id']}/claim")["order"]
    failure = {"claimId": claimed["claimId"], "error": "burnt", "retryable": False}
    service.ask("POST", f"/api/orders/{claimed['id']}/fail", failure)

    expect(board.get_by_text("1 dead order")).to_be_visible()


def test_the_board_can_be_used_with_the_keyboard_alone(visit: Visit) -> None:
    board = visit.open()
    be_live(board)

    board.keyboard.press("Tab")
    board.keyboard.press("Enter")
    board.keyboard.press("Tab")
    board.keyboard.press("Space")
    expect(column(board, "PENDING")).to_have_text(["#2", "#1"])
    board.keyboard.press("Tab")
    board.keyboard.press("Enter")
    expect(board.locator(".bot")).to_have_count(1)
    board.keyboard.press("Tab")
    ring = board.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert (board.evaluate("document.activeElement.id"), ring) == ("remove-bot", "solid")
    board.keyboard.press("Enter")
    expect(board.locator(".bot")).to_have_count(0)
    # The columns scroll, so they can be reached too.
    board.keyboard.press("Tab")
    assert board.evaluate("document.activeElement.tagName") == "OL"


# SX-01
def test_a_disabled_bot_appears_by_stream_and_is_restored(
    visit: Visit, service: ServiceProcess
) -> None:
    page = visit.open()
    bot = service.bot(failuresMax=2, completion="ack")
    item = page.locator(f'[data-bot="{bot["id"]}"]')
    expect(item).to_contain_text("idle")
    for error in ("burnt", "the fryer is off"):
        service.order()
        order = service.ask("POST", f"/api/bots/{bot['id']}/claim")["order"]
        failure = {"claimId": order["claimId"], "error": error, "retryable": False}
        service.ask("POST", f"/api/orders/{order['id']}/fail", failure)

    expect(item).to_have_attribute("data-status", "DEAD")
    expect(item.get_by_role("link", name="out of service")).to_have_attribute(
        "href", f"/ops#item/{bot['id']}"
    )
    expect(page.locator("#dead")).to_have_text("2 dead orders · 1 bot out of service")
    # The page folds the same bot that the service returns.
    assert folded(page, bot) == service.get(f"/api/bots/{bot['id']}")["bot"]

    service.ask("POST", f"/api/bots/{bot['id']}/restore", {"reason": "repaired"})
    expect(item).to_have_attribute("data-status", "IDLE")
    service.ask("PATCH", f"/api/bots/{bot['id']}", {"failuresMax": 7})
    assert eventually(lambda: folded(page, bot) == service.get(f"/api/bots/{bot['id']}")["bot"])


def folded(page: Page, bot: Any) -> Any:
    return page.evaluate("(id) => daybook.bots.list.find((bot) => bot.id === id)", bot["id"])
