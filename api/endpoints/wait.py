"""Waits of queries: the answer is read again after commits until it is final."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from starlette.requests import Request

from daybook.api.endpoints.query import service_of
from daybook.api.keys.access import is_key_valid, unknown_key
from daybook.domain.event import Decider

# How often a wait checks for a stop, a revoked key and a disconnected client.
POLL_SECONDS = 0.5
# A busy service notifies constantly: limits the rate of reads.
PAUSE_SECONDS = 0.05

T = TypeVar("T")


async def read_until(
    request: Request,
    read: Callable[[], Awaitable[T]],
    is_final: Callable[[T], bool],
    *,
    decider: Decider[Any],
    seconds: float,
) -> T:
    """Returns the first final answer, or the last one after `seconds`, when the service stops and
    when the client disconnects. Events of the decider's aggregates wake it. Raises 401 once the
    caller's key is revoked."""
    service, loop = service_of(request), asyncio.get_running_loop()
    deadline = loop.time() + seconds
    with service.notifier.listener(kinds=frozenset({decider.name})) as listener:
        while True:
            answer = await read()
            if not is_key_valid(request):
                raise unknown_key()
            left = deadline - loop.time()
            is_over = left <= 0 or service.job_waiters.is_closing
            if is_final(answer) or is_over or await request.is_disconnected():
                return answer
            await asyncio.sleep(min(left, PAUSE_SECONDS))
            await listener.wait(min(deadline - loop.time(), POLL_SECONDS))
