"""Load shedding: pushes are executed, deferred or rejected; pops are executed or rejected.

Decisions use the committer's queueing time and the backlog of deferred pushes, and cost no query.
Acknowledgments, heartbeats and other requests that finish work always pass.
"""

import asyncio
import logging
from datetime import datetime
from enum import StrEnum
from typing import Self

import psycopg
from msgspec import Struct

from daybook.api.clock import now
from daybook.api.http.problems import clamp_retry_after
from daybook.api.runtime.adaptive_concurrency import AdaptiveConcurrencyLimit
from daybook.domain.messages.commands import LANE_DEPTH_MAX, Backlog
from daybook.domain.messages.operation import ATTEMPTS_MAX
from daybook.eventlog.async_tasks import cancel_and_wait
from daybook.eventlog.reading.tail import Readers
from daybook.eventlog.writing.committer import Committer
from daybook.projections.messages.operations import BacklogNumbers, read_backlog

_log = logging.getLogger("daybook")

REFRESH_SECONDS = 0.25
# A load counts as high until it falls below this share of its threshold, so that the decision does
# not flip with every batch.
HYSTERESIS = 0.5
# Commands that are always admitted together, so that a short stall rejects no request.
CONCURRENT_MIN = 32
# Target push latency as a share of push_load_max * busy_seconds.
TARGET_SHARE = 0.52
# Pushes are deferred again once the backlog is below this share of its limit.
DRAINED_SHARE = 0.05
# After this time without a rejection, the next overload counts as a new burst.
SHED_SECONDS = 5.0
RATE_WEIGHT = 0.3
RATE_MIN = 1.0
# Below this backlog the measured rate is only a lower bound.
BACKLOG_MIN = 200
# Operations per second assumed before the first measurement.
RATE_FIRST = 100.0


class Decision(StrEnum):
    EXECUTE = "execute"
    QUEUE = "queue"
    REJECT = "reject"


class Thresholds(Struct, frozen=True, kw_only=True):
    """The settings of load shedding, described in api/settings/settings.py."""

    busy_seconds: float = 0.1
    push_load_max: float = 0.7
    push_depth_max: int = 10_000
    push_wait_seconds_max: float = 5.0
    lane_depth_max: int = LANE_DEPTH_MAX
    operation_attempts_max: int = ATTEMPTS_MAX
    pop_load_max: float = 10.0
    """High, because pops finish work."""


class LoadShedder:
    def __init__(self, committer: Committer, readers: Readers, thresholds: Thresholds) -> None:
        self._committer = committer
        self._readers = readers
        self._thresholds = thresholds
        self._busy: set[float] = set()
        self._numbers = BacklogNumbers(None, 0, None, None)
        self._refreshed_at: float | None = None
        self._queued_since = 0
        self.pushes = AdaptiveConcurrencyLimit(
            TARGET_SHARE * thresholds.push_load_max * thresholds.busy_seconds
        )
        self._is_draining = False
        self._shed_until = 0.0
        self._tasks: list[asyncio.Task[None]] = []
        self.per_second = RATE_FIRST
        self.updated_at: datetime = now()

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._run())]
        return self

    async def __aexit__(self, *_: object) -> None:
        await cancel_and_wait(self._tasks)

    @property
    def waiting_seconds(self) -> float:
        return self._committer.waiting_seconds

    @property
    def load(self) -> float:
        return self.waiting_seconds / self._thresholds.busy_seconds

    @property
    def depth(self) -> int:
        """Upper bound of the number of deferred pushes that wait for execution."""
        return self._numbers.depth + self._queued_since

    @property
    def numbers(self) -> BacklogNumbers:
        return self._numbers

    @property
    def backlog(self) -> Backlog:
        numbers = self._numbers
        if numbers.oldest is None and self._refreshed_at is not None:
            # The backlog was empty at the last refresh: its operations are newer.
            return Backlog(numbers.last_drawn + 1, self.per_second)
        return Backlog(numbers.oldest, self.per_second)

    @property
    def lane_depth_max(self) -> int:
        return self._thresholds.lane_depth_max

    @property
    def operation_attempts_max(self) -> int:
        return self._thresholds.operation_attempts_max

    def decide_push(self) -> Decision:
        """Rejects before it defers: otherwise a busy lane would grow without bound.

        Deferring is for bursts: a deferred push is written twice, and later pushes to its lane must
        be deferred too. So a full backlog is drained first. While the overload lasts, pushes are
        then executed up to the concurrency limit, and rejected beyond it.
        """
        self._update_draining()
        decision = self._decide()
        if self._is_draining or (decision is Decision.REJECT and self._is_shedding):
            self._shed_until = asyncio.get_running_loop().time() + SHED_SECONDS
        return decision

    def _decide(self) -> Decision:
        if self._is_draining:
            return Decision.REJECT
        if self._is_shedding:
            # By concurrency, not by load: however slow the database is, a few pushes pass.
            return Decision.REJECT if self.pushes.is_full else Decision.EXECUTE
        if self._is_overloaded:
            return Decision.REJECT
        return Decision.QUEUE if self._is_busy else Decision.EXECUTE

    @property
    def _is_busy(self) -> bool:
        is_above = self._is_above(self._thresholds.push_load_max, self.load)
        return is_above or self.pushes.is_full

    @property
    def _backlog_max(self) -> float:
        limits = self._thresholds
        return min(limits.push_depth_max, self.per_second * limits.push_wait_seconds_max)

    def _update_draining(self) -> None:
        """Draining lasts from a full backlog until it falls to DRAINED_SHARE."""
        if self._is_draining:
            self._is_draining = self.depth > DRAINED_SHARE * self._backlog_max
        else:
            self._is_draining = self.depth >= self._backlog_max

    @property
    def _is_shedding(self) -> bool:
        return asyncio.get_running_loop().time() < self._shed_until

    @property
    def _is_overloaded(self) -> bool:
        """Whether latency exceeds busy_seconds, and more commands wait than could be answered
        within it. CONCURRENT_MIN are always admitted, so that a stall rejects no request."""
        busy_seconds = self._thresholds.busy_seconds
        seconds = max(self.waiting_seconds, self._committer.answer_seconds)
        if seconds <= busy_seconds:
            return False
        in_time = self._committer.last_count * busy_seconds / seconds
        return self._committer.normal_priority_count > max(CONCURRENT_MIN, in_time)

    def decide_pop(self) -> Decision:
        """Pops have priority over pushes, so only the urgent queue counts."""
        load = self._committer.high_priority_wait_seconds / self._thresholds.busy_seconds
        is_above = self._is_above(self._thresholds.pop_load_max, load)
        return Decision.REJECT if is_above else Decision.EXECUTE

    def count_queued(self) -> None:
        self._queued_since += 1

    @property
    def retry_seconds(self) -> int:
        """Estimated seconds until a rejected push can be accepted."""
        excess = self.depth - DRAINED_SHARE * self._backlog_max if self._is_draining else 0.0
        return clamp_retry_after(max(excess / self.per_second, self.waiting_seconds))

    def _is_above(self, threshold: float, load: float) -> bool:
        if load > threshold:
            self._busy.add(threshold)
        elif load < HYSTERESIS * threshold:
            self._busy.discard(threshold)
        return threshold in self._busy

    async def _run(self) -> None:
        while True:
            try:
                async with self._readers.connection() as reader:
                    self._update(await read_backlog(reader))
            except (psycopg.Error, OSError):
                pass
            except Exception:
                _log.exception("The backlog of deferred pushes could not be read.")
            await asyncio.sleep(REFRESH_SECONDS)

    def _smoothed_rate(self, rate: float, depth: int) -> float:
        """A small backlog limits the measured rate, so it can only raise the estimate."""
        if depth < BACKLOG_MIN:
            return max(rate, self.per_second)
        return RATE_WEIGHT * rate + (1 - RATE_WEIGHT) * self.per_second

    def _update(self, numbers: BacklogNumbers) -> None:
        loop_time = asyncio.get_running_loop().time()
        before = self._numbers
        if before.oldest is not None and self._refreshed_at is not None:
            reached = numbers.last_drawn + 1 if numbers.oldest is None else numbers.oldest
            rate = (reached - before.oldest) / (loop_time - self._refreshed_at)
            self.per_second = max(RATE_MIN, self._smoothed_rate(rate, numbers.depth))
        self._numbers, self._refreshed_at, self._queued_since = numbers, loop_time, 0
        self.updated_at = now()
