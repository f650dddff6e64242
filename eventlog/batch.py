"""One batch of commands, one transaction, two round trips.

The first holds every row the commands name (in one fixed order, so that no two batches can
wait for each other), picks ready rows and draws numbers. Python decides, command by command.
The second writes the live rows, appends all events and commits.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from domain.desk import Command, Reads
from domain.errors import Refusal
from domain.event import State
from eventlog.arrays import bigints, byteas, texts, uuids
from eventlog.desk import BatchDesk, Decided, Entry
from eventlog.link import Answer, Connection, Link
from eventlog.live import LiveTable
from eventlog.mapper import EventMapper
from eventlog.origin import Origin, Receipt

# One clock for all processes: the database's.
READ_CLOCK = "SELECT clock_timestamp()"

DRAW_NUMBERS = """
SELECT nextval(%(sequence)b::text::regclass) FROM generate_series(1, %(count)b::bigint)
"""

APPEND_EVENTS = """
INSERT INTO stored_events (originator_id, originator_version, topic, state,
                           command_id, actor, correlation_id, causation_id)
SELECT * FROM unnest(
    %(ids)b::uuid[], %(versions)b::bigint[], %(topics)b::text[], %(states)b::bytea[],
    %(commands)b::uuid[], %(actors)b::text[], %(correlations)b::uuid[],
    %(causations)b::bigint[])
RETURNING notification_id
"""

# Aggregates that have left their live table are folded from the log instead.
READ_AGGREGATES = """
SELECT originator_id, topic, state
FROM stored_events
WHERE originator_id = ANY(%(ids)b::uuid[])
ORDER BY originator_id, originator_version
"""

# A batch is in the log as a whole or not at all, so any of its events tells; the command id
# tells it from another writer's event of the same version.
FIND_APPENDED = """
SELECT notification_id
FROM unnest(%(ids)b::uuid[], %(versions)b::bigint[], %(commands)b::uuid[])
     WITH ORDINALITY AS mine (originator_id, originator_version, command_id, place)
JOIN stored_events USING (originator_id, originator_version, command_id)
ORDER BY place
"""

Told = Receipt | Exception


class Submission:
    """A command on its way, until it has its answer."""

    __slots__ = ("answer", "command", "events", "origin", "reads")

    def __init__(self, command: Command[Any], origin: Origin) -> None:
        self.command = command
        self.origin = origin
        self.reads: Reads = command.reads
        self.events: list[Decided] = []
        self.answer: Any = None


class Batch:
    """The life of one batch. `outcome` is what each submission is to be told once it ended."""

    def __init__(
        self,
        submissions: Sequence[Submission],
        tables: Sequence[LiveTable[Any]],
        mapper: EventMapper,
    ) -> None:
        self.submissions = submissions
        self.outcome: list[Told | None] = [None] * len(submissions)
        self.overlooked: set[int] = set()
        self.commit_sent = False
        self.position: int | None = None
        self._tables = tables
        self._mapper = mapper
        self._appended: dict[str, Any] | None = None

    async def run(self, link: Link) -> None:
        desk, picked = await self._hold(link)
        short = self._decide(desk)
        if short:
            await self._find_overlooked(link, short, picked)
        self._write(link, desk.changes)
        appended = self._append(link)
        link.queue("COMMIT")
        self.commit_sent = appended is not None
        await link.sync()
        self._receipts([row[0] for row in appended.rows()] if appended else [])

    async def find_outcome(self, connection: Connection) -> bool:
        """After a connection was lost at COMMIT: is the batch in the log?"""
        cursor = await connection.execute(FIND_APPENDED, self._appended, binary=True)
        positions = [row[0] for row in await cursor.fetchall()]
        if not positions:
            return False
        self._receipts(positions)
        return True

    async def _hold(self, link: Link) -> tuple[BatchDesk, dict[str, list[State]]]:
        names, ready, draws = _needs(self.submissions)
        link.queue("BEGIN")
        clock = link.queue(READ_CLOCK)
        drawn = {
            sequence: link.queue(DRAW_NUMBERS, sequence=sequence, count=count)
            for sequence, count in draws.items()
        }
        held: list[tuple[LiveTable[Any], Answer]] = []
        picks: list[tuple[LiveTable[Any], Answer]] = []
        for table in self._tables:
            if ids := names.get(table.decider.name):
                held.append((table, link.queue(table.hold, ids=uuids([*ids.values()]))))
            # Picking never waits, so it may come after the waiting for this table's rows.
            if table.pick and (limit := ready.get(table.decider.name)):
                picks.append((table, link.queue(table.pick, limit=limit)))
        await link.sync()
        states = [state for table, answer in held for state in _load(table, answer)]
        picked = {table.decider.name: _load(table, answer) for table, answer in picks}
        found = {state.id.int for state in states}
        wanted = (one for ids in names.values() for one in ids.items())
        if missing := [aggregate_id for key, aggregate_id in wanted if key not in found]:
            states += await self._fold(link, missing)
        ((now,),) = clock.rows()
        numbers = {s: iter([row[0] for row in answer.rows()]) for s, answer in drawn.items()}
        return BatchDesk(now=now, held=states, ready=picked, drawn=numbers), picked

    async def _fold(self, link: Link, ids: Sequence[UUID]) -> list[State]:
        events = link.queue(READ_AGGREGATES, ids=uuids(ids))
        await link.sync()
        folded: dict[UUID, State] = {}
        for aggregate_id, topic, state in events.rows():
            decider = self._mapper.decider_of(topic)
            event = self._mapper.decode(topic, state)
            folded[aggregate_id] = decider.evolve(folded.get(aggregate_id), event)
        return [*folded.values()]

    def _decide(self, desk: BatchDesk) -> list[int]:
        """Lets every command decide; returns the places of those that found nothing ready."""
        short: list[int] = []
        for place, submission in enumerate(self.submissions):
            try:
                submission.answer = submission.command.decide(desk)
            except Exception as error:
                # A refusal is the command's answer; anything else is a defect of this one
                # command. Neither may take the rest of the batch with it.
                if not isinstance(error, Refusal):
                    error.add_note(f"while deciding {submission.command}")
                self.outcome[place] = error
                submission.events = []
                desk.revoke()
                continue
            if desk.came_up_short:
                short.append(place)
            submission.events = desk.accept()
        return short

    async def _find_overlooked(
        self, link: Link, short: list[int], picked: Mapping[str, list[State]]
    ) -> None:
        """Notes who found nothing ready only because others held it: they may ask again."""
        for table in self._tables:
            if table.overlooked is None or table.decider.name not in picked:
                continue
            ids = uuids([state.id for state in picked[table.decider.name]])
            found = link.queue(table.overlooked, ids=ids)
            await link.sync()
            if found.rows() == [(True,)]:
                submissions = ((place, self.submissions[place]) for place in short)
                self.overlooked.update(
                    place
                    for place, submission in submissions
                    if submission.reads.ready is table.decider and not submission.events
                )

    def _write(self, link: Link, changes: Iterable[Entry]) -> None:
        by_decider: dict[str, list[Entry]] = {table.decider.name: [] for table in self._tables}
        for change in changes:
            assert change.decider is not None
            by_decider[change.decider.name].append(change)
        for table in self._tables:
            if of_table := by_decider[table.decider.name]:
                _write_table(link, table, of_table)

    def _append(self, link: Link) -> Answer | None:
        events = [event for submission in self.submissions for event in submission.events]
        if not events:
            return None
        origins = [one.origin for one in self.submissions for _ in one.events]
        encoded = [self._mapper.encode(event.event) for event in events]
        commands = uuids([origin.command_id for origin in origins])
        correlated = any(origin.correlation is not None for origin in origins)
        self._appended = {
            "ids": uuids([event.originator_id for event in events]),
            "versions": bigints([event.originator_version for event in events]),
            "topics": texts([topic for topic, _ in encoded]),
            "states": byteas([state for _, state in encoded]),
            "commands": commands,
            "actors": texts([origin.actor for origin in origins]),
            "correlations": uuids([o.correlation_id for o in origins]) if correlated else commands,
            "causations": bigints([origin.causation_id for origin in origins]),
        }
        return link.queue(APPEND_EVENTS, **self._appended)

    def _receipts(self, positions: Sequence[int]) -> None:
        self.position = positions[-1] if positions else None
        last = 0
        for place, submission in enumerate(self.submissions):
            if self.outcome[place] is not None:
                continue
            last += len(submission.events)
            position = positions[last - 1] if submission.events else None
            command_id = submission.origin.command_id
            self.outcome[place] = Receipt(submission.answer, command_id, position)


def _needs(
    submissions: Sequence[Submission],
) -> tuple[dict[str, dict[int, UUID]], dict[str, int], dict[str, int]]:
    """What the commands need together; ids by their integers, which are quick to hash."""
    names: dict[str, dict[int, UUID]] = {}
    ready: dict[str, int] = {}
    draws: dict[str, int] = {}
    for submission in submissions:
        reads = submission.reads
        for decider, aggregate_id in reads.names:
            names.setdefault(decider.name, {})[aggregate_id.int] = aggregate_id
        if reads.ready is not None:
            ready[reads.ready.name] = ready.get(reads.ready.name, 0) + reads.ready_count
        if reads.draws is not None:
            sequence, count = reads.draws
            draws[sequence] = draws.get(sequence, 0) + count
    return names, ready, draws


def _load(table: LiveTable[Any], answer: Answer) -> list[State]:
    return [table.load(row) for row in answer.rows()]


def _write_table(link: Link, table: LiveTable[Any], changes: Sequence[Entry]) -> None:
    """What goes into a unique index is inserted sorted: two batches that insert the same keys in
    opposite order would wait for each other."""
    finished = table.decider.finished
    new: list[State] = []
    kept: list[State] = []
    gone: list[UUID] = []
    for change in changes:
        before, after = change.before, change.state
        assert after is not None
        was_live = before is not None and not finished(before)
        if not finished(after):
            (kept if was_live else new).append(after)
        elif was_live:
            gone.append(after.id)
    if new:
        new.sort(key=lambda state: state.id.int)
        link.queue(table.insert, **table.inserted(new))
    if kept:
        link.queue(table.update, **table.updated(kept))
    if gone:
        link.queue(table.delete, ids=uuids(gone))
