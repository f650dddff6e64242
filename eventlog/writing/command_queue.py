"""Queues of submitted commands, with their waiting times."""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any

from daybook.domain.command import Command, weight_of
from daybook.eventlog.origin import Origin, Receipt
from daybook.eventlog.writing.batch import Outcome
from daybook.eventlog.writing.batch_needs import SubmittedCommand
from daybook.eventlog.writing.idempotency import IdempotencyKey

# Smoothing factor of the moving average, and the age after which it expires.
LAST_WEIGHT = 0.3
RECENT_SECONDS = 1.0


class QueuedCommand(SubmittedCommand):
    """A submitted command with the future of its caller."""

    __slots__ = ("arrived_at", "deadline", "future", "retries_count", "weight")

    def __init__(
        self,
        command: Command[Any],
        origin: Origin,
        key: IdempotencyKey | None,
        deadline_seconds: float,
    ) -> None:
        super().__init__(command, origin, key)
        loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Receipt] = loop.create_future()
        self.arrived_at = loop.time()
        self.deadline = self.arrived_at + deadline_seconds
        self.retries_count = 0
        self.weight = weight_of(self.needs)

    def resolve(self, outcome: Outcome) -> None:
        if self.future.done():
            return
        if isinstance(outcome, Receipt):
            self.future.set_result(outcome)
        else:
            self.future.set_exception(outcome)


class RecentAverage:
    """Moving average of a duration; 0 if nothing was measured within RECENT_SECONDS."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._measured_at = 0.0

    @property
    def seconds(self) -> float:
        return self._seconds if self._is_recent(asyncio.get_running_loop().time()) else 0.0

    def observe_since(self, start: float) -> None:
        now = asyncio.get_running_loop().time()
        seconds = now - start
        if self._is_recent(now):
            seconds = LAST_WEIGHT * seconds + (1 - LAST_WEIGHT) * self._seconds
        self._seconds, self._measured_at = seconds, now

    def _is_recent(self, now: float) -> bool:
        return now - self._measured_at < RECENT_SECONDS


class CommandQueue:
    """First in, first out."""

    def __init__(self) -> None:
        self._waiting: deque[QueuedCommand] = deque()
        self._average = RecentAverage()

    @property
    def first(self) -> QueuedCommand | None:
        return self._waiting[0] if self._waiting else None

    def __len__(self) -> int:
        return len(self._waiting)

    def append(self, command: QueuedCommand) -> None:
        self._waiting.append(command)

    def put_back(self, commands: Sequence[QueuedCommand]) -> None:
        self._waiting.extendleft(reversed(commands))

    def take(self) -> QueuedCommand:
        return self._waiting.popleft()

    @property
    def waiting_seconds(self) -> float:
        """The wait of the oldest command, or the recent average if that is longer."""
        if not self._waiting:
            return self._average.seconds
        oldest = asyncio.get_running_loop().time() - self._waiting[0].arrived_at
        return max(oldest, self._average.seconds)

    def measure_wait(self) -> None:
        """Adds the oldest command's wait to the average; called before a batch is taken."""
        if self._waiting:
            self._average.observe_since(self._waiting[0].arrived_at)
