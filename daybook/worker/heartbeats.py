"""The sign of life: one call for all claims, before any of their leases is over.

Owns the knowledge of which claims are lost: because the service says so, or because nobody could
be told for a whole lease, after which another worker may have the job.
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
# What has failed is tried again this many times before the lease is over.
TRIES_PER_LEASE = 10


class HeartbeatSender:
    def __init__(
        self,
        client: AsyncClient,
        *,
        held: Mapping[UUID, HeldClaim],
        lease: Lease | None,
        on_lost: Callable[[HeldClaim], None],
    ) -> None:
        """`held` changes as claims come and go; without a `lease` each has its job's own."""
        self._client = client
        self._held = held
        self._lease_seconds = lease.seconds if lease else None
        self._on_lost = on_lost
        self._changed = asyncio.Event()

    def claims_changed(self) -> None:
        """There are new claims, which may be due before all others."""
        self._changed.set()

    async def run(self) -> None:
        while True:
            self._changed.clear()
            due_at = min((held.beat_at for held in self._alive()), default=math.inf)
            # Nothing may be due at all, which no timer is needed for.
            seconds = None if due_at == math.inf else max(0.0, due_at - time.monotonic())
            try:
                async with asyncio.timeout(seconds):
                    await self._changed.wait()
            except TimeoutError:
                await self._beat_all()

    def _alive(self) -> Iterator[HeldClaim]:
        return (held for held in list(self._held.values()) if not held.is_lost)

    async def _beat_all(self) -> None:
        now = time.monotonic()
        for held in self._alive():
            if held.lease_ends_at <= now:
                self._on_lost(held)
        alive = self._alive()
        while batch := list(islice(alive, BATCH_MAX)):
            await self._beat(batch)

    async def _beat(self, batch: Sequence[HeldClaim]) -> None:
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
            self._try_again(batch)
            return
        for held in batch:
            held.renew(sent_at)
        for claim_id in answer.lost:
            if claim_id in self._held:
                self._on_lost(self._held[claim_id])

    def _try_again(self, batch: Sequence[HeldClaim]) -> None:
        now = time.monotonic()
        for held in batch:
            again_at = now + held.lease.seconds / TRIES_PER_LEASE
            held.beat_at = min(again_at, held.lease_ends_at)
