"""One batch of commands, one transaction, two round trips.

The first holds every row the commands name (in one fixed order, so that no two batches can
wait for each other), picks ready rows and draws numbers. Python decides, command by command.
The second holds what the decisions touch beside these rows, appends all events, writes the live
rows and commits; the server begins with it while the rest is being packed.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from daybook.domain.command import NotLoadedError
from daybook.domain.errors import Refusal
from daybook.domain.event import State
from daybook.eventlog.codec import EventMapper
from daybook.eventlog.origin import Receipt
from daybook.eventlog.postgres.binary_arrays import uuids
from daybook.eventlog.postgres.pipeline import Connection, PendingResult, Pipeline
from daybook.eventlog.writing.append import Appending
from daybook.eventlog.writing.batch_needs import BatchNeeds, ReadyPick, SubmittedCommand, load
from daybook.eventlog.writing.fold_finished import READ_AGGREGATES, fold_aggregates
from daybook.eventlog.writing.idempotent_replies import IdempotentReplies
from daybook.eventlog.writing.live_table import LiveTable, Statements
from daybook.eventlog.writing.row_cache import RowCache
from daybook.eventlog.writing.table_changes import TableChanges
from daybook.eventlog.writing.unit_of_work import BatchUnitOfWork, LoadedAggregate

# One clock for all processes: the database's.
READ_CLOCK = "SELECT clock_timestamp()"

# The name is looked up once, and not for every number.
DRAW_NUMBERS = """
SELECT nextval(sequence)
FROM (SELECT %(sequence)b::text::regclass AS sequence OFFSET 0) AS named,
     generate_series(1, %(count)b::bigint)
"""

Told = Receipt | Exception


class Batch:
    """The life of one batch. `outcome` is what each submission is to be told once it ended."""

    def __init__(
        self,
        submissions: Sequence[SubmittedCommand],
        tables: Sequence[LiveTable[Any]],
        mapper: EventMapper,
        memories: Mapping[str, RowCache] = MappingProxyType({}),
    ) -> None:
        """`memories` are those of tables, by the names of their deciders."""
        self.submissions = submissions
        self.outcome: list[Told | None] = [None] * len(submissions)
        self.again: set[int] = set()
        """Places of commands that must decide anew, since others were in their way."""

        self.defects: set[int] = set()
        """Places of commands that failed by no rule: a row that they met may be to blame."""

        self.commit_sent = False
        self.position: int | None = None
        self._tables = tables
        self._mapper = mapper
        self._memories = memories
        self._recalled: dict[str, list[State]] = {}
        self._appending: Appending | None = None
        self._kept = IdempotentReplies()

    async def run(self, pipeline: Pipeline) -> None:
        lives = {name: memory.life for name, memory in self._memories.items()}
        try:
            changes = await self._run(pipeline)
        except BaseException:
            for name, states in self._recalled.items():
                self._memories[name].evict(states)
            raise
        for name, memory in self._memories.items():
            memory.put(changes.get(name, ()), lives[name])

    async def _run(self, pipeline: Pipeline) -> dict[str, list[LoadedAggregate]]:
        desk, picks = await self._hold(pipeline)
        short = self._decide(desk)
        if short:
            await self._find_overlooked(pipeline, short, picks)
        changes = {name: entries for name, entries in desk.changes.items() if entries}
        rows = {
            table.decider.name: TableChanges(table, changes[table.decider.name])
            for table in self._tables
            if table.decider.name in changes
        }
        around = [table.side_statements(changes) for table in self._tables]
        self._hold_recalled(pipeline, rows)
        for one in around:
            _queue(pipeline, one.before)
        self._appending = appending = Appending(self.submissions)
        appending.queue(pipeline)
        for of_table in rows.values():
            of_table.write(pipeline)
            pipeline.flush()
        for one in around:
            _queue(pipeline, one.after)
        self._write_keys(pipeline)
        pipeline.add("COMMIT")
        self.commit_sent = len(appending) > 0
        await pipeline.sync()
        self._receipts(appending.positions)
        return changes

    async def find_outcome(self, connection: Connection) -> bool:
        """After a connection was lost at COMMIT: is the batch in the log?"""
        assert self._appending is not None, "only what was sent can be lost"
        positions = await self._appending.find(connection)
        # Fewer than all are another process's events under the same, derived command id.
        if len(positions) < len(self._appending):
            return False
        self._receipts(positions)
        return True

    async def _hold(self, pipeline: Pipeline) -> tuple[BatchUnitOfWork, list[ReadyPick]]:
        needs = BatchNeeds(self.submissions)
        pipeline.add("BEGIN")
        clock = pipeline.add(READ_CLOCK)
        self._kept.find(pipeline, needs.keys)
        drawn = {
            sequence: pipeline.add(DRAW_NUMBERS, sequence=sequence, count=count)
            for sequence, count in needs.draws.items()
        }
        held: list[tuple[LiveTable[Any], PendingResult]] = []
        seen: list[tuple[LiveTable[Any], PendingResult]] = []
        tied: list[tuple[LiveTable[Any], PendingResult]] = []
        picks: list[ReadyPick] = []
        for table in self._tables:
            if not self._recall(needs, table) and (answer := needs.hold(pipeline, table)):
                held.append((table, answer))
            if answer := needs.see(pipeline, table):
                seen.append((table, answer))
            if answer := needs.count_related_statement(pipeline, table):
                tied.append((table, answer))
            # Picking never waits, so it may come after the waiting for this table's rows.
            picks += needs.pick(pipeline, table)
        await pipeline.sync()
        more = [pick.go_on(pipeline) for pick in picks]
        if any(more):
            await pipeline.sync()
        self._kept.load()
        states = [state for table, answer in held for state in load(table, answer)]
        states += [state for recalled in self._recalled.values() for state in recalled]
        for pick in picks:
            pick.load()
        found = {state.id.int for state in states}
        absent = [one for key, one in needs.named.items() if key not in found]
        if absent:
            states += await self._fold(pipeline, absent)
        ((now,),) = clock.rows()
        numbers = {s: iter([row[0] for row in answer.rows()]) for s, answer in drawn.items()}
        ready = {(one.table.decider.name, one.among): one.states for one in picks}
        desk = BatchUnitOfWork(
            now=now,
            seal=self._mapper.seal,
            held=states,
            absent=[*absent, *needs.seen],
            ready=ready,
            drawn=numbers,
            seen=[state for table, answer in seen for state in load(table, answer)],
            seen_all=needs.seen_all,
            tied={(table.decider.name, one.int): n for table, a in tied for one, n in a.rows()},
        )
        return desk, picks

    def _recall(self, needs: BatchNeeds, table: LiveTable[Any]) -> bool:
        name = table.decider.name
        memory = self._memories.get(name)
        keys = needs.recallable(name) if memory is not None else ()
        if memory is None or not keys or (states := memory.get_all(keys)) is None:
            return False
        self._recalled[name] = states
        return True

    def _hold_recalled(self, pipeline: Pipeline, rows: Mapping[str, TableChanges]) -> None:
        """As others hold theirs before they decide: before the lanes, and before the events."""
        for table in self._tables:
            if states := self._recalled.get(table.decider.name):
                of_table = rows.get(table.decider.name) or TableChanges(table, ())
                of_table.lock_if_version(pipeline, states)

    async def _fold(self, pipeline: Pipeline, ids: Sequence[UUID]) -> list[State]:
        events = pipeline.add(READ_AGGREGATES, ids=uuids(ids))
        await pipeline.sync()
        return [*fold_aggregates(self._mapper, events.rows()).values()]

    def _decide(self, work: BatchUnitOfWork) -> list[int]:
        """Lets every command decide; returns the places of those that found nothing ready."""
        short: list[int] = []
        for place, submission in enumerate(self.submissions):
            key = submission.key
            if key is not None and (told := self._kept.reply(key)) is not None:
                submission.events = []
                self.outcome[place] = told
                continue
            try:
                submission.answer = submission.command.decide(work)
            except Exception as error:
                work.revoke()
                self._refused(place, submission, error)
                continue
            if work.came_up_short:
                short.append(place)
            submission.events = work.accept()
            if key is not None:
                self._kept.store(submission, key, submission.answer)
        return short

    def _refused(self, place: int, submission: SubmittedCommand, error: Exception) -> None:
        """A refusal is the command's answer; anything else is a defect of this one command.
        Neither may take the rest of the batch with it."""
        submission.events = []
        self.outcome[place] = error
        if isinstance(error, NotLoadedError):
            self.again.add(place)
        elif not isinstance(error, Refusal):
            self.defects.add(place)
            error.add_note(f"while deciding {submission.command}")
        elif submission.key is not None and error.is_kept:
            self._kept.store(submission, submission.key, error)

    def _write_keys(self, pipeline: Pipeline) -> None:
        unkept = {self.submissions[place].origin.command_id for place in self.again}
        # Whoever sent the same request at the same time shares its fate.
        for place, told in enumerate(self.outcome):
            if isinstance(told, Receipt) and told.replayed_response and told.command_id in unkept:
                self.again.add(place)
        self._kept.write(pipeline, unkept=unkept)

    async def _find_overlooked(
        self, pipeline: Pipeline, short: Sequence[int], picks: Sequence[ReadyPick]
    ) -> None:
        """Notes who found nothing ready only because others held it: they may ask again."""
        for pick in picks:
            table = pick.table
            empty = [place for place in short if self._got_nothing(place, pick)]
            if table.more_ready_exists is None or not empty:
                continue
            ids = uuids([state.id for state in pick.states])
            found = pipeline.add(table.more_ready_exists, ids=ids, **table.selection(pick.among))
            await pipeline.sync()
            if found.rows() == [(True,)]:
                self.again.update(empty)

    def _got_nothing(self, place: int, pick: ReadyPick) -> bool:
        submission = self.submissions[place]
        asked = submission.reads.pick is pick.table.decider
        return asked and submission.reads.pick_selector == pick.among and not submission.events

    def _receipts(self, positions: Sequence[int]) -> None:
        self.position = positions[-1] if positions else None
        last = 0
        by_command: dict[UUID, int | None] = {}
        for place, submission in enumerate(self.submissions):
            told = self.outcome[place]
            if told is None:
                last += len(submission.events)
                position = positions[last - 1] if submission.events else None
                command_id = submission.origin.command_id
                by_command[command_id] = position
                self.outcome[place] = Receipt(submission.answer, command_id, position)
            elif isinstance(told, Receipt) and told.command_id in by_command:
                # It was sent twice at once; both are told of the one effect.
                self.outcome[place] = replace(told, position=by_command[told.command_id])


def _queue(pipeline: Pipeline, statements: Statements) -> None:
    for query, given in statements:
        pipeline.add(query, **given)
