"""`finished_jobs` is what the log says has finished, whatever batches it came in."""

from typing import Any

import pytest

from domain.foreman import CancelJob, RetryJob
from domain.job import Job, UniqueScope
from domain.workshop import Outcome
from eventlog.database import connect, reader_conninfo
from eventlog.follower import READ_EVENTS, Follower
from projections import finished_jobs
from projections.finished_jobs import FinishedJobs
from projections.job_labels import RecentLabels
from projections.registry import READ_MODELS
from tests.kitchen import MAPPER, rows
from tests.workshop import Workshop, open_workshop

pytestmark = pytest.mark.anyio

READ_LOG = "SELECT originator_id, topic, state FROM stored_events ORDER BY notification_id"
READ_FINISHED = "SELECT id, number, status, queue, type, subject FROM finished_jobs ORDER BY number"


def stored(conninfo: str) -> list[Any]:
    return rows(conninfo, READ_FINISHED)


def folded(conninfo: str) -> list[Any]:
    """The same, from the log alone."""
    jobs: dict[Any, Job] = {}
    for job_id, topic, state in rows(conninfo, READ_LOG):
        decider = MAPPER.decider_of(topic)
        jobs[job_id] = decider.evolve(jobs.get(job_id), MAPPER.decode(topic, state))
    over = sorted((job for job in jobs.values() if job.is_over), key=lambda job: job.number)
    return [(job.id, job.number, job.status, job.queue, job.type, job.subject) for job in over]


def numbers(conninfo: str) -> list[int]:
    return [row[1] for row in stored(conninfo)]


# That of the process in which the jobs are finished, and that of another, which must ask the log.
HERE = next(model for model in READ_MODELS if isinstance(model, FinishedJobs))
ELSEWHERE = FinishedJobs()


async def follow(conninfo: str, batch_max: int = 2000, model: FinishedJobs = ELSEWHERE) -> None:
    follower = Follower(conninfo, model, MAPPER, batch_max=batch_max)
    await follower.catch_up()
    await follower.close()


async def do_all(workshop: Workshop) -> None:
    for job in await workshop.claim(100):
        await workshop.finish(job)


async def test_what_is_completed_or_cancelled_is_there_and_nothing_else(database: str) -> None:
    async with open_workshop(database) as workshop:
        done = await workshop.job(subject="booking-1")
        await do_all(workshop)
        cancelled = await workshop.job("invoices", "issue")
        await workshop.submit(CancelJob(cancelled.id))
        await workshop.job()
        (dead,) = await workshop.claim()
        await workshop.finish(dead, Outcome.FAIL, error="no")
        await workshop.job()
    await follow(database)

    assert stored(database) == [
        (done.id, 1, "COMPLETED", "email", "send", "booking-1"),
        (cancelled.id, 2, "CANCELLED", "invoices", "issue", None),
    ]


@pytest.mark.parametrize("is_followed", [False, True])
async def test_a_cancelled_job_that_is_retried_leaves_and_comes_back(
    database: str, is_followed: bool
) -> None:
    async with open_workshop(database) as workshop:
        job = await workshop.job()
        await workshop.submit(CancelJob(job.id))
        if is_followed:
            await follow(database)
            assert numbers(database) == [1]
        await workshop.submit(RetryJob(job.id))
        await follow(database)
        assert numbers(database) == []
        await do_all(workshop)
    await follow(database)

    assert [row[2] for row in stored(database)] == ["COMPLETED"]


@pytest.mark.parametrize("is_followed", [False, True])
async def test_a_job_whose_key_is_used_again_leaves_and_comes_back_under_its_new_number(
    database: str, is_followed: bool
) -> None:
    keyed = {"unique_key": "nightly", "unique_scope": UniqueScope.UNFINISHED}
    async with open_workshop(database) as workshop:
        await workshop.job(**keyed)
        await do_all(workshop)
        if is_followed:
            await follow(database)
            assert numbers(database) == [1]
        await workshop.job(subject="tonight", **keyed)
        await follow(database)
        assert numbers(database) == []
        await do_all(workshop)
    await follow(database)

    assert numbers(database) == [2]
    assert stored(database) == folded(database)


@pytest.mark.parametrize("batch_max", [1, 2, 3, 7, 2000])
@pytest.mark.parametrize("model", [HERE, ELSEWHERE], ids=["here", "elsewhere"])
async def test_built_from_zero_it_equals_the_fold_of_the_log_in_batches_of_any_size(
    database: str, batch_max: int, model: FinishedJobs
) -> None:
    keyed = {"unique_key": "k", "unique_scope": UniqueScope.UNFINISHED}
    async with open_workshop(database) as workshop:
        for _ in range(3):
            await workshop.job(**keyed)
            await workshop.jobs(2)
            await do_all(workshop)
        cancelled = await workshop.jobs(4)
        for job in cancelled:
            await workshop.submit(CancelJob(job.id))
        for job in cancelled[:2]:
            await workshop.submit(RetryJob(job.id))
        await workshop.submit(CancelJob(cancelled[0].id))
        await workshop.job(**keyed)
    await follow(database, batch_max, model)

    assert stored(database) == folded(database)
    assert len(stored(database)) == 9


async def test_what_this_process_has_finished_is_not_asked_of_the_log(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finished_jobs, "read_labels", None)
    async with open_workshop(database) as workshop:
        await workshop.jobs(5, subject="booking-1")
        await do_all(workshop)
    await follow(database, 5, HERE)
    assert stored(database) == folded(database)
    assert len(stored(database)) == 5


async def test_what_is_known_of_an_earlier_life_is_not_taken_for_a_later_one(
    database: str,
) -> None:
    keyed = {"unique_key": "k", "unique_scope": UniqueScope.UNFINISHED}
    async with open_workshop(database) as workshop:
        job = await workshop.job(**keyed, subject="the first")
        await do_all(workshop)
        await workshop.job(**keyed, subject="the second")
        await do_all(workshop)
    # As if another process had finished it the second time.
    assert HERE.recent.take(job.id, 6) is not None
    await follow(database, model=HERE)

    assert stored(database) == folded(database)
    assert [row[5] for row in stored(database)] == ["the second"]


async def test_labels_that_nobody_asks_for_are_forgotten_the_oldest_first(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RecentLabels, "COUNT_MAX", 10)
    async with open_workshop(database) as workshop:
        jobs = await workshop.jobs(12)
        await do_all(workshop)
    recent = HERE.recent
    labels = [recent.take(job.id, 3) for job in jobs]
    assert labels[0] is None
    assert labels[-1] is not None
    assert sum(label is not None for label in labels) <= 10


async def test_it_never_knows_more_than_the_events_it_was_given(database: str) -> None:
    """Else a list that reads it together with its cursor would be wrong."""
    keyed = {"unique_key": "k", "unique_scope": UniqueScope.UNFINISHED}
    async with open_workshop(database) as workshop:
        await workshop.job(**keyed)
        await do_all(workshop)
        await workshop.job(**keyed)
    async with await connect(reader_conninfo(database)) as connection:
        everything = {"after": 0, "horizon": 100, "limit": 100}
        found = await (await connection.execute(READ_EVENTS, everything)).fetchall()
        events = MAPPER.followed(found)
        completed = [event for event in events if isinstance(event.event, Job.Completed)]
        await FinishedJobs().apply(connection, completed)

    assert numbers(database) == [1]
