"""A worker for tests, run as a process: each execution leaves a line in a file."""

import asyncio
import os
import time
from pathlib import Path

from daybook import ClaimedJob, Fail, Lease, Worker

LEASE_SECONDS = float(os.environ.get("WORKER_LEASE_SECONDS", "2"))

worker = Worker(
    os.environ.get("WORKER_URL", "http://127.0.0.1:8000"),
    queues=["tests"],
    concurrency=20,
    lease=Lease(seconds=LEASE_SECONDS),
    grace_seconds=3,
)


def record(job: ClaimedJob, what: str) -> None:
    with Path(os.environ["WORKER_EXECUTIONS"]).open("a") as executions:
        executions.write(f"{what} {job.id} {os.getpid()} {job.attempts}\n")


@worker.job("quick")
async def quick(job: ClaimedJob) -> None:
    record(job, "done")


@worker.job("poison", attempts_max=3)
async def poison(job: ClaimedJob) -> None:
    record(job, "tried")
    raise ValueError("poison")


@worker.job("hopeless")
async def hopeless(job: ClaimedJob) -> None:
    record(job, "tried")
    raise Fail("there is no such address")


@worker.job("slow")
async def slow(job: ClaimedJob) -> None:
    record(job, "begun")
    await asyncio.sleep(1)
    record(job, "done")


@worker.job("blocking")
def blocking(job: ClaimedJob) -> None:
    record(job, "begun")
    time.sleep(1)
    record(job, "done")


@worker.job("endless")
async def endless(job: ClaimedJob) -> None:
    record(job, "begun")
    await asyncio.sleep(3600)


if __name__ == "__main__":
    worker.run()
