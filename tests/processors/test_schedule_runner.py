"""Schedules fire on time and once, and after a downtime as configured."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from daybook.api.runtime.service import Service
from daybook.domain.schedules.commands import RUNS_MAX, PutSchedule
from daybook.domain.schedules.schedule import MissedRuns
from daybook.processors.schedule_runner import CronRunner
from tests.support.committer import (
    Submitter,
    eventually,
    fold_of_the_log,
    live_rows,
    open_submitter,
    rows,
)
from tests.support.running.service_process import ServiceProcess
from tests.support.schedules import NAME, Backdate, plan

# How late each slot was fired, in seconds.
READ_LATENESS = """
SELECT extract(epoch FROM recorded_at - (data ->> 'slot_at')::timestamptz)::float8
FROM log WHERE topic = 'schedule.fired' ORDER BY position
"""
COUNT_JOBS = "SELECT count(*) FROM jobs"


def service(database: str) -> Service:
    return Service(database, read_models=(), processors=(CronRunner(),))


def slots(database: str) -> list[datetime]:
    query = "SELECT (data ->> 'slot_at')::timestamptz FROM log WHERE topic = 'schedule.fired'"
    return [row[0] for row in rows(database, f"{query} ORDER BY position")]


async def back_from_downtime(database: str, seconds: float, **changes: Any) -> datetime:
    """A schedule of every minute that no process has run for this long."""
    now = datetime.now(UTC)
    due_at = now.replace(second=0, microsecond=0) - timedelta(seconds=seconds)
    async with open_submitter(database) as submitter:
        await submitter.submit(Backdate(due_at, cron="* * * * *", **changes))
    return due_at


@pytest.mark.anyio
async def test_a_slot_is_fired_when_it_is_due_and_not_before(database: str) -> None:
    due_at = datetime.now(UTC) + timedelta(seconds=1.5)
    async with service(database) as running:
        submitter = Submitter(running.committer)
        await submitter.submit(Backdate(due_at, cron="0 0 1 1 *"))
        await submitter.submit(PutSchedule(name="paused", plan=plan(cron="* * * * *"), paused=True))
        await eventually(lambda: slots(database) == [due_at])

    ((late_seconds,),) = rows(database, READ_LATENESS)
    assert 0 <= late_seconds < 1
    assert live_rows(database) == fold_of_the_log(database)


@pytest.mark.anyio
async def test_all_missed_runs_are_made_up_for_in_batches(database: str) -> None:
    minutes = RUNS_MAX + 20
    due_at = await back_from_downtime(database, minutes * 60, missed_runs=MissedRuns.ALL)
    async with service(database):
        await eventually(lambda: len(slots(database)) > minutes)

    fired = slots(database)
    assert fired[: minutes + 1] == [due_at + timedelta(minutes=n) for n in range(minutes + 1)]
    assert rows(database, COUNT_JOBS) == [(len(fired),)]
    assert live_rows(database) == fold_of_the_log(database)


@pytest.mark.anyio
@pytest.mark.parametrize("policy", [MissedRuns.ONCE, MissedRuns.SKIP])
async def test_missed_runs_are_skipped_unless_the_schedule_asks_for_all(
    database: str, policy: MissedRuns
) -> None:
    due_at = await back_from_downtime(database, 3600, missed_runs=policy)
    async with service(database):
        await eventually(lambda: len(slots(database)) > 0)

    # The last minute is only late; of the hour before it nothing is run.
    assert all(slot >= due_at + timedelta(minutes=60) for slot in slots(database))
    ((since,),) = rows(
        database, "SELECT (data ->> 'since')::timestamptz FROM log WHERE topic = 'schedule.missed'"
    )
    assert since == due_at


@pytest.mark.anyio
async def test_of_several_processes_one_fires(database: str) -> None:
    count = 30
    due_at = datetime.now(UTC) + timedelta(seconds=1)
    async with service(database) as one, service(database), service(database):
        submitter = Submitter(one.committer)
        for number in range(count):
            await submitter.submit(Backdate(due_at, str(number), cron="0 0 1 1 *"))
        await eventually(lambda: len(slots(database)) >= count)
        await asyncio.sleep(2.5)  # Those who stand by have had their look too.

    assert len(slots(database)) == count
    assert rows(database, COUNT_JOBS) == [(count,)]


@pytest.mark.anyio
async def test_one_that_cannot_be_fired_stops_no_other(database: str) -> None:
    due_at = datetime.now(UTC)
    async with open_submitter(database) as submitter:
        await submitter.submit(Backdate(due_at, "a", cron="0 0 1 1 *"))
        await submitter.submit(Backdate(due_at, "b", cron="0 0 1 1 *"))
    # Its job is already in the log; only an operator can cause that.
    async with service(database):
        await eventually(lambda: len(slots(database)) == 2)
        rows(database, "UPDATE schedules SET next_run_at = %(due)s", {"due": due_at})
        async with open_submitter(database) as submitter:
            await submitter.submit(Backdate(datetime.now(UTC), "c", cron="0 0 1 1 *"))
        await eventually(lambda: len(slots(database)) == 3)


@pytest.mark.slow
def test_two_servers_fire_every_minute_once_and_in_time(database: str) -> None:
    # S4-13
    job = {"queue": "reports", "type": "report"}
    with (
        ServiceProcess(database, delay_seconds=1) as one,
        ServiceProcess(database, delay_seconds=1) as other,
    ):
        for server in (one, other):
            body = {"name": NAME, "cron": "* * * * *", "job": job}
            assert server.send("POST", "/api/schedules", body).status_code in (200, 201)
        wait_for_slots(database, 1)
        one.kill()
        wait_for_slots(database, 2)

    fired = slots(database)
    assert fired == sorted(set(fired))
    assert fired[1] - fired[0] == timedelta(minutes=1)
    assert all(0 <= seconds < 1 for (seconds,) in rows(database, READ_LATENESS))
    assert rows(database, COUNT_JOBS) == [(len(fired),)]


def wait_for_slots(database: str, count: int) -> None:
    asyncio.run(eventually(lambda: len(slots(database)) >= count, seconds=75))
