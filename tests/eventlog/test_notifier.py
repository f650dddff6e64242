"""Who is woken by a commit, when, and how often."""

import asyncio
import time

import pytest

from daybook.eventlog.notifier import RECONNECT_SECONDS, Listener, Notifier
from tests.support.committer import rows

pytestmark = pytest.mark.anyio

# Long enough for a notification to go round, short of any look by oneself.
HEARD_SECONDS = 0.3
END_LISTENERS = """
SELECT pg_terminate_backend(pid, 5000)
FROM pg_stat_activity
WHERE datname = current_database() AND query LIKE 'LISTEN %%'
"""
ABOUT_ORDERS, ABOUT_JOBS = frozenset({"order"}), frozenset({"job"})


async def is_rung(wake: Listener, seconds: float = HEARD_SECONDS) -> bool:
    began = time.monotonic()
    await wake.wait(seconds)
    return time.monotonic() - began < seconds


async def settled(wake: Listener) -> None:
    """Past the ring with which it begins to listen."""
    while await is_rung(wake):
        pass


async def test_a_commit_rings_in_every_process_and_once(database: str) -> None:
    async with Notifier(database) as here, Notifier(database) as elsewhere:
        with here.listener() as mine, elsewhere.listener() as other:
            await settled(mine)
            await settled(other)
            here.notify(1, ABOUT_ORDERS)
            assert await is_rung(mine)
            assert await is_rung(other)
            # What one has told the others does not come back to oneself.
            assert not await is_rung(mine)


async def test_those_for_whom_somebody_waits_are_woken_first(database: str) -> None:
    woken: list[str] = []

    async def wait(name: str, wake: Listener) -> None:
        await wake.wait(5)
        woken.append(name)

    async with Notifier(database) as notifier:
        with notifier.listener(0.01) as patient, notifier.listener() as urgent:
            await settled(urgent)
            await settled(patient)
            waiting = [wait("patient", patient), wait("urgent", urgent)]
            tasks = [asyncio.create_task(one) for one in waiting]
            await asyncio.sleep(0)
            notifier.notify(1, ABOUT_ORDERS)
            await asyncio.gather(*tasks)
    assert woken == ["urgent", "patient"]


async def test_who_hears_orders_sleeps_through_what_happens_to_jobs(database: str) -> None:
    async with Notifier(database) as notifier:
        with (
            notifier.listener(kinds=ABOUT_ORDERS) as of_orders,
            notifier.listener() as of_everything,
        ):
            await settled(of_orders)
            await settled(of_everything)
            notifier.notify(1, ABOUT_JOBS)
            assert await is_rung(of_everything)
            assert not await is_rung(of_orders)
            notifier.notify(2, ABOUT_JOBS | ABOUT_ORDERS)
            assert await is_rung(of_orders)


async def test_a_ring_from_another_process_wakes_everyone_whatever_they_hear(
    database: str,
) -> None:
    async with Notifier(database) as here, Notifier(database) as elsewhere:
        with elsewhere.listener(kinds=ABOUT_ORDERS) as other:
            await settled(other)
            here.notify(1, ABOUT_JOBS)
            assert await is_rung(other)


async def test_who_begins_to_listen_again_wakes_everyone_whatever_they_hear(database: str) -> None:
    # Nobody knows what was announced meanwhile.
    async with Notifier(database) as notifier:
        with notifier.listener(kinds=ABOUT_ORDERS) as wake:
            await settled(wake)
            rows(database, END_LISTENERS)
            assert await is_rung(wake, RECONNECT_SECONDS + 3 * HEARD_SECONDS)


async def test_a_patient_one_is_rung_for_all_that_came_meanwhile_together() -> None:
    wake = Listener(delay_seconds=0.05)
    for _ in range(100):
        wake.wake()
    assert await is_rung(wake)
    assert not await is_rung(wake)
