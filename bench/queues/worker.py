"""What a worker process does: it creates jobs and drains them, when it is told to.

It is told line by line and answers line by line, so that what it takes to start and to connect is
in no figure. The interpreter of the peers runs this too: it imports nothing that only ours has.
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

# What every job is and carries, whichever queue it is in.
QUEUE = "bench"
TYPE = "nothing"
PAYLOAD = {"booking": 4711, "template": "confirmation"}


class Queue(Protocol):
    async def prepare(self) -> None:
        """Make what the queue needs in an empty database."""

    async def create(self, count: int, size: int) -> None:
        """Create so many jobs, `size` at a time."""

    async def drain(self, size: int) -> int:
        """Claim and complete jobs, `size` at a time, until none is left; how many there were."""


Opening = Callable[[str], AbstractAsyncContextManager[Queue]]


def main(name: str) -> None:
    opening: Opening = importlib.import_module(f"bench.queues.{name}").opened
    # Ctrl-C reaches the workers too; the bench says all there is to say.
    with suppress(KeyboardInterrupt):
        uvloop.run(_obey(opening))


async def _obey(opening: Opening) -> None:
    """The first line says where the queue is; it may hold a password, so it is no argument."""
    async with opening((await _next_line()).strip()) as queue:
        _answer(count=0, began=time.monotonic())
        while order := await _next_line():
            verb, *numbers = order.split()
            began = time.monotonic()
            _answer(await _carry_out(queue, verb, [int(one) for one in numbers]), began)


async def _next_line() -> str:
    """Read in a thread: a library may have work of its own to do meanwhile."""
    return await asyncio.to_thread(sys.stdin.readline)


def _answer(count: int, began: float) -> None:
    """The monotonic clock is the machine's, so these times compare with those of other workers."""
    answer = {"count": count, "began": began, "ended": time.monotonic()}
    print(json.dumps(answer), flush=True)


async def _carry_out(queue: Queue, verb: str, numbers: list[int]) -> int:
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
            raise AssertionError(f"nobody can {verb} {numbers}")
