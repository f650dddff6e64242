"""Scheduling: QStash is asked to call back when a claim is due.

Nothing waits for it. A claim is made before QStash hears of it, a publish that fails is repeated
until the claim is due, and what QStash never calls back for is completed without it. A process
that takes over asks again for every open claim; the claim's id keeps that from being two calls.
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

# How long after its due time a claim waits for the callback, before it is completed without.
GRACE_SECONDS = 1.0
PUBLISHES_MAX = 16
BACKOFF_SECONDS_MIN = 0.5
BACKOFF_SECONDS_MAX = 8.0

# As many as there are busy bots.
FIND_COMING_CLAIMS = """
SELECT id, bot_id, claim_id, extract(epoch FROM due_at - clock_timestamp())::float8
FROM orders
WHERE bot_id IS NOT NULL AND mode = 'timer' AND due_at > clock_timestamp()
ORDER BY due_at
"""


class Scheduling(Processor):
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
        """Until QStash has it, or there is nothing left to wait for."""
        loop = asyncio.get_running_loop()
        due = loop.time() + claim.seconds
        pause_seconds = BACKOFF_SECONDS_MIN
        while (seconds_left := due - loop.time()) > 0:
            if await self._ask(claim, ceil(seconds_left)):
                return
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, BACKOFF_SECONDS_MAX)

    async def _ask(self, claim: OpenClaim, delay_seconds: int) -> bool:
        """Returns whether there is nothing more to ask for."""
        completion = CompletionMessage(
            order_id=claim.order_id, bot_id=claim.bot_id, claim_id=claim.id
        )
        try:
            async with self._turns:
                await self._qstash.publish(completion, delay_seconds=delay_seconds)
        except PublishError as error:
            _log.warning(
                "The completion of order %s could not be scheduled: %s", claim.order_id, error
            )
            return not error.retryable
        return True


async def _find_coming(connection: AsyncConnection[TupleRow]) -> list[OpenClaim]:
    rows = await (await connection.execute(FIND_COMING_CLAIMS)).fetchall()
    return [OpenClaim(*row) for row in rows]
