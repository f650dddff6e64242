"""The committer: the one way into the log.

Handlers do not open transactions. They hand a command to the committer of their process, which
takes whatever is waiting, without any timer, and commits it as one batch. While a batch is on
its way the next one gathers: the busier the service, the larger the batches.

What it promises of every command, whatever happens to the connection or the server:
- the answer is the truth: a lost COMMIT is never repeated blindly, the log is asked instead;
- a command that cannot be committed before its deadline answers so and has no effect later.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Self

from daybook.domain.command import Command, CommandPriority
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
from daybook.eventlog.writing.writer import Writer

DEADLINE_SECONDS = 5.0
WEIGHT_MAX = 500
# What is less urgent may add so much to a batch: who comes next and is urgent waits for it.
ADDED_WEIGHT_MAX = 100
# With so much waiting, one more connection is worth its while.
PLENTY = 400
REPEATS_MAX = 20
BATCH_BOUNDS = (1, 2, 5, 10, 20, 50, 100, 200, 500)
WAIT_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)

OnCommit = Callable[[int, frozenset[str]], None]
"""Is told the position of the last event, and to which kinds of aggregates something happened."""


def ignore_commit(_position: int, _kinds: frozenset[str]) -> None:
    """For a committer beside which nobody waits."""


class Committer:
    """Gathers commands into batches and hands them to its lanes, a connection each."""

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
        self._memories = {
            table.decider.name: RowCache(table) for table in tables if table.is_cached
        }
        self.unreadable_rows = UnreadableRows(self._conninfo, tables)
        self._writer_count = writers
        self._deadline_seconds = deadline_seconds
        self._on_commit = on_commit
        self._lines = {haste: CommandQueue() for haste in CommandPriority}
        self._answered = RecentAverage()
        self.last_count = 0
        """How many commands the last batch had."""

        self._queued_weight = 0
        self._arrived = asyncio.Event()
        self._plenty = asyncio.Event()
        self._lanes: list[asyncio.Task[None]] = []
        self._closing = False
        # For whoever looks at how it is doing.
        self.batch_sizes = Histogram(BATCH_BOUNDS)
        self.waits = Histogram(WAIT_BOUNDS)
        self.events_count: Counter[str] = Counter()
        self.write_error: UnavailableError | None = None
        """Why the database refused the last write; None once a write has succeeded."""

    @property
    def waiting_count(self) -> int:
        return sum([len(line) for line in self._lines.values()])

    async def __aenter__(self) -> Self:
        bells = [self._arrived] + [self._plenty] * (self._writer_count - 1)
        self._lanes = [asyncio.create_task(self._work(bell)) for bell in bells]
        self._expiry = asyncio.create_task(self._expire())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Commits what is waiting, then stops."""
        self._closing = True
        self._arrived.set()
        self._plenty.set()
        await asyncio.gather(*self._lanes)
        self._expiry.cancel()

    def submit(
        self, command: Command[Any], origin: Origin, key: IdempotencyKey | None = None
    ) -> asyncio.Future[Receipt]:
        """Await it for the command's answer, once that is durable; it raises the refusal."""
        waiting = QueuedCommand(command, origin, key, self._deadline_seconds)
        if self._closing:
            waiting.tell(UnavailableError("The service is shutting down."))
        else:
            self._lines[waiting.reads.priority].append(waiting)
            self._ring(waiting.weight)
        return waiting.future

    @property
    def waiting_seconds(self) -> float:
        """How long commands wait for their turn, but for those that nobody waits for. Measured once
        a batch, never for a command."""
        return max(self.urgent_seconds, self._lines[CommandPriority.NORMAL].waiting_seconds)

    @property
    def urgent_seconds(self) -> float:
        """How long those wait that go before all others."""
        return self._lines[CommandPriority.HIGH].waiting_seconds

    @property
    def answer_seconds(self) -> float:
        """From the arrival of a command to its answer: of the oldest in each batch."""
        return self._answered.seconds

    @property
    def patient_count(self) -> int:
        """How many wait that only begin something."""
        return len(self._lines[CommandPriority.NORMAL])

    @property
    def _next(self) -> QueuedCommand | None:
        return next((line.first for line in self._lines.values() if line.first), None)

    def _ring(self, weight: int) -> None:
        self._queued_weight += weight
        self._arrived.set()
        if self._queued_weight >= PLENTY:
            self._plenty.set()

    async def _work(self, bell: asyncio.Event) -> None:
        lane = Writer(
            self._conninfo,
            self._new_batch,
            self._settle,
            self.unreadable_rows,
            cannot_write=self._cannot_write,
        )
        try:
            while waiting := await self._next_batch(bell):
                try:
                    await lane.commit(waiting)
                except Exception as defect:
                    # Whoever waits must hear of it, and the next batch needs a lane.
                    for one in waiting:
                        one.tell(defect)
                    await lane.close()
        finally:
            await lane.close()

    async def _next_batch(self, bell: asyncio.Event) -> list[QueuedCommand]:
        """Whatever waits, up to a limit: one large request must not hold up the small ones. What
        ends something goes before what begins something, and both before what nobody waits for.

        The first lane takes what there is. The others come in when there is plenty: small batches
        on several lanes would cost more than they gain."""
        while not bell.is_set() or self._next is None:
            if self._closing and self._next is None:
                return []
            bell.clear()
            await bell.wait()
        batch: list[QueuedCommand] = []
        weight, room = 0, WEIGHT_MAX
        for line in self._lines.values():
            line.note_wait()
            taken = self._fill(batch, line, room)
            room = min(room - taken, ADDED_WEIGHT_MAX) if weight + taken else WEIGHT_MAX
            weight += taken
        self._queued_weight -= weight
        if self._next is None:
            self._arrived.clear()
        if self._queued_weight < PLENTY and not self._closing:
            self._plenty.clear()
        self._measure(batch)
        return batch

    def _measure(self, batch: Sequence[QueuedCommand]) -> None:
        self.batch_sizes.observe(len(batch))
        began_at = asyncio.get_running_loop().time() + self._deadline_seconds
        for waiting in batch:
            self.waits.observe(began_at - waiting.deadline)

    @staticmethod
    def _fill(batch: list[QueuedCommand], line: CommandQueue, room: int) -> int:
        """Takes from a line what there is room for, and its first in any case, so that nobody is
        passed by for ever; returns how much that was."""
        taken = 0
        while (following := line.first) is not None:
            if taken and taken + following.weight > room:
                break
            taken += following.weight
            batch.append(line.take())
        return taken

    async def _expire(self) -> None:
        """Answers those who waited in vain while no lane was free; the oldest stand in front."""
        while True:
            await asyncio.sleep(self._deadline_seconds / 20)
            now = asyncio.get_running_loop().time()
            for line in self._lines.values():
                while line.first and line.first.deadline < now:
                    late = line.take()
                    self._queued_weight -= late.weight
                    late.tell(UnavailableError("The database did not take the command in time."))

    def _new_batch(self, waiting: Sequence[QueuedCommand]) -> Batch:
        return Batch(waiting, self._tables, self._mapper, self._memories)

    def _cannot_write(self, trouble: UnavailableError) -> None:
        self.write_error = trouble

    def _settle(self, waiting: Sequence[QueuedCommand], batch: Batch) -> None:
        """Tells everyone their answer; those that others were in the way of decide anew."""
        self._answered.note_since(min([one.arrived_at for one in waiting]))
        self.last_count = len(waiting)
        again: list[QueuedCommand] = []
        for place, (one, answer) in enumerate(zip(waiting, batch.outcome, strict=True)):
            assert answer is not None, "a batch that has ended answers all its commands"
            if place in batch.again and one.repeats_count < REPEATS_MAX:
                one.repeats_count += 1
                again.append(one)
            else:
                one.tell(answer)
        if batch.position is not None:
            self.write_error = None
            topics = Counter([decided.event.topic for one in waiting for decided in one.events])
            self.events_count.update(topics)
            # Of what thousands of events happened to, there are a handful of kinds.
            self._on_commit(batch.position, self._mapper.aggregates_of(topics))
        if again:
            self._lines[CommandPriority.HIGH].put_back(again)
            self._ring(sum(one.weight for one in again))
