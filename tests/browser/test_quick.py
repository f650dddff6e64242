"""Load times of pages, and speed of the board with thousands of orders."""

import os
from collections.abc import Callable

import pytest
from playwright.sync_api import CDPSession, Page, expect

from tests.browser.ops_data import busy_day
from tests.browser.pages import be_live, column
from tests.browser.visit import Visit
from tests.support.running.service_process import ServiceProcess

FIRST_LOAD_BYTES_MAX = 150_000
FIRST_LOAD_MS_MAX = 500
TASK_MS_MAX = 50
WORK_MS_MAX = 25
LOADS_MAX = 20
# By then all that a page fetches when it is idle is there too.
SETTLE_MS = 1000
UPDATES = 20

# From the start of the navigation until the main content is drawn.
TELL_WHEN_SHOWN = """
new MutationObserver(() => {
  if (window.shownAt === undefined && document.querySelector("%s")) shownAt = performance.now();
}).observe(document, { subtree: true, childList: true });
"""
SENT = """
performance.getEntriesByType("navigation")
  .concat(performance.getEntriesByType("resource"))
  .reduce((sum, entry) => sum + entry.transferSize, 0)
"""
WATCH_TASKS = """() => {
  window.tasks = [];
  new PerformanceObserver((list) => tasks.push(...list.getEntries().map((one) => one.duration)))
    .observe({ type: "longtask" });
}"""


@pytest.mark.parametrize(("path", "wanted"), [("/", ".order"), ("/ops", ".queue")])
@pytest.mark.alone
def test_a_first_load_is_small_and_quick(
    visits: Callable[..., Visit], service: ServiceProcess, path: str, wanted: str
) -> None:
    busy_day(service)
    page = first_load(visits(), path, wanted)
    page.wait_for_timeout(SETTLE_MS)
    sent, times = page.evaluate(SENT), [page.evaluate("shownAt")]
    page.close()

    # Others may be at work on this machine: some of many loads should have it to themselves.
    while min(times) > FIRST_LOAD_MS_MAX and len(times) < LOADS_MAX:
        page = first_load(visits(), path, wanted)
        times.append(page.evaluate("shownAt"))
        page.close()

    print(f"first load of {path}: {sent / 1000:.0f} KB, {min(times):.0f} ms, best of {len(times)}")
    assert sent <= FIRST_LOAD_BYTES_MAX
    assert min(times) <= FIRST_LOAD_MS_MAX


def first_load(visit: Visit, path: str, wanted: str) -> Page:
    """In a window that has nothing of the page yet."""
    visit.context.add_init_script(TELL_WHEN_SHOWN % wanted)
    page = visit.open(path)
    expect(page.locator(wanted).first).to_be_visible()
    return page


@pytest.mark.slow
@pytest.mark.parametrize("service", [1], indirect=True)
@pytest.mark.alone
def test_two_thousand_orders_stay_smooth_while_updates_come_in(
    visit: Visit, service: ServiceProcess
) -> None:
    service.orders(1000)
    service.orders(1000)
    board = visit.open()
    expect(board.locator("order-column[status=PENDING] h2 .number")).to_have_text("2,000")
    be_live(board)
    for _ in range(3):
        service.bot(autoClaim=True)
    board.wait_for_timeout(3000)
    session = visit.context.new_cdp_session(board)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    board.evaluate(WATCH_TASKS)
    before, updates = worked_ms(session), service.position
    for _ in range(UPDATES):
        service.order("VIP")
        board.wait_for_timeout(200)
    worked, updates = worked_ms(session) - before, service.position - updates

    tasks = [task for task in board.evaluate("tasks") if task > TASK_MS_MAX]
    each, load = worked / updates, os.getloadavg()[0]
    print(f"{updates} events: {each:.1f} ms of work each; longer than 50 ms: {tasks}; load {load}")
    # CPU time of the process, independent of other load.
    assert each < WORK_MS_MAX
    if load < (os.cpu_count() or 1):
        assert tasks == []


def worked_ms(session: CDPSession) -> float:
    metrics = session.send("Performance.getMetrics")["metrics"]
    (seconds,) = (one["value"] for one in metrics if one["name"] == "TaskDuration")
    return float(seconds) * 1000


def test_a_long_column_can_be_scrolled_to_its_end(visit: Visit, service: ServiceProcess) -> None:
    service.orders(450)
    board = visit.open()
    expect(column(board, "PENDING")).to_have_count(100)

    cards = board.locator("order-column[status=PENDING] ol")
    for _ in range(6):
        cards.evaluate("list => { list.scrollTop = list.scrollHeight; }")
        board.wait_for_timeout(200)

    expect(column(board, "PENDING")).to_have_count(450)
    expect(column(board, "PENDING").last).to_have_text("#450")
