"""A worker process that creates and drains jobs on commands from stdin.

Start and connection time are in no figure. The peers' interpreter runs this module, too, so it
imports nothing that only Daybook's environment has.
"""

import asyncio
import importlib
import json
import sys
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Protocol

import uvloop

# The same job in every queue.
QUEUE = "bench"
TYPE = "nothing"
PAYLOAD = {"booking": 4711, "template": "confirmation"}


class Queue(Protocol):
    async def prepare(self) -> None:
        """Creates the schema in an empty database."""

    async def create(self, count: int, size: int) -> None:
        """Creates `count` jobs in batches of `size`."""

    async def drain(self, size: int) -> int:
        """Claims and completes all jobs in batches of `size`; returns their number."""


Opening = Callable[[str], AbstractAsyncContextManager[Queue]]


def main(name: str) -> None:
    opening: Opening = importlib.import_module(f"bench.queues.{name}").opened
    # Ctrl-C also reaches the workers; the parent reports it.
    with suppress(KeyboardInterrupt):
        uvloop.run(_serve(opening))


async def _serve(opening: Opening) -> None:
    """The first line is the queue's address. It may hold a password, so it is no argument."""
    async with opening((await _next_line()).strip()) as queue:
        _answer(count=0, began=time.monotonic())
        while line := await _next_line():
            verb, *numbers = line.split()
            began = time.monotonic()
            _answer(await _execute(queue, verb, [int(one) for one in numbers]), began)


async def _next_line() -> str:
    """Reads in a thread, so that background tasks of a library can run."""
    return await asyncio.to_thread(sys.stdin.readline)


def _answer(count: int, began: float) -> None:
    """Times are comparable across processes: the monotonic clock is the machine's."""
    answer = {"count": count, "began": began, "ended": time.monotonic()}
    print(json.dumps(answer), flush=True)


async def _execute(queue: Queue, verb: str, numbers: list[int]) -> int:
    match verb, numbers:
        case "prepare", []:
            await queue.prepare()
            return 0
        case "create", [count, size]:
            await queue.create(count, size)
            return count
        case "drain", [size]:
            return await queue.drain(size)
        case _:
            raise AssertionError(f"unknown command: {verb} {numbers}")
