"""The depth limit of queues (DAYBOOK_QUEUE_DEPTH_MAX).

It rejects new jobs only. Follow-ups, retries, transactions and deferred pushes finish work that has
begun, and still enter a full queue.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus

from msgspec import Struct
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from daybook.api.endpoints.command import Submission
from daybook.api.http.problems import RETRY_AFTER, BadInputError
from daybook.api.telemetry import counters
from daybook.domain.jobs.job import NewJob
from daybook.eventlog.origin import Receipt
from daybook.eventlog.writing.idempotency import find_key
from daybook.projections.jobs.queue_stats import QueueStats, read_queue_stats

# A count is cached for this time, less the jobs admitted since, because counting is slow.
CACHE_SECONDS = 0.5
QUEUES_MAX = 10_000

Query = Callable[[AsyncConnection[TupleRow]], Awaitable[list[QueueStats]]]
Read = Callable[[Query], Awaitable[list[QueueStats]]]


async def enqueues(enqueue: Submission) -> Receipt:
    """Submits a command that puts `new` jobs into queues, once it has reserved their slots."""
    await reserve_slots(enqueue)
    return await enqueue.submit()


async def reserve_slots(enqueue: Submission) -> None:
    """Raises queue_full, unless this is a retry, which gets the stored response."""
    context, key = enqueue.context, enqueue.key
    try:
        await context.scope["app"].queue_depth_limit.reserve(enqueue.command.new)
    except BadInputError:
        if key is None or not await context.service.read(lambda one: find_key(one, key.scope)):
            raise


class FreeSlots(Struct):
    count: int
    counted_at: float


class QueueDepthLimit:
    def __init__(self, read: Read, depth_max: int | None) -> None:
        self._read = read
        self._depth_max = depth_max
        self._slots: dict[str, FreeSlots] = {}
        self._counting = asyncio.Lock()

    async def reserve(self, new: Iterable[NewJob]) -> None:
        """Reserves slots for all jobs, or raises queue_full for all."""
        if self._depth_max is None:
            return
        wanted = Counter(one.queue for one in new)
        slots = {queue: await self._free_slots(queue, self._depth_max) for queue in wanted}
        for queue, count in wanted.items():
            if slots[queue].count < count:
                counters.LIMIT_HITS.labels("queue_depth").inc()
                raise queue_full(queue, self._depth_max)
        for queue, count in wanted.items():
            slots[queue].count -= count

    async def _free_slots(self, queue: str, depth_max: int) -> FreeSlots:
        if (cached := self._cached(queue)) is not None:
            return cached
        # Concurrent requests share one count, instead of each admitting a full one.
        async with self._counting:
            if (cached := self._cached(queue)) is not None:
                return cached
            if len(self._slots) >= QUEUES_MAX:
                self._slots.clear()
            now = asyncio.get_running_loop().time()
            free = self._slots[queue] = FreeSlots(await self._count_free(queue, depth_max), now)
            return free

    def _cached(self, queue: str) -> FreeSlots | None:
        free = self._slots.get(queue)
        now = asyncio.get_running_loop().time()
        return free if free is not None and now - free.counted_at < CACHE_SECONDS else None

    async def _count_free(self, queue: str, depth_max: int) -> int:
        stats = await self._read(
            lambda reader: read_queue_stats(reader, name=queue, count_max=depth_max)
        )
        return depth_max - sum(one.pending + one.scheduled + one.behind for one in stats)


def queue_full(queue: str, depth_max: int) -> BadInputError:
    return BadInputError(
        HTTPStatus.TOO_MANY_REQUESTS,
        "queue_full",
        f"The queue {queue} has reached its limit of {depth_max} waiting jobs. Nothing was done; "
        "send it again later.",
        headers=RETRY_AFTER,
    )
