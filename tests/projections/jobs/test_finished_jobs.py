"""`finished_jobs` equals the fold of the log, written with the events or replayed in batches."""

from importlib.resources import files
from operator import attrgetter
from typing import Any

import psycopg
import pytest

from daybook.domain.command import AllOrNothing, Command
from daybook.domain.jobs.create import CreateJobs
from daybook.domain.jobs.job import Job, UniqueScope
from daybook.domain.jobs.manage import CancelJob, RetryJob
from daybook.domain.jobs.work import Outcome
from daybook.eventlog.postgres.connections import connect, owner_conninfo, reader_conninfo
from daybook.eventlog.reading.follower import READ_EVENTS_OF_TOPICS
from daybook.projections import migrations, transactional_enqueue
from daybook.projections.jobs.finished_jobs import FinishedJobs
from tests.support.committer import MAPPER, origin, rows
from tests.support.jobs import Workshop, new_job, open_workshop

pytestmark = pytest.mark.anyio

READ_LOG = "SELECT originator_id, topic, state FROM stored_events ORDER BY notification_id"
READ_FINISHED = """
SELECT id, number, status, queue, type, subject, tags FROM finished_jobs ORDER BY number
"""
EMPTY = "DELETE FROM finished_jobs"
KEYED = {"unique_key": "k", "unique_scope": UniqueScope.UNFINISHED}


def stored(conninfo: str) -> list[Any]:
    return rows(conninfo, READ_FINISHED)


def folded(conninfo: str) -> list[Any]:
    """The expected rows, from the log alone."""
    jobs: dict[Any, Job] = {}
    for job_id, topic, state in rows(conninfo, READ_LOG):
        decider = MAPPER.decider_of(topic)
        jobs[job_id] = decider.evolve(jobs.get(job_id), MAPPER.decode(topic, state))
    over = sorted((job for job in jobs.values() if job.is_over), key=lambda job: job.number)
    columns = attrgetter("id", "number", "status", "queue", "type", "subject")
    return [(*columns(job), ",".join(job.tags) or None) for job in over]


def numbers(conninfo: str) -> list[int]:
    assert stored(conninfo) == folded(conninfo)
    return [row[1] for row in stored(conninfo)]


async def derive(conninfo: str, batch_max: int, *, upto: int = 2**40, again: int = 0) -> None:
    """Replays the log, delivering the last events of every batch twice."""
    model = FinishedJobs()
    async with await connect(reader_conninfo(conninfo)) as connection:
        after = 0
        wanted = {
            "horizon": upto,
            "limit": batch_max,
            "topics": MAPPER.topics_of(model.kinds or ()),
        }
        while True:
            found = await connection.execute(READ_EVENTS_OF_TOPICS, {**wanted, "after": after})
            events = MAPPER.followed_events(await found.fetchall())
            if not events:
                return
            await model.apply(connection, events)
            if again:
                await model.apply(connection, events[-again:])
            after = events[-1].position


async def do_all(workshop: Workshop) -> None:
    for job in await workshop.claim(100):
        await workshop.finish(job)


async def test_only_completed_and_cancelled_jobs_are_listed(database: str) -> None:
    async with open_workshop(database) as workshop:
        done = await workshop.job(subject="booking-1", tags=("vip", "eu"))
        await do_all(workshop)
        cancelled = await workshop.job("invoices", "issue")
        await workshop.submit(CancelJob(cancelled.id))
        await workshop.job()
        (dead,) = await workshop.claim()
        await workshop.finish(dead, Outcome.FAIL, error="no")
        await workshop.job()

    assert stored(database) == [
        (done.id, 1, "COMPLETED", "email", "send", "booking-1", "vip,eu"),
        (cancelled.id, 2, "CANCELLED", "invoices", "issue", None, None),
    ]


async def test_a_retried_job_leaves_the_table_until_it_finishes_again(database: str) -> None:
    async with open_workshop(database) as workshop:
        job = await workshop.job()
        await workshop.submit(CancelJob(job.id))
        assert numbers(database) == [1]
        await workshop.submit(RetryJob(job.id))
        assert numbers(database) == []
        await do_all(workshop)

    assert numbers(database) == [1]
    assert [row[2] for row in stored(database)] == ["COMPLETED"]


async def test_a_job_with_a_reused_key_returns_under_its_new_number(
    database: str,
) -> None:
    async with open_workshop(database) as workshop:
        await workshop.job(**KEYED, subject="today")
        await do_all(workshop)
        assert numbers(database) == [1]
        await workshop.job(**KEYED, subject="tonight")
        assert numbers(database) == []
        await do_all(workshop)

    assert numbers(database) == [2]
    assert [row[5] for row in stored(database)] == ["tonight"]


async def test_a_key_reused_in_the_callers_transaction_removes_the_row_at_commit(
    database: str,
) -> None:
    async with open_workshop(database) as workshop:
        await workshop.job(**KEYED)
        await do_all(workshop)
    with psycopg.connect(owner_conninfo(database)) as theirs:
        transactional_enqueue.enqueue(theirs, [new_job(**KEYED)], origin())
        assert numbers(database) == [1]
        theirs.commit()

    assert numbers(database) == []


async def test_a_job_created_and_finished_in_one_batch_has_one_row(database: str) -> None:
    async with open_workshop(database, writers=1) as workshop:
        new = new_job()
        await workshop.job(**KEYED)
        (keyed,) = await workshop.claim()
        commands: list[Command[Any]] = [
            CreateJobs([new]),
            CancelJob(new.job_id),
            RetryJob(new.job_id),
            CancelJob(new.job_id),
            CancelJob(keyed.id),
            CreateJobs([new_job(**KEYED)]),
        ]
        await workshop.submit(AllOrNothing(commands))

    assert numbers(database) == [2]


async def a_bit_of_everything(workshop: Workshop) -> None:
    for day in range(3):
        await workshop.job(**KEYED, tags=(f"day-{day}", "keyed"))
        await workshop.jobs(2)
        await do_all(workshop)
    cancelled = await workshop.jobs(4)
    for job in cancelled:
        await workshop.submit(CancelJob(job.id))
    for job in cancelled[:2]:
        await workshop.submit(RetryJob(job.id))
    await workshop.submit(CancelJob(cancelled[0].id))
    await workshop.job(**KEYED)


@pytest.mark.parametrize("again", [0, 2])
@pytest.mark.parametrize("batch_max", [1, 2, 3, 7, 2000])
async def test_a_rebuild_equals_the_fold_of_the_log_with_any_batch_size(
    database: str, batch_max: int, again: int
) -> None:
    async with open_workshop(database) as workshop:
        await a_bit_of_everything(workshop)
    rows(database, EMPTY)
    await derive(database, batch_max, again=again)

    assert len(numbers(database)) == 9


async def test_it_never_knows_more_than_the_events_it_was_given(database: str) -> None:
    """A comparison at a position would fail otherwise."""
    async with open_workshop(database) as workshop:
        await workshop.job(**KEYED)
        await do_all(workshop)
        await workshop.job(**KEYED)
    rows(database, EMPTY)
    async with await connect(reader_conninfo(database)) as connection:
        everything = {"after": 0, "horizon": 100, "limit": 100, "topics": ["job.completed"]}
        found = await (await connection.execute(READ_EVENTS_OF_TOPICS, everything)).fetchall()
        await FinishedJobs().apply(connection, MAPPER.followed_events(found))

    assert [row[1] for row in stored(database)] == [1]


@pytest.mark.parametrize("followed", [0, 3, 10, 20, 1000])
async def test_a_migration_adds_the_rows_that_the_older_version_had_not_followed(
    database: str, followed: int
) -> None:
    async with open_workshop(database) as workshop:
        await a_bit_of_everything(workshop)
    rows(database, EMPTY)
    upto = (
        f"DELETE FROM followers; INSERT INTO followers VALUES ('finished_jobs', {followed}, 0, '')"
    )
    with psycopg.connect(owner_conninfo(database), autocommit=True) as owner:
        owner.execute(upto.encode())
    await derive(database, 1000, upto=followed)
    migration = files(migrations).joinpath("0028_finished_jobs_in_transaction.sql").read_text()
    making_up, _, _ = migration.partition("-- For statements")
    with psycopg.connect(owner_conninfo(database)) as owner:
        owner.execute(making_up.encode())

    assert len(numbers(database)) == 9
    assert rows(database, "SELECT name FROM followers WHERE name = 'finished_jobs'") == []
