"""Admission: what is taken when there is more to do than can be done.

It stands before the committer and costs nothing: it looks at how long commands wait there, and at
how many accepted operations are still to be carried out. Acknowledgments, heartbeats and whatever
else lets work come to its end always pass. Pushes are carried out, accepted for later or turned
away; pops are carried out or turned away.
"""

import asyncio
import logging
from datetime import datetime
from enum import StrEnum
from math import ceil
from typing import Self

import psycopg
from msgspec import Struct

from daybook.api.clock import now
from daybook.api.runtime.adaptive_concurrency import AdaptiveConcurrencyLimit
from daybook.domain.messages.commands import LANE_DEPTH_MAX, Backlog
from daybook.domain.messages.operation import ATTEMPTS_MAX
from daybook.eventlog.async_tasks import cancel_and_wait
from daybook.eventlog.reading.tail import Readers
from daybook.eventlog.writing.committer import Committer
from daybook.projections.messages.operations import Numbers, read_numbers

_log = logging.getLogger("daybook")

LOOK_SECONDS = 0.25
# Who was busy is no longer when half of what made it so is left: else it would change its mind with
# every batch.
HYSTERESIS = 0.5
TOGETHER_MIN = 32
# Pushes are answered in good time while that takes this part of what makes the service busy.
TARGET_SHARE = 0.52
RETRY_SECONDS_MAX = 60
# Of the places for operations, so many are taken when others are accepted again.
DRAINED_SHARE = 0.05
# When nobody was turned away for so long, what comes next is a new burst.
SHED_SECONDS = 5.0
RATE_WEIGHT = 0.3
RATE_MIN = 1.0
BACKLOG_MIN = 200
RATE_FIRST = 100.0
"""How many operations a second are thought to be carried out before that was measured."""


class Decision(StrEnum):
    EXECUTE = "execute"
    QUEUE = "queue"
    REJECT = "reject"


class Thresholds(Struct, frozen=True, kw_only=True):
    busy_seconds: float = 0.1
    """How long commands wait for their turn at a load of 1."""

    push_load_max: float = 0.7
    """Above it pushes are accepted for later."""

    push_depth_max: int = 10_000
    """With so many of them waiting, further ones are turned away."""

    push_wait_seconds_max: float = 5.0
    """So are those that could not be carried out within this time."""

    lane_depth_max: int = LANE_DEPTH_MAX
    """With so many of them waiting in one lane, further ones are turned away there."""

    operation_attempts_max: int = ATTEMPTS_MAX
    """After how many attempts one that was accepted is given up."""

    pop_load_max: float = 10.0
    """Above it pops are turned away: hardly ever, since what is popped comes to its end."""


def clamp_retry_after(seconds: float) -> int:
    """As a Retry-After says it."""
    return min(RETRY_SECONDS_MAX, max(1, ceil(seconds)))


class LoadShedder:
    def __init__(self, committer: Committer, readers: Readers, thresholds: Thresholds) -> None:
        self._committer = committer
        self._readers = readers
        self._thresholds = thresholds
        self._busy: set[float] = set()
        self._numbers = Numbers(None, 0, None, None)
        self._looked_at: float | None = None
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
        """How many operations are still to be carried out, at most."""
        return self._numbers.depth + self._queued_since

    @property
    def numbers(self) -> Numbers:
        return self._numbers

    @property
    def backlog(self) -> Backlog:
        numbers = self._numbers
        if numbers.oldest is None and self._looked_at is not None:
            # The backlog was empty at the last look: its operations were accepted since.
            return Backlog(numbers.last_drawn + 1, self.per_second)
        return Backlog(numbers.oldest, self.per_second)

    @property
    def lane_depth_max(self) -> int:
        return self._thresholds.lane_depth_max

    @property
    def operation_attempts_max(self) -> int:
        return self._thresholds.operation_attempts_max

    def decide_push(self) -> Decision:
        """Turned away first: else a busy lane would grow for ever.

        Places for operations are there for bursts. What is accepted for later is written twice, and
        all that comes into its lanes must be accepted, too; so when all places were taken, they are
        emptied first, and as long as there is still too much, whoever finds too many under way is
        turned away."""
        self._look_at_places()
        verdict = self._verdict()
        if self._is_draining or (verdict is Decision.REJECT and self._is_shedding):
            self._shed_until = asyncio.get_running_loop().time() + SHED_SECONDS
        return verdict

    def _verdict(self) -> Decision:
        if self._is_draining:
            return Decision.REJECT
        if self._is_shedding:
            # Not by the load: however slow everything is, a few are always let in.
            return Decision.REJECT if self.pushes.is_full else Decision.EXECUTE
        if self._is_overloaded:
            return Decision.REJECT
        return Decision.QUEUE if self._is_busy else Decision.EXECUTE

    @property
    def _is_busy(self) -> bool:
        is_above = self._is_above(self._thresholds.push_load_max, self.load)
        return is_above or self.pushes.is_full

    @property
    def _places(self) -> float:
        limits = self._thresholds
        return min(limits.push_depth_max, self.per_second * limits.push_wait_seconds_max)

    def _look_at_places(self) -> None:
        """From when all are taken until nearly all are free again, no others are given."""
        if self._is_draining:
            self._is_draining = self.depth > DRAINED_SHARE * self._places
        else:
            self._is_draining = self.depth >= self._places

    @property
    def _is_shedding(self) -> bool:
        return asyncio.get_running_loop().time() < self._shed_until

    @property
    def _is_overloaded(self) -> bool:
        """What is taken now is answered as late as what was taken last. When that was late, no more
        are taken together than could have been answered in good time; a few are always, so that a
        hitch turns nobody away."""
        busy_seconds = self._thresholds.busy_seconds
        seconds = max(self.waiting_seconds, self._committer.answer_seconds)
        if seconds <= busy_seconds:
            return False
        in_time = self._committer.last_count * busy_seconds / seconds
        return self._committer.patient_count > max(TOGETHER_MIN, in_time)

    def decide_pop(self) -> Decision:
        """They go before all pushes, so only what is as urgent counts."""
        load = self._committer.urgent_seconds / self._thresholds.busy_seconds
        is_above = self._is_above(self._thresholds.pop_load_max, load)
        return Decision.REJECT if is_above else Decision.EXECUTE

    def count_queued(self) -> None:
        self._queued_since += 1

    @property
    def retry_seconds(self) -> int:
        """When it is worth the while to come again: once there is room."""
        excess = self.depth - DRAINED_SHARE * self._places if self._is_draining else 0.0
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
                    self._note(await read_numbers(reader))
            except (psycopg.Error, OSError):
                pass
            except Exception:
                _log.exception("The accepted operations could not be looked at.")
            await asyncio.sleep(LOOK_SECONDS)

    def _measured(self, rate: float, depth: int) -> float:
        """Where few are left, more might have been carried out than there were."""
        if depth < BACKLOG_MIN:
            return max(rate, self.per_second)
        return RATE_WEIGHT * rate + (1 - RATE_WEIGHT) * self.per_second

    def _note(self, numbers: Numbers) -> None:
        loop_time = asyncio.get_running_loop().time()
        before = self._numbers
        if before.oldest is not None and self._looked_at is not None:
            reached = numbers.last_drawn + 1 if numbers.oldest is None else numbers.oldest
            rate = (reached - before.oldest) / (loop_time - self._looked_at)
            self.per_second = max(RATE_MIN, self._measured(rate, numbers.depth))
        self._numbers, self._looked_at, self._queued_since = numbers, loop_time, 0
        self.updated_at = now()
