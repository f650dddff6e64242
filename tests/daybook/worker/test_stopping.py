"""Graceful and quick stop of a worker inside an event loop."""

import asyncio
import time

import pytest

from daybook import (
    ClaimedJob,
    Worker,
)
from tests.support.fake_address import Address
from tests.support.fake_service import StandIn
from tests.support.worker import CLAIM, SECONDS_MAX, until, working

pytestmark = pytest.mark.anyio


async def test_running_handlers_may_finish_when_the_worker_stops(
    worker: Worker, standin: StandIn
) -> None:
    has_begun = asyncio.Event()

    @worker.job("greet")
    async def greet(_job: ClaimedJob) -> str:
        has_begun.set()
        await asyncio.sleep(0.2)
        return "finished"

    job = standin.add()
    async with working(worker):
        await has_begun.wait()
        standin.add()

    assert (job["status"], job["result"]) == ("COMPLETED", "finished")
    assert standin.statuses() == ["COMPLETED", "PENDING"]


@pytest.mark.parametrize("kind", ["async", "thread", "stubborn"])
async def test_handlers_that_do_not_finish_are_released(
    address: Address, standin: StandIn, kind: str
) -> None:
    worker = Worker(address.url, queues=["email"], grace_seconds=0.1)

    if kind == "thread":

        @worker.job("greet")
        def wait(job: ClaimedJob) -> None:
            job.lost.wait(SECONDS_MAX)
    else:

        @worker.job("greet")
        async def sleep(_job: ClaimedJob) -> None:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                if kind != "stubborn":
                    raise
                await asyncio.sleep(1.1)

    job = standin.add()
    async with working(worker):
        await until(lambda: job["status"] == "PROCESSING")
        began = time.monotonic()

    assert time.monotonic() - began < 2
    assert (job["status"], job["attempts"], job["outcome"]) == ("PENDING", 0, "release")
    await asyncio.sleep(0.2)


async def test_a_handler_that_finishes_upon_cancellation_completes_its_job(
    address: Address, standin: StandIn
) -> None:
    worker = Worker(address.url, queues=["email"], grace_seconds=0)
    has_begun = asyncio.Event()

    @worker.job("greet")
    async def greet(_job: ClaimedJob) -> str:
        has_begun.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "just in time"
        return ""

    job = standin.add()
    async with working(worker):
        await has_begun.wait()

    assert (job["status"], job["result"]) == ("COMPLETED", "just in time")


async def test_a_second_stop_does_not_wait(worker: Worker, standin: StandIn) -> None:
    @worker.job("greet")
    async def greet(_job: ClaimedJob) -> None:
        await asyncio.sleep(60)

    job = standin.add()
    async with working(worker):
        await until(lambda: job["status"] == "PROCESSING")
        worker.stop()
        began = time.monotonic()

    assert time.monotonic() - began < 1
    assert (job["status"], job["outcome"]) == ("PENDING", "release")


async def test_a_cancelled_worker_releases_its_jobs(worker: Worker, standin: StandIn) -> None:
    @worker.job("greet")
    async def greet(_job: ClaimedJob) -> None:
        await asyncio.sleep(60)

    job = standin.add()
    task = asyncio.create_task(worker.serve())
    await until(lambda: job["status"] == "PROCESSING")
    task.cancel()
    await asyncio.wait([task])

    assert task.cancelled()
    assert (job["status"], job["outcome"]) == ("PENDING", "release")


async def test_jobs_that_come_when_it_stops_are_given_back(
    worker: Worker, standin: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    @worker.job("greet")
    async def greet(_job: ClaimedJob) -> None:
        raise AssertionError("it was to stop")

    monkeypatch.setattr("daybook.worker.run_loop.CLAIM_RESPONSE_SECONDS_MAX", 1)
    task = asyncio.create_task(worker.serve())
    await until(lambda: bool(standin.to(CLAIM)))
    worker.stop()
    job = standin.add()
    await task

    assert (job["status"], job["attempts"], job["outcome"]) == ("PENDING", 0, "release")
