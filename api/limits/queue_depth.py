"""Room in queues, where there is a limit to how many jobs may wait in one.

What begins something is turned away from a full queue. What lets something come to its end is not:
follow-ups, retries, transactions and what was accepted for later still go in.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus
from typing import Any, Generic

from msgspec import Struct
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from daybook.api.endpoints.command import A, B, CommandEndpoint, RawHeaders, RequestContext
from daybook.api.http.problems import RETRY_AFTER, BadInputError
from daybook.api.telemetry import counters
from daybook.domain.jobs.create import NewJob
from daybook.eventlog.origin import Origin, StoredResponse
from daybook.eventlog.writing.idempotency import IdempotencyKey, find_key
from daybook.projections.jobs.queue_stats import QueueStats, read_standings

# For so long what was counted is believed, less what was let in since: to count takes its time.
LOOK_SECONDS = 0.5
QUEUES_MAX = 10_000

Query = Callable[[AsyncConnection[TupleRow]], Awaitable[list[QueueStats]]]
Read = Callable[[Query], Awaitable[list[QueueStats]]]


class EnqueueEndpoint(CommandEndpoint[B, A], Generic[B, A]):
    """One whose command puts `new` jobs into queues."""

    problems = (HTTPStatus.TOO_MANY_REQUESTS,)

    async def submit(
        self, context: RequestContext, command: Any, origin: Origin, key: IdempotencyKey | None
    ) -> tuple[StoredResponse, RawHeaders]:
        try:
            await context.scope["app"].queue_depth_limit.take(command.new)
        except BadInputError:
            if key is None or not await self._was_answered(context, key):
                raise
        return await super().submit(context, command, origin, key)

    async def _was_answered(self, context: RequestContext, key: IdempotencyKey) -> bool:
        """What is sent again needs no room: it gets the answer that it got."""
        return await context.service.read(lambda reader: find_key(reader, key.scope)) is not None


class FreeSlots(Struct):
    left: int
    looked_at: float


class QueueDepthLimit:
    def __init__(self, read: Read, depth_max: int | None) -> None:
        self._read = read
        self._depth_max = depth_max
        self._rooms: dict[str, FreeSlots] = {}
        self._looking = asyncio.Lock()

    async def take(self, new: Iterable[NewJob]) -> None:
        """Counts them in, or refuses them all."""
        if self._depth_max is None:
            return
        wanted = Counter(one.queue for one in new)
        rooms = {queue: await self._room(queue, self._depth_max) for queue in wanted}
        for queue, count in wanted.items():
            if rooms[queue].left < count:
                counters.LIMIT_HITS.labels("queue_depth").inc()
                raise queue_full(queue, self._depth_max)
        for queue, count in wanted.items():
            rooms[queue].left -= count

    async def _room(self, queue: str, depth_max: int) -> FreeSlots:
        if (known := self._known(queue)) is not None:
            return known
        # Those who come at once take from the same room, and not each from one of their own.
        async with self._looking:
            if (known := self._known(queue)) is not None:
                return known
            if len(self._rooms) >= QUEUES_MAX:
                self._rooms.clear()
            now = asyncio.get_running_loop().time()
            room = self._rooms[queue] = FreeSlots(await self._left(queue, depth_max), now)
            return room

    def _known(self, queue: str) -> FreeSlots | None:
        room = self._rooms.get(queue)
        now = asyncio.get_running_loop().time()
        return room if room is not None and now - room.looked_at < LOOK_SECONDS else None

    async def _left(self, queue: str, depth_max: int) -> int:
        standings = await self._read(
            lambda reader: read_standings(reader, name=queue, count_max=depth_max)
        )
        return depth_max - sum(one.pending + one.scheduled + one.behind for one in standings)


def queue_full(queue: str, depth_max: int) -> BadInputError:
    return BadInputError(
        HTTPStatus.TOO_MANY_REQUESTS,
        "queue_full",
        f"{depth_max} jobs may wait in a queue, and {queue} has no room for more: nothing was "
        "done, so send it again later.",
        headers=RETRY_AFTER,
    )
