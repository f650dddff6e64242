"""Claims of jobs in the database: order, limits, unique keys, and exactly one claim a job."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import Raw

from daybook.domain.errors import ClaimLostError, Refusal
from daybook.domain.jobs.create import RESTARTED_BECAUSE, FollowUp
from daybook.domain.jobs.job import Job, JobStatus, NewJob, OnDead, UniqueScope
from daybook.domain.jobs.manage import CancelJob, ConfigureQueue, RetryJob
from daybook.domain.jobs.queue import Limits, Rate
from daybook.domain.jobs.work import FinishJobs, JobSelector, Outcome
from daybook.eventlog.postgres.connections import connect, reader_conninfo
from daybook.projections.jobs.claim_sql import find_ready
from daybook.projections.jobs.job_columns import COLUMNS
from daybook.projections.jobs.jobs import JOBS
from tests.support.committer import fold_of_the_log, live_rows, rows
from tests.support.jobs import Workshop, new_job, open_workshop, raw

pytestmark = pytest.mark.anyio


def numbers(jobs: list[Job]) -> list[int]:
    return [job.number for job in jobs]


def test_every_column_becomes_the_field_of_its_name() -> None:
    # `load` is positional.
    known = {"payload": b"{}", "status": "PENDING", "unique_scope": "forever"}
    converted = {"payload": Raw(b"{}"), "tags": ("tags",)}
    columns = [name.strip() for name in COLUMNS.split(",")]
    job = JOBS.load(tuple(known.get(name, name) for name in columns))
    assert job.claim is not None
    claim = {"claim_id": "id", "worker": "worker", "started_at": "started_at",
             "lease_until": "until"}  # fmt: skip
    for name in columns:
        found = getattr(job.claim, claim[name]) if name in claim else getattr(job, name)
        assert found == converted.get(name, known.get(name, name)), name


async def test_the_most_urgent_come_first_and_then_by_number(database: str) -> None:
    # S1-02, S3-16, D-60: 1 is the most urgent, 10 the least.
    async with open_workshop(database) as workshop:
        await workshop.enqueue(*(new_job(priority=priority) for priority in (5, 1, 10, 5, 1)))
        assert numbers(await workshop.claim(5)) == [2, 5, 1, 4, 3]


async def test_a_worker_gets_only_jobs_of_its_types(database: str) -> None:
    # S4-22, D-68
    async with open_workshop(database) as workshop:
        await workshop.job(type_="unknown")
        await workshop.job(type_="send")
        await workshop.job(queue="other", type_="send")
        known = await workshop.claim(5, types=("send",))
        assert [(job.type, job.queue) for job in known] == [("send", "email")]
        everything = await workshop.claim(5, queues=("email", "other"))
        assert {(job.type, job.queue) for job in everything} == {
            ("unknown", "email"),
            ("send", "other"),
        }


async def test_a_scheduled_job_is_not_claimed_before_its_time(database: str) -> None:
    async with open_workshop(database) as workshop:
        soon = datetime.now(UTC) + timedelta(seconds=0.3)
        await workshop.job(run_at=soon)
        assert await workshop.claim() == []
        await asyncio.sleep(0.35)
        assert len(await workshop.claim()) == 1


@pytest.mark.parametrize("types", [None, ("send",), ("send", "print")])
async def test_a_job_whose_time_has_come_has_its_priority(
    database: str, types: tuple[str, ...] | None
) -> None:
    # S1-02: also in the claim of one source, which the database does not sort.
    ago = datetime.now(UTC) - timedelta(minutes=1)
    async with open_workshop(database) as workshop:
        await workshop.enqueue(
            new_job(priority=5),
            new_job(priority=5, subject="s"),
            new_job(priority=1, run_at=ago),
            new_job(priority=7, run_at=ago),
            new_job(priority=4, subject="s"),
        )
        assert numbers(await workshop.claim(1, types=types)) == [3]
        assert numbers(await workshop.claim(9, types=types)) == [5, 1, 2, 4]


async def test_a_failed_job_backs_off_and_is_retried(database: str) -> None:
    async with open_workshop(database) as workshop:
        await workshop.job()
        (job,) = await workshop.claim()
        await workshop.finish(job, Outcome.RETRY, error="boom", retry_delay_seconds=0.2)
        assert await workshop.claim() == []
        await asyncio.sleep(0.25)
        ((again),) = await workshop.claim()
        assert (again.attempts, again.failures, again.error) == (2, 1, "boom")


async def test_a_thousand_jobs_are_claimed_once_each_by_ten_workers(database: str) -> None:
    # S1-01, S1-15, S1-20, S4-17, S4-19
    async with open_workshop(database) as one, open_workshop(database) as other:
        await one.jobs(1000)
        got: list[Job] = []

        async def work(workshop: Workshop) -> None:
            while claimed := await workshop.claim(7):
                got.extend(claimed)
                await asyncio.sleep(0)

        await asyncio.gather(*(work(workshop) for workshop in (one, other) * 5))
        assert sorted(numbers(got)) == list(range(1, 1001))
    assert live_rows(database) == fold_of_the_log(database)


async def test_two_results_for_one_claim_count_once(database: str) -> None:
    # BAD_INPUT: two results for one claim
    async with open_workshop(database) as workshop:
        await workshop.job()
        (job,) = await workshop.claim()
        twice = FinishJobs(results=[workshop.result(job), workshop.result(job)], jitter=0)
        first, second = (await workshop.submit(twice)).result
        assert first.answer.status is JobStatus.COMPLETED
        assert isinstance(second.answer, ClaimLostError)
    assert rows(database, "SELECT count(*) FROM log WHERE topic = 'job.completed'") == [(1,)]


async def test_a_refused_result_does_not_affect_the_others(database: str) -> None:
    async with open_workshop(database) as workshop:
        await workshop.jobs(2)
        lost, claimed = await workshop.claim(2)
        await workshop.submit(CancelJob(lost.id))
        both = FinishJobs(results=[workshop.result(lost), workshop.result(claimed)], jitter=0)
        answers: list[Any] = (await workshop.submit(both)).result
        assert isinstance(answers[0].answer, Refusal)
        assert answers[1].answer.status is JobStatus.COMPLETED


async def test_follow_ups_are_created_with_the_completion_and_once(database: str) -> None:
    # S4-12, I-28
    async with open_workshop(database) as workshop:
        await workshop.job(type_="issue_invoice")
        (job,) = await workshop.claim()
        then = (FollowUp(type="send_invoice_ready", payload=raw('{"n":1}')),)
        await workshop.finish(job, then=then)
        with pytest.raises(ClaimLostError):
            await workshop.finish(job, then=then)
        ((follow_up),) = await workshop.claim(5)
        assert (follow_up.type, follow_up.queue) == ("send_invoice_ready", "email")
        assert bytes(follow_up.payload) == b'{"n":1}'


async def test_a_unique_key_creates_one_job_for_ever(database: str) -> None:
    # S4-05, S4-10, D-62: neither a running nor a completed job is created again.
    async with open_workshop(database) as one, open_workshop(database) as other:
        made = await asyncio.gather(
            *(w.enqueue(new_job(unique_key="booking 7")) for w in (one, other) * 10)
        )
        assert sum(enqueued.is_new for (enqueued,) in made) == 1
        assert len({enqueued.job.id for (enqueued,) in made}) == 1
        (job,) = await one.claim(5)
        ((again),) = await one.enqueue(new_job(unique_key="booking 7"))
        assert (again.is_new, again.job.status) == (False, JobStatus.PROCESSING)
        await one.finish(job)
        ((again),) = await one.enqueue(new_job(unique_key="booking 7"))
        assert (again.is_new, again.job.status) == (False, JobStatus.COMPLETED)
        ((other_type),) = await one.enqueue(new_job(type_="other", unique_key="booking 7"))
        assert other_type.is_new


async def test_a_key_that_is_unique_while_unfinished_begins_a_new_life_afterwards(
    database: str,
) -> None:
    scope = UniqueScope.UNFINISHED
    async with open_workshop(database) as workshop:
        first = await workshop.job(unique_key="k", unique_scope=scope, payload=raw("1"))
        ((same),) = await workshop.enqueue(new_job(unique_key="k", unique_scope=scope))
        assert not same.is_new
        (job,) = await workshop.claim()
        await workshop.finish(job)
        second = await workshop.job(unique_key="k", unique_scope=scope, payload=raw("2"))
        assert (second.id, second.life, bytes(second.payload)) == (first.id, 2, b"2")
    assert live_rows(database) == fold_of_the_log(database)


@pytest.mark.parametrize("scope", UniqueScope)
async def test_a_dead_job_stays_dead_when_its_key_is_used_again(
    database: str, scope: UniqueScope
) -> None:
    # D-62
    async with open_workshop(database) as workshop:
        await workshop.job(unique_key="k", unique_scope=scope)
        ((job),) = await workshop.claim()
        dead = await workshop.finish(job, Outcome.FAIL, error="broken")
        ((again),) = await workshop.enqueue(new_job(unique_key="k", unique_scope=scope))
        assert (again.is_new, again.job) == (False, dead)
        assert await workshop.claim() == []


@pytest.mark.parametrize("partition", [None, "lane"])
async def test_a_dead_job_is_restarted_on_request(database: str, partition: str | None) -> None:
    # S4-05, D-62, I-22, I-26
    def again() -> NewJob:
        return new_job(
            unique_key="k", on_dead=OnDead.RESTART, payload=raw("2"), partition=partition
        )

    async with open_workshop(database) as workshop:
        first = await workshop.job(unique_key="k", payload=raw("1"), partition=partition)
        ((pending),) = await workshop.enqueue(again())
        assert pending.job == first
        ((job),) = await workshop.claim()
        await workshop.finish(job, Outcome.FAIL, error="broken")
        created = await workshop.enqueue(again(), again())
        assert {(one.is_new, one.job.status, one.job.life) for one in created} == {
            (False, JobStatus.PENDING, 2)
        }
        ((second),) = await workshop.claim(5)
        assert (second.id, second.life, second.attempts) == (first.id, 2, 1)
        assert bytes(second.payload) == b"1"
        await workshop.finish(second)
        ((done),) = await workshop.enqueue(again())
        assert done.job.status is JobStatus.COMPLETED
    reasons = rows(database, "SELECT data ->> 'because' FROM log WHERE topic = 'job.requeued'")
    assert reasons == [(RESTARTED_BECAUSE,)]
    assert live_rows(database) == fold_of_the_log(database)


async def test_a_restart_that_races_the_end_of_the_old_life_keeps_the_new_payload(
    database: str,
) -> None:
    scope = UniqueScope.UNFINISHED
    async with open_workshop(database) as workshop:
        await workshop.job(unique_key="k", unique_scope=scope, payload=raw("1"))
        ((job),) = await workshop.claim()
        again = new_job(unique_key="k", unique_scope=scope, payload=raw("2"), priority=1)
        # Submitted together, both are in one batch.
        await asyncio.gather(workshop.finish(job), workshop.enqueue(again))
        ((second),) = await workshop.claim()
    assert (bytes(second.payload), second.priority, second.life) == (b"2", 1, 2)
    assert live_rows(database) == fold_of_the_log(database)


async def test_a_retried_cancelled_job_is_live_again(database: str) -> None:
    async with open_workshop(database) as workshop:
        job = await workshop.job(payload=raw('"kept"'))
        await workshop.submit(CancelJob(job.id))
        assert await workshop.claim() == []
        await workshop.submit(RetryJob(job.id))
        ((again),) = await workshop.claim()
        assert (again.id, bytes(again.payload), again.life) == (job.id, b'"kept"', 2)


async def test_a_paused_queue_gives_nothing_until_it_is_resumed(database: str) -> None:
    async with open_workshop(database) as workshop:
        await workshop.jobs(2)
        await workshop.submit(ConfigureQueue(name="email", paused=True))
        assert await workshop.claim() == []
        await workshop.submit(ConfigureQueue(name="email", paused=False))
        assert len(await workshop.claim()) == 1


async def test_no_worker_is_woken_for_a_paused_or_full_queue(database: str) -> None:
    wanted = [JobSelector(("email",)), JobSelector(("email",), ("send",), "lane")]
    async with open_workshop(database) as workshop:
        await workshop.enqueue(new_job(), new_job(partition="lane"))
        settings: list[tuple[dict[str, Any], int]] = [
            ({"paused": False}, 2),
            ({"paused": True}, 0),
            ({"paused": False, "concurrency": 1}, 1),
        ]
        for limits, count in settings:
            await workshop.submit(ConfigureQueue(name="email", **limits))
            async with await connect(reader_conninfo(database)) as reader:
                found = await find_ready(reader, wanted)
            assert sum(one.count for one in found if one.partition is None) == count, limits
            assert sum(one.count for one in found if one.partition) == min(count, 1), limits


async def test_no_more_run_at_once_than_the_queue_allows(database: str) -> None:
    async with open_workshop(database) as one, open_workshop(database) as other:
        await one.submit(ConfigureQueue(name="email", concurrency=3))
        await one.jobs(20)
        got = await asyncio.gather(*(workshop.claim(2) for workshop in (one, other) * 5))
        running = [job for jobs in got for job in jobs]
        assert len(running) == 3
        await one.finish(running[0])
        assert len(await other.claim(5)) == 1


async def test_no_more_of_one_subject_run_at_once_than_allowed(database: str) -> None:
    async with open_workshop(database) as workshop:
        await workshop.submit(ConfigureQueue(name="email", per_subject=Limits(concurrency=1)))
        for subject in ("a", "a", "b", None, None):
            await workshop.job(subject=subject)
        first = await workshop.claim(10)
        assert sorted(str(job.subject) for job in first) == ["None", "None", "a", "b"]
        assert await workshop.claim(10) == []
        await workshop.finish(next(job for job in first if job.subject == "a"))
        assert [job.subject for job in await workshop.claim(10)] == ["a"]


async def test_a_rate_lets_a_burst_through_and_then_one_after_another(database: str) -> None:
    async with open_workshop(database) as workshop:
        await workshop.submit(ConfigureQueue(name="email", rate=Rate(5, 1.0)))
        await workshop.jobs(20)
        assert len(await workshop.claim(20)) == 5
        assert await workshop.claim(20) == []
        await asyncio.sleep(0.45)
        assert len(await workshop.claim(20)) == 2


async def test_a_removed_limit_no_longer_applies(database: str) -> None:
    async with open_workshop(database) as workshop:
        await workshop.submit(ConfigureQueue(name="email", concurrency=1, rate=Rate(1, 60)))
        await workshop.jobs(5)
        assert len(await workshop.claim(5)) == 1
        await workshop.submit(ConfigureQueue(name="email", concurrency=None, rate=None))
        assert len(await workshop.claim(5)) == 4


async def test_workers_with_different_selectors_in_one_batch_do_not_starve_each_other(
    database: str,
) -> None:
    async with open_workshop(database) as workshop:
        await workshop.enqueue(*(new_job(type_=t) for t in ("a", "a", "b", "b")))
        claims = [workshop.claim(2, types=types) for types in (("a", "b"), ("a",), ("b",))]
        got = await asyncio.gather(*claims)
        assert sum(map(len, got)) == 4
