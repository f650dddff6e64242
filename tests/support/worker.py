"""A worker in this process, beside the test that watches it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from daybook import Worker
from tests.support.fake_service import Body, StandIn

SECONDS_MAX = 10.0
CLAIM = "/api/jobs/claim"
HEARTBEAT = "/api/jobs/heartbeat"
RESULTS = "/api/jobs/results"

Events = Callable[[str], list[dict[str, Any]]]


@asynccontextmanager
async def working(worker: Worker) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(worker.serve())
    await asyncio.sleep(0)
    try:
        yield task
    finally:
        worker.stop()
        await asyncio.wait([task])


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while not holds():  # noqa: ASYNC110 (the condition changes in another thread)
            await asyncio.sleep(0.005)


async def finished_jobs(standin: StandIn) -> list[Body]:
    """Waits until nothing is left to do."""
    await until(lambda: not {"PENDING", "PROCESSING"} & set(standin.statuses()))
    return list(standin.jobs.values())
