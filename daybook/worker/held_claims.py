"""Claims of a worker, from the claim response until the result is reported."""

import asyncio
import time
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct

from daybook.client.jobs import ClaimedJob


class Lease(Struct, frozen=True, kw_only=True):
    """How long a claim lasts without a heartbeat, and the heartbeat interval."""

    seconds: float
    heartbeat_seconds: float | None = None
    """By default a third of the lease."""

    @property
    def beat_seconds(self) -> float:
        return self.heartbeat_seconds or self.seconds / 3


FIVE_MINUTE_LEASE = Lease(seconds=300, heartbeat_seconds=30)


class HeldClaim:
    __slots__ = (
        "_received_at",
        "beat_at",
        "is_interrupted",
        "is_lost",
        "job",
        "lease",
        "lease_ends_at",
        "task",
    )

    def __init__(self, job: ClaimedJob, lease: Lease | None) -> None:
        self.job = job
        self.lease = lease or Lease(seconds=job.lease_seconds)
        self.task: asyncio.Task[Any] | None = None
        self.is_lost = False
        self.is_interrupted = False
        self._received_at = time.monotonic()
        self.renew(self._received_at)

    def renew(self, at: float) -> None:
        self.beat_at = at + self.lease.beat_seconds
        self.lease_ends_at = at + self.lease.seconds

    @property
    def age_seconds(self) -> float:
        return time.monotonic() - self._received_at

    @property
    def server_now(self) -> datetime:
        """The service's time, derived from `lease_until`: this machine's clock may be wrong."""
        claimed_at = self.job.lease_until - timedelta(seconds=self.lease.seconds)
        return claimed_at + timedelta(seconds=self.age_seconds)
