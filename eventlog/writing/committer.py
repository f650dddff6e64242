"""The committer: the only way to append to the log.

Handlers submit commands to their process's committer, which commits all waiting commands as one
batch, without a timer: batches grow with the load. Guarantees for each command, also when the
connection or the server fails: its outcome is true (after a lost COMMIT the log is read, nothing is
repeated blindly), and a command that misses its deadline fails and has no effect later.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Self

from daybook.domain.command import Command, CommandPriority, priority_of
from daybook.eventlog.codec import EventMapper
from daybook.eventlog.errors import UnavailableError
from daybook.eventlog.origin import Origin, Receipt
from daybook.eventlog.postgres.connections import writer_conninfo
from daybook.eventlog.writing.batch import Batch
from daybook.eventlog.writing.command_queue import CommandQueue, QueuedCommand, RecentAverage
from daybook.eventlog.writing.histogram import Histogram
from daybook.eventlog.writing.idempotency import IdempotencyKey
from daybook.eventlog.writing.live_table import LiveTable
from daybook.eventlog.writing.row_cache import RowCache
from daybook.eventlog.writing.unreadable_rows import UnreadableRows
from daybook.eventlog.writing.writer import DEADLINE_PASSED, Writer

DEADLINE_SECONDS = 5.0
WEIGHT_MAX = 500
# Weight that lower priorities may add to a batch: the next urgent command waits for them.
ADDED_WEIGHT_MAX = 100
# Queued weight at which the other writers join the first.
EXTRA_WRITERS_WEIGHT = 400
RETRIES_MAX = 20
BATCH_BOUNDS = (1, 2, 5, 10, 20, 50, 100, 200, 500)
WAIT_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)

OnCommit = Callable[[int, frozenset[str]], None]
"""Called with the position of the last event and the names of the changed kinds of aggregates."""


def ignore_commit(_position: int, _kinds: frozenset[str]) -> None:
    pass


class Committer:
    """Gathers commands into batches for its writers, which have one connection each."""

    def __init__(
        self,
        conninfo: str,
        *,
        tables: Sequence[LiveTable[Any]],
        mapper: EventMapper,
        writers: int = 4,
        deadline_seconds: float = DEADLINE_SECONDS,
        on_commit: OnCommit = ignore_commit,
    ) -> None:
        self._conninfo = writer_conninfo(conninfo)
        self._tables = tables
        self._mapper = mapper
        self._caches = {
            table.decider.name: RowCache(table.cache) for table in tables if table.cache is not None
        }
        self.unreadable_rows = UnreadableRows(self._conninfo, tables)
        self._writer_count = writers
        self._deadline_seconds = deadline_seconds
        self._on_commit = on_commit
        self._queues = {priority: CommandQueue() for priority in CommandPriority}
        self._latency = RecentAverage()
        # Number of commands in the last batch.
        self.last_count = 0
        self._queued_weight = 0
        self._any_queued = asyncio.Event()
        self._many_queued = asyncio.Event()
        self._writers: list[asyncio.Task[None]] = []
        self._closing = False
        self.batch_sizes = Histogram(BATCH_BOUNDS)
        self.waits = Histogram(WAIT_BOUNDS)
        self.events_count: Counter[str] = Counter()
        # Error of the last write; None once a write has succeeded.
        self.write_error: UnavailableError | None = None

    @property
    def waiting_count(self) -> int:
        return sum([len(queue) for queue in self._queues.values()])

    async def __aenter__(self) -> Self:
        signals = [self._any_queued] + [self._many_queued] * (self._writer_count - 1)
        self._writers = [asyncio.create_task(self._write(signal)) for signal in signals]
        self._expiry = asyncio.create_task(self._expire())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Commits the waiting commands, then stops."""
        self._closing = True
        self._any_queued.set()
        self._many_queued.set()
        await asyncio.gather(*self._writers)
        self._expiry.cancel()

    def submit(
        self, command: Command[Any], origin: Origin, key: IdempotencyKey | None = None
    ) -> asyncio.Future[Receipt]:
        """Returns a future of the receipt, set once the commit is durable, or of the refusal."""
        queued = QueuedCommand(command, origin, key, self._deadline_seconds)
        if self._closing:
            queued.resolve(UnavailableError("The service is shutting down."))
        else:
            self._queues[priority_of(command)].append(queued)
            self._signal(queued.weight)
        return queued.future

    @property
    def waiting_seconds(self) -> float:
        """Queueing time of commands above LOW priority, measured once a batch."""
        normal = self._queues[CommandPriority.NORMAL]
        return max(self.high_priority_wait_seconds, normal.waiting_seconds)

    @property
    def high_priority_wait_seconds(self) -> float:
        """Queueing time of HIGH priority commands."""
        return self._queues[CommandPriority.HIGH].waiting_seconds

    @property
    def answer_seconds(self) -> float:
        """Latency from submission to outcome, of the oldest command in each batch."""
        return self._latency.seconds

    @property
    def normal_priority_count(self) -> int:
        """Number of waiting NORMAL priority commands."""
        return len(self._queues[CommandPriority.NORMAL])

    @property
    def _next(self) -> QueuedCommand | None:
        return next((queue.first for queue in self._queues.values() if queue.first), None)

    def _signal(self, weight: int) -> None:
        self._queued_weight += weight
        self._any_queued.set()
        if self._queued_weight >= EXTRA_WRITERS_WEIGHT:
            self._many_queued.set()

    async def _write(self, signal: asyncio.Event) -> None:
        writer = Writer(
            self._conninfo,
            self._new_batch,
            self._resolve,
            self.unreadable_rows,
            cannot_write=self._cannot_write,
        )
        try:
            while commands := await self._next_batch(signal):
                try:
                    await writer.commit(commands)
                except Exception as defect:
                    # Fail the callers, and keep the writer for the next batch.
                    for queued in commands:
                        queued.resolve(defect)
                    await writer.close()
        finally:
            await writer.close()

    async def _next_batch(self, signal: asyncio.Event) -> list[QueuedCommand]:
        """Takes waiting commands by priority, up to WEIGHT_MAX so that a large request does not
        delay small ones. The first writer takes any command; the others join at
        EXTRA_WRITERS_WEIGHT, because small batches on several connections cost more than they gain.
        """
        while not signal.is_set() or self._next is None:
            if self._closing and self._next is None:
                return []
            signal.clear()
            await signal.wait()
        batch: list[QueuedCommand] = []
        weight, room = 0, WEIGHT_MAX
        for queue in self._queues.values():
            queue.measure_wait()
            taken = self._fill(batch, queue, room)
            room = min(room - taken, ADDED_WEIGHT_MAX) if weight + taken else WEIGHT_MAX
            weight += taken
        self._queued_weight -= weight
        if self._next is None:
            self._any_queued.clear()
        if self._queued_weight < EXTRA_WRITERS_WEIGHT and not self._closing:
            self._many_queued.clear()
        self._measure(batch)
        return batch

    def _measure(self, batch: Sequence[QueuedCommand]) -> None:
        self.batch_sizes.observe(len(batch))
        began_at = asyncio.get_running_loop().time() + self._deadline_seconds
        for queued in batch:
            self.waits.observe(began_at - queued.deadline)

    @staticmethod
    def _fill(batch: list[QueuedCommand], queue: CommandQueue, room: int) -> int:
        """Takes commands from a queue while there is room, and always its first, to prevent
        starvation; returns their weight."""
        taken = 0
        while (following := queue.first) is not None:
            if taken and taken + following.weight > room:
                break
            taken += following.weight
            batch.append(queue.take())
        return taken

    async def _expire(self) -> None:
        """Fails commands whose deadline passed while no writer was free."""
        while True:
            await asyncio.sleep(self._deadline_seconds / 20)
            now = asyncio.get_running_loop().time()
            for queue in self._queues.values():
                while queue.first and queue.first.deadline < now:
                    late = queue.take()
                    self._queued_weight -= late.weight
                    late.resolve(UnavailableError(DEADLINE_PASSED))

    def _new_batch(self, commands: Sequence[QueuedCommand]) -> Batch:
        return Batch(commands, self._tables, self._mapper, self._caches)

    def _cannot_write(self, error: UnavailableError) -> None:
        self.write_error = error

    def _resolve(self, commands: Sequence[QueuedCommand], batch: Batch) -> None:
        """Resolves each caller's future; re-queues commands that lost a race."""
        self._latency.observe_since(min([queued.arrived_at for queued in commands]))
        self.last_count = len(commands)
        retries: list[QueuedCommand] = []
        for index, (queued, outcome) in enumerate(zip(commands, batch.outcome, strict=True)):
            assert outcome is not None, "a finished batch has an outcome for each command"
            if index in batch.retries and queued.retries_count < RETRIES_MAX:
                queued.retries_count += 1
                retries.append(queued)
            else:
                queued.resolve(outcome)
        if batch.position is not None:
            self.write_error = None
            topics = Counter([one.event.topic for queued in commands for one in queued.events])
            self.events_count.update(topics)
            self._on_commit(batch.position, self._mapper.aggregates_of(topics))
        if retries:
            self._queues[CommandPriority.HIGH].put_back(retries)
            self._signal(sum(queued.weight for queued in retries))
