"""Which listeners a commit wakes, when, and how often."""

import asyncio
import time

import pytest

from daybook.eventlog.notifier import RECONNECT_SECONDS, Listener, Notifier
from tests.support.committer import rows

pytestmark = pytest.mark.anyio

# Long enough for a NOTIFY round trip, shorter than any poll.
HEARD_SECONDS = 0.3
END_LISTENERS = """
SELECT pg_terminate_backend(pid, 5000)
FROM pg_stat_activity
WHERE datname = current_database() AND query LIKE 'LISTEN %%'
"""
ABOUT_ORDERS, ABOUT_JOBS = frozenset({"order"}), frozenset({"job"})


async def is_woken(wake: Listener, seconds: float = HEARD_SECONDS) -> bool:
    began = time.monotonic()
    await wake.wait(seconds)
    return time.monotonic() - began < seconds


async def drain(wake: Listener) -> None:
    """Waits until the wake-up at the start of listening has passed."""
    while await is_woken(wake):
        pass


async def test_a_commit_wakes_every_process_once(database: str) -> None:
    async with Notifier(database) as here, Notifier(database) as elsewhere:
        with here.listener() as mine, elsewhere.listener() as other:
            await drain(mine)
            await drain(other)
            here.notify(1, ABOUT_ORDERS)
            assert await is_woken(mine)
            assert await is_woken(other)
            # A process ignores its own notifications.
            assert not await is_woken(mine)


async def test_listeners_without_delay_are_woken_first(database: str) -> None:
    woken: list[str] = []

    async def wait(name: str, wake: Listener) -> None:
        await wake.wait(5)
        woken.append(name)

    async with Notifier(database) as notifier:
        with notifier.listener(0.01) as patient, notifier.listener() as urgent:
            await drain(urgent)
            await drain(patient)
            waiting = [wait("patient", patient), wait("urgent", urgent)]
            tasks = [asyncio.create_task(one) for one in waiting]
            await asyncio.sleep(0)
            notifier.notify(1, ABOUT_ORDERS)
            await asyncio.gather(*tasks)
    assert woken == ["urgent", "patient"]


async def test_a_listener_for_orders_is_not_woken_by_jobs(database: str) -> None:
    async with Notifier(database) as notifier:
        with (
            notifier.listener(kinds=ABOUT_ORDERS) as of_orders,
            notifier.listener() as of_everything,
        ):
            await drain(of_orders)
            await drain(of_everything)
            notifier.notify(1, ABOUT_JOBS)
            assert await is_woken(of_everything)
            assert not await is_woken(of_orders)
            notifier.notify(2, ABOUT_JOBS | ABOUT_ORDERS)
            assert await is_woken(of_orders)


async def test_a_notification_of_another_process_wakes_listeners_of_all_kinds(
    database: str,
) -> None:
    async with Notifier(database) as here, Notifier(database) as elsewhere:
        with elsewhere.listener(kinds=ABOUT_ORDERS) as other:
            await drain(other)
            here.notify(1, ABOUT_JOBS)
            assert await is_woken(other)


async def test_a_reconnect_wakes_listeners_of_all_kinds(database: str) -> None:
    # Notifications may have been lost meanwhile.
    async with Notifier(database) as notifier:
        with notifier.listener(kinds=ABOUT_ORDERS) as wake:
            await drain(wake)
            rows(database, END_LISTENERS)
            assert await is_woken(wake, RECONNECT_SECONDS + 3 * HEARD_SECONDS)


async def test_a_delayed_listener_is_woken_once_for_several_commits() -> None:
    wake = Listener(delay_seconds=0.05)
    for _ in range(100):
        wake.wake()
    assert await is_woken(wake)
    assert not await is_woken(wake)
