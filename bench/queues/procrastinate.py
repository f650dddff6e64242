"""Procrastinate as its documentation recommends: batch defer, async tasks."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

# Only the environment of the peers has this, hence the ignored import.
from procrastinate import App, PsycopgConnector  # type: ignore[import-not-found]

from bench.queues.worker import PAYLOAD, QUEUE, TYPE, Queue

# It fetches jobs one by one. Of 1, 3, 5, 10, 20 and 50 concurrent jobs, 3 were the fastest.
CONCURRENCY = 3


class ProcrastinateQueue:
    def __init__(self, app: Any) -> None:
        self._app = app
        self._count = 0
        self._nothing = app.task(name=TYPE, queue=QUEUE)(self._count_one)

    async def prepare(self) -> None:
        await self._app.schema_manager.apply_schema_async()

    async def create(self, count: int, size: int) -> None:
        for _ in range(0, count, size):
            await self._nothing.batch_defer_async(*(PAYLOAD for _ in range(size)))

    async def drain(self, size: int) -> int:
        self._count = 0
        await self._app.run_worker_async(
            queues=[QUEUE],
            concurrency=min(size, CONCURRENCY),
            wait=False,
            listen_notify=False,
            delete_jobs="always",
            install_signal_handlers=False,
        )
        return self._count

    async def _count_one(self, **_payload: Any) -> None:
        self._count += 1


@asynccontextmanager
async def opened(conninfo: str) -> AsyncIterator[Queue]:
    connector = PsycopgConnector(conninfo=conninfo, min_size=CONCURRENCY, max_size=CONCURRENCY)
    app = App(connector=connector)
    async with app.open_async():
        yield ProcrastinateQueue(app)
