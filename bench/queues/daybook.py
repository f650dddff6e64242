"""Daybook over HTTP, through its own client."""

import asyncio
import sys
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import repeat
from typing import Any

from bench.queues.worker import PAYLOAD, QUEUE, TYPE, Queue
from daybook import AsyncClient, ClaimedJob, NewJob, Result

# Concurrent requests of one process: while the service decides one batch, the database writes
# another. Of 3, 4, 6 and 8, 6 was the fastest.
STREAMS = 6
NEW_JOB = NewJob(queue=QUEUE, type=TYPE, payload=PAYLOAD)


class OurQueue:
    def __init__(self, port: int) -> None:
        self._port = port

    async def prepare(self) -> None:
        """The service has already migrated its database."""

    async def create(self, count: int, size: int) -> None:
        batches = repeat([NEW_JOB] * size, count // size)
        async with connected(self._port) as client:
            await at_once(create(client, batches) for _ in range(STREAMS))

    async def drain(self, size: int) -> int:
        async with connected(self._port) as client:
            return sum(await at_once(drain(client, size) for _ in range(STREAMS)))


def connected(port: int) -> AsyncClient:
    """Opens a new client: the service closes idle connections during other rounds."""
    return AsyncClient(f"http://127.0.0.1:{port}")


async def at_once(streams: Iterable[Coroutine[Any, Any, int]]) -> list[int]:
    return await asyncio.gather(*streams)


async def create(client: AsyncClient, batches: Iterator[Sequence[NewJob]]) -> int:
    count = 0
    for batch in batches:
        count += len(await client.enqueue_ids(batch))
    return count


async def drain(client: AsyncClient, size: int, *, jobs_max: int = sys.maxsize) -> int:
    count = 0
    while count < jobs_max and (claimed := await claim(client, size)):
        await report_done(client, claimed)
        count += len(claimed)
    return count


async def claim(client: AsyncClient, limit: int, *, wait_seconds: float = 0) -> list[ClaimedJob]:
    return await client.claim(
        [QUEUE], types=[TYPE], worker_id="bench", limit=limit, wait_seconds=wait_seconds
    )


async def report_done(client: AsyncClient, claimed: Sequence[ClaimedJob]) -> None:
    done = [Result(id=job.id, claim_id=job.claim_id, outcome="done") for job in claimed]
    refused = [one for one in await client.report(done) if one.code is not None]
    assert not refused, refused[0]


@asynccontextmanager
async def opened(port: str) -> AsyncIterator[Queue]:
    yield OurQueue(int(port))
