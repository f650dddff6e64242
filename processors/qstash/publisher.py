"""Schedules a QStash callback for the due time of each timer claim.

A failed publish is retried until the claim is due. Orders without a callback are completed by
OrderTimers. A new leader publishes every open claim again; the claim id deduplicates.
"""

import asyncio
import logging
from math import ceil
from typing import ClassVar
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from daybook.domain.orders.order import ORDER
from daybook.eventlog.async_tasks import cancel_and_wait
from daybook.processors.due_order_claims import OpenClaim
from daybook.processors.processor import POLL_SECONDS, Processor, Runtime, Session, WakesOn
from daybook.processors.qstash.client import CompletionMessage, PublishError, QStash

_log = logging.getLogger("daybook")

# Wait for the callback after the due time, before OrderTimers completes the order.
GRACE_SECONDS = 1.0
PUBLISHES_MAX = 16
BACKOFF_SECONDS_MIN = 0.5
BACKOFF_SECONDS_MAX = 8.0

# Reads one row per busy bot.
FIND_COMING_CLAIMS = """
SELECT id, bot_id, claim_id, extract(epoch FROM due_at - clock_timestamp())::float8
FROM orders
WHERE bot_id IS NOT NULL AND mode = 'timer' AND due_at > clock_timestamp()
ORDER BY due_at
"""


class QStashCallbacks(Processor):
    name: ClassVar[str] = "scheduling"
    wakes_on: ClassVar[WakesOn] = (ORDER,)
    pause_seconds: ClassVar[float] = 0.1

    def __init__(self, qstash: QStash) -> None:
        self._qstash = qstash
        self._publishing: dict[UUID, asyncio.Task[None]] = {}
        self._turns = asyncio.Semaphore(PUBLISHES_MAX)

    async def work(self, runtime: Runtime, session: Session) -> float:  # noqa: ARG002 (the base's)
        if not session.is_leader:
            return POLL_SECONDS
        coming = {claim.id: claim for claim in await _find_coming(session.connection)}
        for claim_id in self._publishing.keys() - coming.keys():
            self._publishing.pop(claim_id).cancel()
        for claim_id in coming.keys() - self._publishing.keys():
            publish = self._publish(coming[claim_id])
            self._publishing[claim_id] = asyncio.create_task(publish)
        return POLL_SECONDS

    async def close(self) -> None:
        await cancel_and_wait(self._publishing.values())
        await self._qstash.aclose()

    async def _publish(self, claim: OpenClaim) -> None:
        """Retries with backoff until QStash has confirmed or the claim is due."""
        loop = asyncio.get_running_loop()
        due = loop.time() + claim.seconds
        pause_seconds = BACKOFF_SECONDS_MIN
        while (seconds_left := due - loop.time()) > 0:
            if await self._try_publish(claim, ceil(seconds_left)):
                return
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, BACKOFF_SECONDS_MAX)

    async def _try_publish(self, claim: OpenClaim, delay_seconds: int) -> bool:
        """Returns False if a retry may succeed."""
        completion = CompletionMessage(
            order_id=claim.order_id, bot_id=claim.bot_id, claim_id=claim.id
        )
        try:
            async with self._turns:
                await self._qstash.publish(completion, delay_seconds=delay_seconds)
        except PublishError as error:
            _log.warning("callback for order %s could not be scheduled: %s", claim.order_id, error)
            return not error.retryable
        return True


async def _find_coming(connection: AsyncConnection[TupleRow]) -> list[OpenClaim]:
    rows = await (await connection.execute(FIND_COMING_CLAIMS)).fetchall()
    return [OpenClaim(*row) for row in rows]
