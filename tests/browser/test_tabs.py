"""Several tabs: one leads, the others follow, any can take over."""

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from playwright.sync_api import Error, Page, expect

from tests.browser.pages import be_live, column, is_leader, shown
from tests.browser.visit import Visit
from tests.support.running.processes import eventually
from tests.support.running.service_process import ServiceProcess

TAKEOVER_SECONDS_MAX = 5.0
HEAR = """() => {
  window.messages = [];
  new BroadcastChannel("feedme-bot-sync").onmessage = (event) => messages.push(event.data);
}"""
# As if each tab had storage of its own: none of them learns of another's lease.
KEEP_APART = """
const own = Math.random(), { getItem, setItem } = Storage.prototype;
Storage.prototype.getItem = function (key) { return getItem.call(this, own + key); };
Storage.prototype.setItem = function (key, text) { return setItem.call(this, own + key, text); };
"""
# Its countdown has ended, and it receives no other state.
MISLEAD = """(id) => {
  daybook.bots.tick = () => ({ changed: [], over: [] });
  daybook.bots.rest(id);
}"""


def open_tabs(visit: Visit, count: int) -> list[Page]:
    tabs = [visit.open() for _ in range(count)]
    assert eventually(lambda: len(leaders(tabs)) == 1)
    for tab in tabs:
        be_live(tab)
    return tabs


def leaders(tabs: list[Page]) -> list[Page]:
    return [tab for tab in tabs if is_leader(tab)]


def split(tabs: list[Page]) -> tuple[Page, list[Page]]:
    (leader,) = leaders(tabs)
    return leader, [tab for tab in tabs if tab is not leader]


def lease(tab: Page) -> Any:
    return tab.evaluate("JSON.parse(localStorage.getItem('feedme-leader-lease'))")


def claims_by_order(service: ServiceProcess) -> Counter[str]:
    return Counter(event["aggregate"] for event in service.events("order.claimed"))


def test_one_tab_leads_and_its_lease_lasts_four_seconds_and_is_renewed_every_two(
    visit: Visit,
) -> None:  # S0-52, S0-53
    leader, (follower,) = split(open_tabs(visit, 2))

    first = lease(follower)
    assert set(first) == {"leaderId", "expiresAt"}
    assert first["leaderId"] == leader.evaluate("sessionStorage.getItem('feedme-leader-id')")
    assert first["leaderId"] != follower.evaluate("sessionStorage.getItem('feedme-leader-id')")
    assert 0 < first["expiresAt"] - follower.evaluate("Date.now()") <= 4000

    assert eventually(lambda: bool(lease(follower)["expiresAt"] > first["expiresAt"]))
    renewed = lease(follower)
    assert renewed["leaderId"] == first["leaderId"]
    assert 2000 <= renewed["expiresAt"] - first["expiresAt"] < 4000


def test_only_the_leader_holds_the_stream_and_the_others_show_the_same(
    visit: Visit, service: ServiceProcess
) -> None:
    tabs = open_tabs(visit, 3)
    streams = [url for url in visit.requests if "/api/stream" in url]
    service.order()
    service.order("VIP")
    service.bot(autoClaim=True)

    for tab in tabs:
        expect(column(tab, "COMPLETE")).to_have_text(["#2", "#1"], timeout=20_000)
    assert len(streams) == 1
    assert eventually(lambda: all(shown(tab) == shown(tabs[0]) for tab in tabs))


def test_the_leader_broadcasts_its_lease_bots_and_completions(
    visit: Visit, service: ServiceProcess
) -> None:
    # S0-36, S0-54, S0-56
    _, (follower,) = split(open_tabs(visit, 2))
    follower.evaluate(HEAR)
    order, bot = service.order(), service.bot(autoClaim=True)
    expect(column(follower, "COMPLETE")).to_have_text(["#1"])
    assert eventually(lambda: "leader" in {one["type"] for one in follower.evaluate("messages")})

    messages = follower.evaluate("messages")
    by_type = {
        kind: [one for one in messages if one["type"] == kind] for kind in map(kind_of, messages)
    }
    assert set(by_type["leader"][0]) == {"type", "leaderId", "expiresAt"}
    assert by_type["completion"] == [
        {"type": "completion", "botId": bot["id"], "orderId": order["id"]}
    ]
    statuses = [one["state"]["status"] for one in by_type["bot"]]
    assert "PROCESSING" in statuses
    assert statuses[-1] == "IDLE"


def kind_of(message: Any) -> str:
    return str(message["type"])


@pytest.mark.parametrize("service", [10], indirect=True)
def test_a_countdown_belongs_to_its_tab_and_the_status_of_a_bot_to_the_server(
    visit: Visit, service: ServiceProcess
) -> None:  # S0-51
    leader, (misled,) = split(open_tabs(visit, 2))
    tabs = (leader, misled)
    service.order()
    bot = service.bot(autoClaim=True)["id"]
    for tab in tabs:
        expect(tab.locator(".bot .what")).to_have_text("cooking #1")

    misled.evaluate(MISLEAD, bot)

    first = countdown(leader, bot)
    leader.wait_for_timeout(300)
    assert 0 < countdown(leader, bot)["remainingMs"] < first["remainingMs"]
    assert countdown(misled, bot)["remainingMs"] == 0
    assert countdown(leader, bot)["status"] == "PROCESSING"
    assert countdown(misled, bot)["status"] == "IDLE"
    assert statuses(tabs, service) == {"PROCESSING"}
    assert "remainingMs" not in misled.evaluate("JSON.stringify([localStorage, sessionStorage])")

    expect(column(misled, "COMPLETE")).to_have_text(["#1"], timeout=20_000)
    assert eventually(lambda: statuses(tabs, service) == {"IDLE"})
    assert len(service.events("order.completed")) == 1


def countdown(tab: Page, bot: str) -> Any:
    return tab.evaluate("(id) => daybook.bots.bots.get(id)", bot)


def statuses(tabs: Sequence[Page], service: ServiceProcess) -> set[str]:
    """Of the only bot: as each tab knows it, and as it is."""
    lists = [*(shown(tab)["bots"] for tab in tabs), service.get("/api/bots")["bots"]]
    return {bot["status"] for bots in lists for bot in bots}


def test_when_the_leader_is_closed_another_takes_over(
    visit: Visit, service: ServiceProcess
) -> None:  # S0-55
    leader, others = split(open_tabs(visit, 3))

    started = time.monotonic()
    leader.close(run_before_unload=True)

    assert eventually(lambda: len(leaders(others)) == 1)
    took = time.monotonic() - started
    print(f"takeover from a leader that was closed: {took:.1f} s")
    assert took < TAKEOVER_SECONDS_MAX
    service.order()
    for tab in others:
        expect(column(tab, "PENDING")).to_have_text(["#1"])


def test_when_the_leader_is_killed_another_takes_over_and_no_order_is_claimed_twice(
    visit: Visit, service: ServiceProcess
) -> None:  # S0-55
    leader, others = split(open_tabs(visit, 3))
    # These do not help themselves: the leader claims for them.
    for _ in range(3):
        service.bot()
    service.orders(6)
    expect(column(others[0], "PROCESSING")).to_have_count(3)

    started = time.monotonic()
    kill(leader)

    assert eventually(lambda: len(leaders(others)) == 1)
    took = time.monotonic() - started
    expect(column(others[0], "COMPLETE")).to_have_count(6, timeout=20_000)
    print(f"takeover from a leader that was killed: {took:.1f} s")
    assert took < TAKEOVER_SECONDS_MAX
    assert set(claims_by_order(service).values()) == {1}
    assert len(leaders(others)) == 1


def kill(tab: Page) -> None:
    """As when its process is ended: it has no time to say goodbye."""
    with pytest.raises(Error):
        tab.goto("chrome://crash", timeout=1000)


def test_tabs_that_claim_at_the_same_moment_give_each_order_away_once(
    visit: Visit, service: ServiceProcess
) -> None:
    # Each of them leads: the worst that can happen.
    visit.context.add_init_script(KEEP_APART)
    tabs = [visit.open() for _ in range(3)]
    assert eventually(lambda: len(leaders(tabs)) == 3)

    for _ in range(4):
        service.bot()
    service.orders(12)

    expect(column(tabs[0], "COMPLETE")).to_have_count(12, timeout=30_000)
    assert set(claims_by_order(service).values()) == {1}
    assert len(claims_by_order(service)) == 12


def test_bots_that_report_themselves_are_not_claimed_for(
    visit: Visit, service: ServiceProcess
) -> None:
    board = visit.open()
    be_live(board)
    service.bot(completion="ack")
    service.order()

    board.wait_for_timeout(2500)

    assert service.events("order.claimed") == []
