"""Library mode: every behaviour of clients and workers, over HTTP and in the caller's process."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from daybook import (
    AsyncClient,
    Claim,
    ClaimedJob,
    ClaimLost,
    Client,
    FollowUp,
    JobStatus,
    Lease,
    NewJob,
    NewMessage,
    NotFound,
    Refused,
    Retry,
    Worker,
)
from daybook.errors import BadAddress
from tests.support.committer import rows
from tests.support.running.processes import ROOT, Process, environment, eventually
from tests.support.transports import http_url, url_of, working

pytestmark = pytest.mark.anyio

COUNT_ENDED = "SELECT count(*) FROM finished_jobs WHERE status = 'COMPLETED'"
COUNT_COMPLETIONS = """
SELECT count(*), count(DISTINCT aggregate_id) FROM log WHERE topic = 'job.completed'
"""


@pytest.fixture
async def client(url: str) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(url) as client:
        yield client


async def finished(client: AsyncClient, job_id: UUID) -> JobStatus:
    async with asyncio.timeout(10):
        while not (job := await client.get(job_id)).finished_at:  # noqa: ASYNC110 (another process)
            await asyncio.sleep(0.02)
    return job.status


async def claim_one(client: AsyncClient, **options: float) -> ClaimedJob:
    (job,) = await client.claim(["email"], worker_id="me", **options)  # type: ignore[arg-type]  # none is a list
    return job


async def test_a_job_is_created_claimed_and_completed_with_a_follow_up(client: AsyncClient) -> None:
    job = await client.enqueue("email", "greet", {"to": "Ada"}, subject="s", priority=2)
    claimed = await claim_one(client)
    assert (claimed.id, claimed.payload, claimed.subject) == (job.id, {"to": "Ada"}, "s")
    done = await client.complete(claimed, {"sent": True}, then=[FollowUp(type="next")])
    assert (done.status, done.result) == ("COMPLETED", {"sent": True})
    assert [one.type async for one in client.list(status=JobStatus.PENDING)] == ["next"]
    topics = [event["topic"] for event in await client.history(job.id)]
    assert topics == ["job.created", "job.claimed", "job.completed"]


async def test_a_unique_key_creates_one_job(client: AsyncClient) -> None:
    first = await client.enqueue("email", "greet", unique_key="k")
    assert (await client.enqueue("email", "greet", unique_key="k")).id == first.id


async def test_a_batch_is_created_as_a_whole(client: AsyncClient) -> None:
    new = [NewJob(queue="email", type="greet", payload=number) for number in range(250)]
    assert len(await client.enqueue_ids(new)) == 250
    claimed = await client.claim(["email"], worker_id="me", limit=1000)
    assert [job.payload for job in claimed] == [*range(250)]


async def test_a_stale_claim_is_refused(client: AsyncClient) -> None:
    await client.enqueue("email", "greet")
    claimed = await claim_one(client)
    await client.cancel(claimed.id)
    with pytest.raises(ClaimLost):
        await client.complete(claimed)
    assert (await client.heartbeat_many([claimed])).lost == [claimed.claim_id]


async def test_failures_retry_and_then_end_in_the_dead_letters(client: AsyncClient) -> None:
    job = await client.enqueue("email", "greet", attempts_max=2)
    failed = await client.fail(await claim_one(client), "no", retry_after_seconds=0)
    assert failed.status == "PENDING"
    failed = await client.fail(await claim_one(client, wait_seconds=5), "no")
    assert failed.status == "DEAD"
    assert [one.id async for one in client.dlq()] == [job.id]
    assert (await client.retry(job.id)).status == "PENDING"


async def test_refusals_have_the_same_codes(client: AsyncClient) -> None:
    with pytest.raises(NotFound) as missing:
        await client.get(uuid4())
    with pytest.raises(Refused) as invalid:
        await client.enqueue("email", "greet", priority=11)
    job = await client.enqueue("email", "greet")
    with pytest.raises(ClaimLost) as lost:
        await client.complete(Claim(id=job.id, claim_id=uuid4()))
    codes = [error.value.code for error in (missing, invalid, lost)]
    assert codes == ["not_found", "schema", "claim_lost"]
    assert [error.value.status for error in (missing, invalid, lost)] == [404, 422, 409]


async def test_a_waiting_claim_gets_a_job_as_soon_as_it_exists(client: AsyncClient) -> None:
    waiting = asyncio.create_task(claim_one(client, wait_seconds=20))
    await asyncio.sleep(0.3)
    job = await client.enqueue("email", "greet")
    async with asyncio.timeout(2):
        assert (await waiting).id == job.id


async def test_a_cancelled_claim_gives_its_jobs_back(client: AsyncClient) -> None:
    """As a closed connection does: otherwise the jobs would wait for their leases."""
    for _ in range(20):
        waiting = asyncio.create_task(claim_one(client, wait_seconds=20, lease_seconds=600))
        await asyncio.sleep(0.01)
        await client.enqueue("email", "greet")
        waiting.cancel()
        await asyncio.wait([waiting])
        if not waiting.cancelled():
            await client.complete(waiting.result())
    async with asyncio.timeout(10):
        while [job async for job in client.list(status=JobStatus.PROCESSING)]:  # noqa: ASYNC110 (polled)
            await asyncio.sleep(0.05)


async def test_messages_are_pushed_popped_and_acknowledged(client: AsyncClient) -> None:
    await client.push([NewMessage(queue="m", partition="a", payload=n) for n in (1, 2)])
    (message,) = await client.pop("m", batch=5)
    assert message.data == 1
    await client.ack(message)
    (message,) = await client.pop("m", batch=5)
    assert message.data == 2


async def test_a_worker_runs_handlers_and_heartbeats(url: str, client: AsyncClient) -> None:
    worker = Worker(url, queues=["email"], lease=Lease(seconds=0.9))
    tries: list[int] = []

    @worker.job("slow")
    async def slow(job: ClaimedJob) -> str:
        await asyncio.sleep(2)
        return f"{job.payload} once"

    @worker.job("flaky")
    def flaky(job: ClaimedJob) -> None:
        tries.append(job.attempts)
        if job.attempts == 1:
            raise Retry(after=0)

    jobs = [await client.enqueue("email", "slow", "done"), await client.enqueue("email", "flaky")]
    async with working(worker):
        assert [await finished(client, job.id) for job in jobs] == ["COMPLETED", "COMPLETED"]
    assert (await client.get(jobs[0].id)).result == "done once"
    assert (tries, (await client.get(jobs[0].id)).attempts) == ([1, 2], 1)


async def test_a_delayed_job_runs_when_it_is_due(client: AsyncClient) -> None:
    due_at = datetime.now(UTC) + timedelta(seconds=1)
    await client.enqueue("email", "greet", run_at=due_at)
    await claim_one(client, wait_seconds=10)
    assert datetime.now(UTC) >= due_at


def test_the_blocking_client_takes_a_database_too(database: str) -> None:
    with Client(url_of(database)) as client:
        job = client.enqueue("email", "greet", {"to": "Ada"})
        assert client.get(job.id).payload == {"to": "Ada"}
        assert [one.name for one in client.queues()] == ["email"]


async def test_clients_and_workers_of_one_loop_share_a_service(database: str) -> None:
    count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    url, idle = url_of(database), rows(database, count)
    async with AsyncClient(url) as one:
        await one.queues()
        ((before,),) = rows(database, count)
        async with AsyncClient(url) as other:
            await other.enqueue("email", "greet")
            assert rows(database, count) <= [(before + 2,)]
        # The first one goes on when the second is closed.
        assert len(await one.claim(["email"], worker_id="me")) == 1
    assert eventually(lambda: rows(database, count) == idle)


async def test_a_service_beside_it_sees_the_same_jobs(database: str) -> None:
    async with (
        http_url(database) as address,
        AsyncClient(address) as http,
        AsyncClient(url_of(database)) as library,
    ):
        waiting = asyncio.create_task(claim_one(http, wait_seconds=20))
        await asyncio.sleep(0.3)
        job = await library.enqueue("email", "greet")
        assert (await waiting).id == job.id
        await library.complete(waiting.result())
        assert (await http.get(job.id)).status == "COMPLETED"


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("postgresql://nobody@127.0.0.1:1/none", "cannot be used"),
        ("postgresql://a:b@c:d/e", "connection string"),
        ("shop", "is not an address"),
    ],
)
async def test_an_unusable_address_is_explained(address: str, sentence: str) -> None:
    with pytest.raises(BadAddress, match=sentence):
        async with AsyncClient(address) as client:
            await client.queues()


def test_a_database_takes_no_api_key() -> None:
    with pytest.raises(BadAddress, match="API key"):
        AsyncClient("postgresql://localhost/shop", key="dbk_1")


MODULE = """
import asyncio
from daybook import Lease, Worker

worker = Worker({url!r}, queues=["email"], lease=Lease(seconds=2), concurrency=5)


@worker.job("nap")
async def nap(job):
    await asyncio.sleep(0.05)


if __name__ == "__main__":
    worker.run()
"""


@pytest.fixture
def module(database: str, tmp_path: Path) -> Path:
    path = tmp_path / "napping.py"
    path.write_text(MODULE.format(url=url_of(database)))
    return path


def napping(module: Path) -> Process:
    return Process([sys.executable, module], variables=environment(PYTHONPATH=str(ROOT)))


def test_killed_library_workers_lose_no_job_and_complete_none_twice(
    database: str, module: Path
) -> None:
    """Survivors take over leases and leadership from workers that were killed with SIGKILL."""
    jobs_count = 150
    with Client(url_of(database)) as client:
        client.enqueue_ids([NewJob(queue="email", type="nap") for _ in range(jobs_count)])
    with napping(module) as survivor:
        for _ in range(3):
            with napping(module) as victim:
                assert victim.says("job:processing")
                victim.kill()
        assert eventually(lambda: rows(database, COUNT_ENDED) == [(jobs_count,)])
        assert survivor.signal_and_wait(signal.SIGTERM) == 0
    assert rows(database, COUNT_COMPLETIONS) == [(jobs_count, jobs_count)]
