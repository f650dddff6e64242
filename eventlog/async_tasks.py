"""Ending tasks for certain."""

import asyncio
from collections.abc import Iterable
from typing import Any

REPEAT_SECONDS = 0.5


async def cancel_and_wait(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancels until every task has ended, whatever it ended with.

    Once is not enough: a cancellation that meets a lost connection in psycopg comes out as the
    loss, which the task outlives.
    """
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        done, pending = await asyncio.wait(pending, timeout=REPEAT_SECONDS)
        for task in done:
            if not task.cancelled():
                task.exception()
