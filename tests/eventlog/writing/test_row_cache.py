"""The row cache saves reads, and no command decides from stale rows."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace
from uuid_utils.compat import uuid7

from daybook.domain.errors import ClaimLostError, NotFoundError
from daybook.domain.jobs.job import Job, JobStatus
from daybook.domain.jobs.manage import CancelJob
from daybook.domain.jobs.work import ExpireLease, FinishJobs, Outcome
from daybook.eventlog.postgres.connection_caches import drop_caches
from daybook.eventlog.postgres.connections import connect, owner_conninfo, reader_conninfo
from daybook.eventlog.writing.row_cache import RowCache
from daybook.projections.jobs.jobs import CACHED_PAYLOAD_BYTES_MAX, JOBS, CacheClaimedJobs
from tests.support.committer import rows
from tests.support.jobs import Workshop, open_workshop, raw

pytestmark = pytest.mark.anyio

READ_VERSIONS = """
SELECT originator_version, topic FROM stored_events
WHERE originator_id = %(id)s ORDER BY originator_version
"""
FORGET_CLAIM = """
SET session_replication_role = replica;
DELETE FROM stored_events WHERE topic = 'job.claimed';
UPDATE jobs SET version = 1, status = 'PENDING', claim_id = NULL, worker = NULL, attempts = 0,
                started_at = NULL, lease_until = NULL
"""


@contextmanager
def fail_on_row_reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setattr(JOBS, "lock", "SELECT 'rows must not be read' / 0")
        yield


def topics(conninfo: str, job: Job) -> list[str]:
    history = rows(conninfo, READ_VERSIONS, {"id": job.id})
    assert [version for version, _ in history] == [*range(1, len(history) + 1)]
    return [topic.removeprefix("job.") for _, topic in history]


async def claim_expires(workshop: Workshop, job: Job) -> None:
    assert job.claim is not None
    await asyncio.sleep(0.02)
    await workshop.submit(ExpireLease(job_id=job.id, claim_id=job.claim.id, jitter=0))


async def test_jobs_claimed_by_this_process_are_completed_without_reading_their_rows(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_workshop(database) as workshop:
        await workshop.jobs(6)
        claimed = await workshop.claim(6)
        outcomes = [*Outcome, Outcome.DONE]
        results = [
            workshop.result(job, outcome, until=job.created_at)
            for job, outcome in zip(claimed, outcomes, strict=True)
        ]
        with fail_on_row_reads(monkeypatch):
            receipt = await workshop.submit(FinishJobs(results=results, jitter=0))
            (first, *_) = receipt.result
            assert first.answer.status is JobStatus.COMPLETED

    expected = ["completed", "failed", "failed", "snoozed", "released", "completed"]
    assert [topics(database, job)[2] for job in claimed] == expected
    assert len(rows(database, "SELECT id FROM jobs")) == 4


async def test_a_claim_that_another_process_has_ended_is_lost(database: str) -> None:
    async with open_workshop(database) as one, open_workshop(database) as other:
        await one.job()
        (job,) = await one.claim(lease_seconds=0.01)
        await claim_expires(other, job)
        with pytest.raises(ClaimLostError):
            await one.finish(job)

    assert topics(database, job) == ["created", "claimed", "failed"]


async def test_a_claim_of_another_process_is_not_mistaken_for_a_lost_one(database: str) -> None:
    """A naive cache would refuse unknown claims without reading."""
    async with open_workshop(database) as one, open_workshop(database) as other:
        await one.job()
        (lost,) = await one.claim(lease_seconds=0.01)
        await claim_expires(other, lost)
        (job,) = await other.claim()
        done = await one.finish(job)
        assert done.status is JobStatus.COMPLETED

    assert topics(database, job) == ["created", "claimed", "failed", "claimed", "completed"]


async def test_one_job_of_many_that_another_process_has_ended_stops_no_other(database: str) -> None:
    async with open_workshop(database) as one, open_workshop(database) as other:
        await one.jobs(50)
        claimed = await one.claim(50)
        await other.finish(claimed[17])
        await other.submit(CancelJob(claimed[18].id))
        results = [one.result(job) for job in claimed]
        receipt = await one.submit(FinishJobs(results=results, jitter=0))
        refused = [index for index, result in enumerate(receipt.result) if not is_done(result)]

    assert refused == [17, 18]
    assert all(topics(database, job).count("completed") <= 1 for job in claimed)
    assert rows(database, "SELECT id FROM jobs") == []


def is_done(outcome: Any) -> bool:
    return isinstance(outcome.answer, Job)


async def test_concurrent_results_of_two_processes_for_the_same_claims_count_once(
    database: str,
) -> None:
    async with open_workshop(database) as one, open_workshop(database) as other:
        await one.jobs(200)
        claimed = await one.claim(200)
        there, back = claimed[:100], claimed[100:]
        first = FinishJobs(results=[one.result(job) for job in claimed], jitter=0)
        second = FinishJobs(results=[other.result(job) for job in [*back, *there]], jitter=0)
        answers = await asyncio.gather(one.submit(first), other.submit(second))
        done = sum(is_done(result) for receipt in answers for result in receipt.result)

    assert done == 200
    assert all(topics(database, job) == ["created", "claimed", "completed"] for job in claimed)


async def test_no_command_decides_from_cached_rows_that_a_failover_lost(database: str) -> None:
    """A promoted standby may lack the end of the log: its version is older, so the primary key
    would accept the version after next and leave a gap."""
    async with open_workshop(database) as workshop:
        await workshop.jobs(2)
        claimed = await workshop.claim(2)
        with psycopg.connect(owner_conninfo(database), autocommit=True) as owner:
            owner.execute(FORGET_CLAIM)
        for job in claimed:
            with pytest.raises(ClaimLostError):
                await workshop.finish(job)

    assert [topics(database, job) for job in claimed] == [["created"], ["created"]]


def lose_claims(database: str) -> None:
    """As an asynchronous standby does that is promoted before it received them."""
    with psycopg.connect(owner_conninfo(database), autocommit=True) as owner:
        owner.execute(FORGET_CLAIM)


@pytest.mark.parametrize("outcome", [Outcome.DONE, Outcome.RETRY])
async def test_a_claim_lost_in_a_failover_does_not_complete_its_successor(
    database: str, outcome: Outcome
) -> None:
    """The row has the cached version, but another claim."""
    # I-23
    async with open_workshop(database) as one, open_workshop(database) as other:
        await one.jobs(2)
        lost = await one.claim(2)
        lose_claims(database)
        claimed_again = await other.claim(2)
        results = [one.result(job, outcome) for job in lost]
        receipt = await one.submit(FinishJobs(results=results, jitter=0))
        assert not any(is_done(result) for result in receipt.result)
        for job in claimed_again:
            await other.finish(job)

    assert [topics(database, job) for job in claimed_again] == [
        ["created", "claimed", "completed"]
    ] * 2


async def test_a_new_connection_clears_the_cache(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may lead to another server, whose log differs from the cached rows."""
    async with open_workshop(database) as workshop:
        await workshop.jobs(2)
        first, second = await workshop.claim(2)
        with fail_on_row_reads(monkeypatch):
            await workshop.finish(first)
            await (await connect(reader_conninfo(database))).close()
            with pytest.raises(psycopg.errors.InvalidTextRepresentation):
                await workshop.finish(second)
        await workshop.finish(second)


async def test_a_batch_of_an_earlier_connection_caches_nothing(
    database: str,
) -> None:
    async with open_workshop(database) as workshop:
        await workshop.job()
        claimed = await workshop.claim()
    cache = RowCache(CacheClaimedJobs())
    generation = cache.generation
    drop_caches()
    cache.put([Left(job) for job in claimed], generation)
    assert cache.get_all([job.id.int for job in claimed]) is None
    cache.put([Left(job) for job in claimed], cache.generation)
    assert cache.get_all([job.id.int for job in claimed]) == claimed


async def test_a_refusal_from_cached_rows_is_verified(database: str) -> None:
    async with open_workshop(database) as workshop:
        first, second = await workshop.jobs(2)
        claimed, other = await workshop.claim(2)
        assert other.claim is not None
        with pytest.raises(ClaimLostError):
            await workshop.finish(claimed, claim_id=other.claim.id)
        await workshop.finish(claimed)
        with pytest.raises(ClaimLostError):
            await workshop.finish(claimed)
        with pytest.raises(NotFoundError):
            await workshop.finish(replace(claimed, id=uuid7()))

    assert topics(database, first) == ["created", "claimed", "completed"]
    assert topics(database, second) == ["created", "claimed"]


async def test_jobs_with_large_payloads_or_lanes_are_not_cached(database: str) -> None:
    async with open_workshop(database) as workshop:
        large = await workshop.job(payload=raw('"' + "x" * CACHED_PAYLOAD_BYTES_MAX + '"'))
        of_lane = await workshop.job(partition="a")
        claimed = await workshop.claim(2)
        assert {job.id for job in claimed} == {large.id, of_lane.id}
        assert CacheClaimedJobs().cacheable([Left(job) for job in claimed]) == []


async def test_a_full_cache_evicts_the_oldest_rows(database: str) -> None:
    cache = RowCache(CacheClaimedJobs(), count_max=3)
    async with open_workshop(database) as workshop:
        await workshop.jobs(5)
        claimed = await workshop.claim(5)
    cache.put([Left(job) for job in claimed], cache.generation)
    keys = [job.id.int for job in claimed]

    assert cache.get_all(keys[2:]) == claimed[2:]
    assert cache.get_all(keys[1:]) is None
    cache.evict(claimed[3:])
    assert cache.get_all(keys[3:4]) is None


class Left:
    """A change as a batch leaves it."""

    def __init__(self, state: Job) -> None:
        self.before: Job | None = None
        self.state = state
