"""Heartbeats of a worker, lost claims and an unavailable service."""

import asyncio
import threading
from datetime import UTC, datetime, timedelta

import pytest

from daybook import (
    FIVE_MINUTE_LEASE,
    ClaimedJob,
    Lease,
    Refused,
    Worker,
)
from daybook.worker.held_claims import HeldClaim
from tests.daybook.worker.test_outcomes import make_job
from tests.support.fake_address import Address, stand_in
from tests.support.fake_service import Fault, StandIn
from tests.support.worker import (
    CLAIM,
    HEARTBEAT,
    RESULTS,
    SECONDS_MAX,
    Events,
    finished_jobs,
    until,
    working,
)

pytestmark = pytest.mark.anyio


async def test_one_heartbeat_is_for_all_and_comes_at_a_third_of_the_lease(
    address: Address, standin: StandIn
) -> None:
    worker = Worker(address.url, queues=["email"], lease=Lease(seconds=0.3))

    @worker.job("greet")
    async def greet(_job: ClaimedJob) -> None:
        await asyncio.sleep(0.7)

    for _ in range(3):
        standin.add()
    async with working(worker):
        jobs = await finished_jobs(standin)

    assert [(job["status"], job["attempts"]) for job in jobs] == [("COMPLETED", 1)] * 3
    heartbeats = standin.to(HEARTBEAT)
    assert all(len(seen.body["claims"]) == 3 for seen in heartbeats)
    assert {claim["leaseSeconds"] for claim in heartbeats[0].body["claims"]} == {0.3}
    assert 5 <= len(heartbeats) <= 8


async def test_a_job_that_has_a_short_lease_of_its_own_keeps_it(
    worker: Worker, standin: StandIn
) -> None:
    @worker.job("greet")
    async def greet(job: ClaimedJob) -> None:
        await asyncio.sleep(0.5 if job.lease_seconds < 1 else 0.6)

    standin.add(), standin.add(leaseSeconds=0.3)
    async with working(worker):
        jobs = await finished_jobs(standin)

    assert [job["attempts"] for job in jobs] == [1, 1]
    assert "leaseSeconds" not in standin.to(CLAIM)[0].body


def test_a_heartbeat_is_a_third_of_the_lease_unless_it_is_said_otherwise() -> None:  # S1-04
    usual, patient = HeldClaim(make_job(), None), HeldClaim(make_job(), FIVE_MINUTE_LEASE)

    assert (usual.lease.seconds, usual.lease.beat_seconds) == (90, 30)
    assert (patient.lease.seconds, patient.lease.beat_seconds) == (300, 30)


def test_the_service_time_follows_from_the_lease() -> None:
    claimed_at = datetime(2026, 3, 1, 12, tzinfo=UTC)
    claim = HeldClaim(make_job(lease_until=claimed_at + timedelta(seconds=90)), None)

    assert claimed_at <= claim.server_now < claimed_at + timedelta(seconds=1)


async def test_a_handler_that_lost_its_claim_is_cancelled(
    address: Address, standin: StandIn, events: Events
) -> None:
    worker = Worker(address.url, queues=["email"], lease=Lease(seconds=0.3))
    ends: list[str] = []

    @worker.job("greet")
    async def greet(_job: ClaimedJob) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    job = standin.add()
    async with working(worker):
        await until(lambda: job["status"] == "PROCESSING")
        standin.lose(job)
        await until(lambda: ends == ["cancelled"])
        await until(lambda: bool(events("job:lost")))

    assert not standin.to(RESULTS)


async def test_a_thread_that_lost_its_claim_sees_lost_set(
    address: Address, standin: StandIn, events: Events
) -> None:
    worker = Worker(address.url, queues=["email"], lease=Lease(seconds=0.3))

    @worker.job("greet")
    def greet(job: ClaimedJob) -> str:
        assert job.lost.wait(SECONDS_MAX)
        return "too late"

    job = standin.add()
    async with working(worker):
        await until(lambda: job["status"] == "PROCESSING")
        standin.lose(job)
        await until(lambda: bool(events("job:lost")))

    assert not standin.to(RESULTS)


async def test_a_continuing_thread_keeps_its_slot(address: Address, standin: StandIn) -> None:
    worker = Worker(address.url, queues=["email"], concurrency=1, lease=Lease(seconds=0.15))
    may_end = threading.Event()

    @worker.job("greet")
    def greet(job: ClaimedJob) -> None:
        if job.payload == "first":
            may_end.wait(SECONDS_MAX)

    first, second = standin.add(payload="first"), standin.add()
    async with working(worker):
        await until(lambda: first["status"] == "PROCESSING")
        standin.lose(first)
        await asyncio.sleep(0.3)
        assert second["status"] == "PENDING"
        may_end.set()
        await until(lambda: second["status"] == "COMPLETED")


async def test_a_result_that_comes_too_late_is_logged_and_no_more(
    worker: Worker, standin: StandIn, events: Events
) -> None:
    may_end = asyncio.Event()

    @worker.job("greet")
    async def greet(_job: ClaimedJob) -> None:
        await may_end.wait()

    job = standin.add()
    async with working(worker) as task:
        await until(lambda: job["status"] == "PROCESSING")
        standin.lose(job)
        may_end.set()
        await until(lambda: bool(events("job:lost")))
        assert not task.done()

    assert "no longer holds" in events("job:lost")[0]["error"]
    assert not events("job:completed")


async def test_a_service_that_is_away_costs_no_work(standin: StandIn, events: Events) -> None:
    with stand_in() as address:
        standin = address.standin
        worker = Worker(address.url, queues=["email"])
        may_end = asyncio.Event()

        @worker.job("greet")
        async def greet(_job: ClaimedJob) -> str:
            await may_end.wait()
            return "done meanwhile"

        first = standin.add()
        async with working(worker):
            await until(lambda: first["status"] == "PROCESSING")
            await asyncio.to_thread(address.close)
            may_end.set()
            await asyncio.sleep(0.3)
            second = standin.add()
            await asyncio.to_thread(address.open)
            await until(lambda: second["status"] == "COMPLETED")

    assert (first["status"], first["result"]) == ("COMPLETED", "done meanwhile")
    assert (first["attempts"], second["attempts"]) == (1, 1)
    assert len(events("job:completed")) == 2


async def test_a_claim_without_a_heartbeat_for_a_whole_lease_is_lost(
    events: Events,
) -> None:
    with stand_in() as address:
        worker = Worker(address.url, queues=["email"], lease=Lease(seconds=0.3))
        cancelled = asyncio.Event()

        @worker.job("greet")
        async def greet(_job: ClaimedJob) -> None:
            try:
                await asyncio.sleep(60)
            finally:
                cancelled.set()

        job = address.standin.add()
        async with working(worker):
            await until(lambda: job["status"] == "PROCESSING")
            await asyncio.to_thread(address.close)
            await asyncio.wait_for(cancelled.wait(), 2)
            await until(lambda: bool(events("job:lost")))

    assert events("heartbeat:failed")


async def test_a_claim_is_retried_after_a_server_error(
    worker: Worker, standin: StandIn, events: Events
) -> None:
    @worker.job("greet")
    async def greet(_job: ClaimedJob) -> None: ...

    content = b'{"code": "internal_error", "detail": "This is a defect."}'
    unreadable = Fault(CLAIM, 200, content=b"<html>")
    standin.faults += [Fault(CLAIM, 500, content=content), Fault(CLAIM), unreadable]
    job = standin.add()
    async with working(worker):
        await until(lambda: job["status"] == "COMPLETED")

    assert [event["code"] for event in events("worker:unavailable")] == ["unreadable_answer"]


async def test_a_worker_that_may_not_claim_says_so_and_ends(
    worker: Worker, standin: StandIn
) -> None:
    @worker.job("greet")
    async def greet(_job: ClaimedJob) -> None: ...

    content = b'{"code": "schema", "detail": "The body does not fit: queues."}'
    standin.faults.append(Fault(CLAIM, 422, content=content))

    with pytest.raises(Refused, match="The body does not fit: queues"):
        await worker.serve()
