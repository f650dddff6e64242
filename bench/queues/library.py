"""Daybook in the worker's process, through its own client."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from psycopg.conninfo import conninfo_to_dict

from bench.queues.daybook import NEW_JOB, STREAMS, at_once, create, drain
from bench.queues.worker import Queue
from daybook import AsyncClient


class LibraryQueue:
    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def prepare(self) -> None:
        """Starts the committer and the other parts of the service in this process."""
        await self._client.queues()

    async def create(self, count: int, size: int) -> None:
        batches = iter([[NEW_JOB] * size] * (count // size))
        await at_once(create(self._client, batches) for _ in range(STREAMS))

    async def drain(self, size: int) -> int:
        return sum(await at_once(drain(self._client, size) for _ in range(STREAMS)))


@asynccontextmanager
async def opened(database: str) -> AsyncIterator[Queue]:
    given = conninfo_to_dict(database)
    url = f"postgresql://{given['user']}@/{given['dbname']}?host={given['host']}"
    async with AsyncClient(url) as client:
        yield LibraryQueue(client)
