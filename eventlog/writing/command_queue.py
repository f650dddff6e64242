"""Commands that wait for their turn, and how long they do."""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any

from daybook.domain.command import Command
from daybook.eventlog.origin import Origin, Receipt
from daybook.eventlog.writing.batch import Told
from daybook.eventlog.writing.batch_needs import SubmittedCommand
from daybook.eventlog.writing.idempotency import IdempotencyKey

# How much the last batch counts in what is told of the last ones, and for how long.
LAST_WEIGHT = 0.3
RECENT_SECONDS = 1.0


class QueuedCommand(SubmittedCommand):
    """A submission with the caller who waits for it."""

    __slots__ = ("arrived_at", "deadline", "future", "repeats_count", "weight")

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
        self.repeats_count = 0
        self.weight = self.reads.weight

    def tell(self, answer: Told) -> None:
        if self.future.done():
            return
        if isinstance(answer, Receipt):
            self.future.set_result(answer)
        else:
            self.future.set_exception(answer)


class RecentAverage:
    """A duration as it was lately: 0 when nothing was measured within the last second."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._noted_at = 0.0

    @property
    def seconds(self) -> float:
        return self._seconds if self._is_recent(asyncio.get_running_loop().time()) else 0.0

    def note_since(self, moment: float) -> None:
        now = asyncio.get_running_loop().time()
        seconds = now - moment
        if self._is_recent(now):
            seconds = LAST_WEIGHT * seconds + (1 - LAST_WEIGHT) * self._seconds
        self._seconds, self._noted_at = seconds, now

    def _is_recent(self, now: float) -> bool:
        return now - self._noted_at < RECENT_SECONDS


class CommandQueue:
    """Those who wait, the oldest in front."""

    def __init__(self) -> None:
        self._waiting: deque[QueuedCommand] = deque()
        self._waited = RecentAverage()

    @property
    def first(self) -> QueuedCommand | None:
        return self._waiting[0] if self._waiting else None

    def __len__(self) -> int:
        return len(self._waiting)

    def append(self, waiting: QueuedCommand) -> None:
        self._waiting.append(waiting)

    def put_back(self, waiting: Sequence[QueuedCommand]) -> None:
        self._waiting.extendleft(reversed(waiting))

    def take(self) -> QueuedCommand:
        return self._waiting.popleft()

    @property
    def waiting_seconds(self) -> float:
        """Of the one in front until now, or of those who were taken within the last second."""
        if not self._waiting:
            return self._waited.seconds
        front = asyncio.get_running_loop().time() - self._waiting[0].arrived_at
        return max(front, self._waited.seconds)

    def note_wait(self) -> None:
        """Before a batch is taken."""
        if self._waiting:
            self._waited.note_since(self._waiting[0].arrived_at)
