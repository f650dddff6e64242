"""How fast the board is, and how fast it stays with thousands of orders."""

import statistics

import pytest
from playwright.sync_api import Page, expect

from tests.browser.boards import be_live, column
from tests.browser.house import House
from tests.browser.visit import Visit

FIRST_LOAD_BYTES_MAX = 150_000
FIRST_LOAD_MS_MAX = 500
TASK_MS_MAX = 50

# From the beginning of the navigation until the orders of this moment are on the screen.
TELL_WHEN_SHOWN = """
new MutationObserver(() => {
  if (window.shownAt === undefined && document.querySelector(".order")) shownAt = performance.now();
}).observe(document, { subtree: true, childList: true });
"""
SENT = """
performance.getEntriesByType("navigation")
  .concat(performance.getEntriesByType("resource"))
  .reduce((sum, entry) => sum + entry.transferSize, 0)
"""
WATCH_TASKS = """
window.tasks = [];
new PerformanceObserver((list) => tasks.push(...list.getEntries().map((entry) => entry.duration)))
  .observe({ type: "longtask" });
"""


def test_a_first_load_is_small_and_quick(visit: Visit, house: House) -> None:
    house.orders(20)
    visit.context.add_init_script(TELL_WHEN_SHOWN)

    first = visit.open()
    be_live(first)
    sent, times = first.evaluate(SENT), [first.evaluate("shownAt")]
    for _ in range(4):
        # Another window of the same browser would have the files: this one asks for all of them.
        session = visit.context.new_cdp_session(first)
        session.send("Network.setCacheDisabled", {"cacheDisabled": True})
        first.evaluate("localStorage.clear()")
        first.reload()
        be_live(first)
        times.append(first.evaluate("shownAt"))

    print(f"first load: {sent / 1000:.0f} KB, {statistics.median(times):.0f} ms, {times}")
    assert sent < FIRST_LOAD_BYTES_MAX
    # The best of a few, because the machine may be busy with other tests.
    assert min(times) < FIRST_LOAD_MS_MAX


@pytest.mark.slow
@pytest.mark.parametrize("house", [1], indirect=True)
def test_two_thousand_orders_stay_smooth_while_updates_come_in(visit: Visit, house: House) -> None:
    house.orders(1000)
    house.orders(1000)
    board = visit.open()
    expect(column(board, "PENDING")).to_have_count(2000, timeout=20_000)
    be_live(board)
    board.wait_for_timeout(1000)
    quiet = tasks_during(board, lambda: board.wait_for_timeout(4000))

    def work() -> None:
        for _ in range(3):
            house.bot(autoClaim=True)
        for _ in range(20):
            house.order("VIP")
            board.wait_for_timeout(200)

    busy = tasks_during(board, work)

    print(f"tasks over 50 ms with 2,000 orders: quiet {quiet}, busy {busy}")
    assert house.has_completed(3)
    assert [task for task in quiet + busy if task > TASK_MS_MAX] == []


def tasks_during(board: Page, work: object) -> list[float]:
    board.evaluate(WATCH_TASKS)
    assert callable(work)
    work()
    tasks: list[float] = board.evaluate("tasks")
    return tasks
