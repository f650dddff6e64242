"""PgQueuer as its documentation recommends: asyncpg, bulk enqueue, batched dequeue."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

# Only the environment of the peers has these, hence the ignored imports.
import asyncpg  # type: ignore[import-not-found]
from pgqueuer import PgQueuer  # type: ignore[import-not-found]
from pgqueuer.types import QueueExecutionMode  # type: ignore[import-not-found]
from psycopg.conninfo import conninfo_to_dict

from bench.queues.worker import PAYLOAD, TYPE, Queue

# Parameters that asyncpg supports; it would send all others to the server as settings.
KNOWN = ("host", "port", "user", "password", "passfile", "dbname", "sslmode", "sslrootcert")
# By default it polls only after 30 s when the queue is empty but jobs are still running.
LAST_LOOK_SECONDS = 0.01


class PgQueuerQueue:
    """Uses one connection: a pool measured slower."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._queries = PgQueuer.from_asyncpg_connection(connection).qm.queries

    async def prepare(self) -> None:
        await self._queries.install()

    async def create(self, count: int, size: int) -> None:
        for _ in range(0, count, size):
            payloads = [json.dumps(PAYLOAD).encode() for _ in range(size)]
            await self._queries.enqueue([TYPE] * size, payloads, [0] * size)

    async def drain(self, size: int) -> int:
        """Makes a new manager, because one that has drained its queue stays shut down."""
        count = 0

        async def nothing(_job: Any) -> None:
            nonlocal count
            count += 1

        manager = PgQueuer.from_asyncpg_connection(self._connection).qm
        manager.entrypoint(TYPE)(nothing)
        await manager.run(
            batch_size=size,
            mode=QueueExecutionMode.drain,
            dequeue_timeout=timedelta(seconds=LAST_LOOK_SECONDS),
        )
        return count


@asynccontextmanager
async def opened(conninfo: str) -> AsyncIterator[Queue]:
    given = {name: value for name, value in conninfo_to_dict(conninfo).items() if name in KNOWN}
    # No slash: asyncpg would take an empty path for the database name.
    connection = await asyncpg.connect(f"postgresql://?{urlencode(given)}")
    try:
        yield PgQueuerQueue(connection)
    finally:
        await connection.close()
