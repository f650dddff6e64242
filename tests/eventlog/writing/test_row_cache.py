"""What a process remembers saves it a look, and never lets it decide from what is out of date."""

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
from daybook.projections.jobs.jobs import CACHED_PAYLOAD_BYTES_MAX, LiveJobs
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
def no_looking(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setattr(LiveJobs, "hold", "SELECT 'nobody is to look at the rows' / 0")
        yield


def topics(conninfo: str, job: Job) -> list[str]:
    history = rows(conninfo, READ_VERSIONS, {"id": job.id})
    assert [version for version, _ in history] == [*range(1, len(history) + 1)]
    return [topic.removeprefix("job.") for _, topic in history]


async def claim_expires(workshop: Workshop, job: Job) -> None:
    assert job.lease is not None
    await asyncio.sleep(0.02)
    await workshop.submit(ExpireLease(job_id=job.id, claim_id=job.lease.claim_id, jitter=0))


async def test_who_has_claimed_jobs_tells_what_became_of_them_without_a_look_at_their_rows(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_workshop(database) as workshop:
        await workshop.jobs(6)
        claimed = await workshop.claim(6)
        outcomes = [*Outcome, Outcome.DONE]
        told = [
            workshop.result(job, outcome, until=job.created_at)
            for job, outcome in zip(claimed, outcomes, strict=True)
        ]
        with no_looking(monkeypatch):
            receipt = await workshop.submit(FinishJobs(results=told, jitter=0))
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


async def test_a_claim_given_by_another_process_is_not_taken_for_a_lost_one(database: str) -> None:
    """The naive memory refuses what it does not know, without asking."""
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
        refused = [place for place, told in enumerate(receipt.result) if not told_done(told)]

    assert refused == [17, 18]
    assert all(topics(database, job).count("completed") <= 1 for job in claimed)
    assert rows(database, "SELECT id FROM jobs") == []


def told_done(settled: Any) -> bool:
    return isinstance(settled.answer, Job)


async def test_what_two_processes_tell_at_once_about_the_same_claims_happens_once(
    database: str,
) -> None:
    async with open_workshop(database) as one, open_workshop(database) as other:
        await one.jobs(200)
        claimed = await one.claim(200)
        there, back = claimed[:100], claimed[100:]
        first = FinishJobs(results=[one.result(job) for job in claimed], jitter=0)
        second = FinishJobs(results=[other.result(job) for job in [*back, *there]], jitter=0)
        answers = await asyncio.gather(one.submit(first), other.submit(second))
        done = sum(told_done(told) for receipt in answers for told in receipt.result)

    assert done == 200
    assert all(topics(database, job) == ["created", "claimed", "completed"] for job in claimed)


async def test_nothing_is_decided_from_what_a_failover_has_taken_back(database: str) -> None:
    """A standby that takes over may lack the last of the log: the version in it is an older one, so
    the primary key would let the next but one in, and leave a gap."""
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
    """As an asynchronous standby does that is promoted before it has heard of them."""
    with psycopg.connect(owner_conninfo(database), autocommit=True) as owner:
        owner.execute(FORGET_CLAIM)


@pytest.mark.parametrize("outcome", [Outcome.DONE, Outcome.RETRY])
async def test_a_claim_lost_in_a_failover_completes_nothing_of_the_one_that_came_after(
    database: str, outcome: Outcome
) -> None:
    """The row is of the version that is remembered, and under another claim."""
    # I-23
    async with open_workshop(database) as one, open_workshop(database) as other:
        await one.jobs(2)
        lost = await one.claim(2)
        lose_claims(database)
        held = await other.claim(2)
        results = [one.result(job, outcome) for job in lost]
        receipt = await one.submit(FinishJobs(results=results, jitter=0))
        assert not any(told_done(told) for told in receipt.result)
        for job in held:
            await other.finish(job)

    assert [topics(database, job) for job in held] == [["created", "claimed", "completed"]] * 2


async def test_whatever_is_remembered_is_dropped_when_a_connection_is_made_anew(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be that of another server, whose log is not the one that was remembered."""
    async with open_workshop(database) as workshop:
        await workshop.jobs(2)
        first, second = await workshop.claim(2)
        with no_looking(monkeypatch):
            await workshop.finish(first)
            await (await connect(reader_conninfo(database))).close()
            with pytest.raises(psycopg.errors.InvalidTextRepresentation):
                await workshop.finish(second)
        await workshop.finish(second)


async def test_what_was_committed_on_an_earlier_connection_is_not_remembered(
    database: str,
) -> None:
    async with open_workshop(database) as workshop:
        await workshop.job()
        claimed = await workshop.claim()
    memory = RowCache(LiveJobs())
    life = memory.generation
    drop_caches()
    memory.put([Left(job) for job in claimed], life)
    assert memory.get_all([job.id.int for job in claimed]) is None
    memory.put([Left(job) for job in claimed], memory.generation)
    assert memory.get_all([job.id.int for job in claimed]) == claimed


async def test_a_refusal_from_memory_is_as_sure_as_any_other(database: str) -> None:
    async with open_workshop(database) as workshop:
        first, second = await workshop.jobs(2)
        claimed, other = await workshop.claim(2)
        assert other.lease is not None
        with pytest.raises(ClaimLostError):
            await workshop.finish(claimed, claim_id=other.lease.claim_id)
        await workshop.finish(claimed)
        with pytest.raises(ClaimLostError):
            await workshop.finish(claimed)
        with pytest.raises(NotFoundError):
            await workshop.finish(replace(claimed, id=uuid7()))

    assert topics(database, first) == ["created", "claimed", "completed"]
    assert topics(database, second) == ["created", "claimed"]


async def test_large_payloads_and_lanes_are_not_remembered(database: str) -> None:
    async with open_workshop(database) as workshop:
        large = await workshop.job(payload=raw('"' + "x" * CACHED_PAYLOAD_BYTES_MAX + '"'))
        of_lane = await workshop.job(partition="a")
        claimed = await workshop.claim(2)
        assert {job.id for job in claimed} == {large.id, of_lane.id}
        assert LiveJobs().cacheable([Left(job) for job in claimed]) == []


async def test_of_more_than_can_be_remembered_the_oldest_are_forgotten(database: str) -> None:
    memory = RowCache(LiveJobs(), count_max=3)
    async with open_workshop(database) as workshop:
        await workshop.jobs(5)
        claimed = await workshop.claim(5)
    memory.put([Left(job) for job in claimed], memory.generation)
    keys = [job.id.int for job in claimed]

    assert memory.get_all(keys[2:]) == claimed[2:]
    assert memory.get_all(keys[1:]) is None
    memory.evict(claimed[3:])
    assert memory.get_all(keys[3:4]) is None


class Left:
    """As a batch leaves it."""

    def __init__(self, state: Job) -> None:
        self.before: Job | None = None
        self.state = state
