"""Sends heartbeats: one request extends the leases of up to 1,000 claims.

Marks claims as lost when the service says so, or when no heartbeat succeeded for a whole lease,
after which another worker may have the job.
"""

import asyncio
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from uuid import UUID

from msgspec.structs import replace

from daybook.client import job_requests
from daybook.client.client import AsyncClient
from daybook.errors import DaybookError
from daybook.worker.held_claims import HeldClaim, Lease
from daybook.worker.worker_log import logger

BATCH_MAX = 1000
# Retries of a failed heartbeat within one lease.
RETRIES_PER_LEASE = 10


class HeartbeatSender:
    def __init__(
        self,
        client: AsyncClient,
        *,
        held: Mapping[UUID, HeldClaim],
        lease: Lease | None,
        on_lost: Callable[[HeldClaim], None],
    ) -> None:
        """`held` is shared with the run loop; without `lease` each claim has its job's lease."""
        self._client = client
        self._held = held
        self._lease_seconds = lease.seconds if lease else None
        self._on_lost = on_lost
        self._changed = asyncio.Event()

    def claims_changed(self) -> None:
        """Recomputes the next heartbeat: a new claim may be due first."""
        self._changed.set()

    async def run(self) -> None:
        while True:
            self._changed.clear()
            due_at = min((held.beat_at for held in self._alive()), default=math.inf)
            seconds = None if due_at == math.inf else max(0.0, due_at - time.monotonic())
            try:
                async with asyncio.timeout(seconds):
                    await self._changed.wait()
            except TimeoutError:
                await self._send_all()

    def _alive(self) -> Iterator[HeldClaim]:
        return (held for held in list(self._held.values()) if not held.is_lost)

    async def _send_all(self) -> None:
        now = time.monotonic()
        for held in self._alive():
            if held.lease_ends_at <= now:
                self._on_lost(held)
        alive = self._alive()
        while batch := list(islice(alive, BATCH_MAX)):
            await self._send(batch)

    async def _send(self, batch: Sequence[HeldClaim]) -> None:
        shortest_seconds = min(held.lease.seconds for held in batch)
        request = job_requests.heartbeat_many(
            (held.job for held in batch), lease_seconds=self._lease_seconds
        )
        seconds_max = min(request.answer_seconds_max, shortest_seconds / 3)
        sent_at = time.monotonic()
        try:
            answer = await self._client.send(
                replace(request, answer_seconds_max=seconds_max), seconds_max=0
            )
        except DaybookError as error:
            logger.warning("heartbeat:failed", extra={"code": error.code, "error": str(error)})
            self._schedule_retry(batch)
            return
        for held in batch:
            held.renew(sent_at)
        for claim_id in answer.lost:
            if claim_id in self._held:
                self._on_lost(self._held[claim_id])

    def _schedule_retry(self, batch: Sequence[HeldClaim]) -> None:
        now = time.monotonic()
        for held in batch:
            retry_at = now + held.lease.seconds / RETRIES_PER_LEASE
            held.beat_at = min(retry_at, held.lease_ends_at)
