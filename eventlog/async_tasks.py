"""Reliable cancellation of asyncio tasks."""

import asyncio
from collections.abc import Iterable
from typing import Any

REPEAT_SECONDS = 0.5


async def cancel_and_wait(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancels the tasks repeatedly until all have ended; their exceptions are discarded. One
    cancellation is not enough: psycopg may turn it into a lost connection, which tasks survive."""
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        done, pending = await asyncio.wait(pending, timeout=REPEAT_SECONDS)
        for task in done:
            if not task.cancelled():
                task.exception()
