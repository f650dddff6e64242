"""Schedules in the database: each slot creates one job, however many services fire it."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from uuid_utils.compat import uuid7

from daybook.domain.errors import ScheduleNotDueError
from daybook.domain.jobs.job import Job
from daybook.domain.schedules.commands import (
    ChangeSchedule,
    DeleteSchedule,
    FireSchedule,
    PutSchedule,
)
from daybook.domain.schedules.schedule import MissedRuns, Schedule, run_id, schedule_id
from daybook.eventlog.origin import Receipt
from tests.support.committer import fold_of_the_log, live_rows, open_submitter, rows
from tests.support.schedules import NAME, PLAN, Backdate, plan

pytestmark = pytest.mark.anyio


def minutes_ago(minutes: float) -> datetime:
    return datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=minutes)


async def test_the_table_is_the_fold_of_the_log(database: str) -> None:
    async with open_submitter(database) as submitter:
        await submitter.submit(PutSchedule(name="one", plan=PLAN))
        await submitter.submit(PutSchedule(name="two", plan=PLAN, paused=True))
        await submitter.submit(Backdate(minutes_ago(2), "due", cron="* * * * *"))
        for command in (
            FireSchedule(name="due"),
            ChangeSchedule(name="one", paused=True, time_zone="UTC"),
            ChangeSchedule(name="two", paused=False, missed_runs=MissedRuns.ALL),
            PutSchedule(name="three", plan=PLAN),
            DeleteSchedule("three"),
            PutSchedule(name="four", plan=PLAN),
            DeleteSchedule("four"),
            PutSchedule(name="four", plan=PLAN),
        ):
            await submitter.submit(command)

            assert live_rows(database) == fold_of_the_log(database)
    live = [state for state in live_rows(database).values() if isinstance(state, Schedule)]
    assert {state.name for state in live} == {"due", "one", "two", "four"}


async def test_schedule_and_job_are_one_command(database: str) -> None:
    async with open_submitter(database) as submitter:
        due_at = minutes_ago(1)
        await submitter.submit(Backdate(due_at, missed_runs=MissedRuns.ALL, cron="* * * * *"))
        await submitter.submit(FireSchedule(name=NAME))

    events = rows(database, "SELECT topic, command_id FROM log ORDER BY position")
    assert [topic for topic, _ in events] == ["schedule.created", "schedule.fired", "job.created"]
    assert events[1][1] == events[2][1]
    assert run_id(schedule_id(NAME), due_at) in live_rows(database)


async def test_concurrent_firings_of_a_slot_create_one_job(database: str) -> None:
    async with (
        open_submitter(database, writers=2) as one,
        open_submitter(database, writers=2) as other,
    ):
        for number in range(20):
            due = Backdate(minutes_ago(60 + number), name=str(number), cron="0 0 1 1 *")
            await one.submit(due)
        fire = [FireSchedule(name=str(number)) for number in range(20)]
        outcomes = await asyncio.gather(
            *(submitter.submit(command) for command in fire for submitter in (one, other, one)),
            return_exceptions=True,
        )

    taken = [outcome for outcome in outcomes if isinstance(outcome, Receipt)]
    refused = [outcome for outcome in outcomes if isinstance(outcome, ScheduleNotDueError)]
    assert (len(taken), len(refused)) == (20, 40)
    jobs = [state for state in live_rows(database).values() if isinstance(state, Job)]
    assert len(jobs) == 20
    assert live_rows(database) == fold_of_the_log(database)


async def test_the_log_itself_refuses_a_second_job_of_a_slot(database: str) -> None:
    """Without the schedule's row, the primary key of the log still refuses the job's id."""
    due_at = minutes_ago(10)
    async with open_submitter(database) as submitter:
        await submitter.submit(Backdate(due_at, cron="0 0 1 1 *"))
        await submitter.submit(FireSchedule(name=NAME))
        rows(database, "UPDATE schedules SET next_run_at = %(due)s", {"due": due_at})
        with pytest.raises(Exception, match="already exists"):
            await submitter.submit(FireSchedule(name=NAME))

    assert rows(database, "SELECT count(*) FROM log WHERE topic = 'job.created'") == [(1,)]


async def test_payloads_are_stored_unchanged(database: str) -> None:
    job = plan().job
    async with open_submitter(database) as submitter:
        await submitter.submit(PutSchedule(name=str(uuid7()), plan=plan(job=job)))
    (state,) = live_rows(database).values()
    assert isinstance(state, Schedule)
    assert state.plan.job == job
