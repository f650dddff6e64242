"""One batch of commands, one transaction, two round trips.

The first round trip locks the rows that the commands need (`batch_reads.py`). Then the commands
decide, one after another. The second takes the remaining locks, appends the events, writes the live
rows and commits; the server starts on it while the client packs the rest.
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
from daybook.eventlog.postgres.pipeline import Connection, Pipeline
from daybook.eventlog.writing.append import BatchAppend
from daybook.eventlog.writing.batch_needs import BatchNeeds, SubmittedCommand
from daybook.eventlog.writing.batch_reads import BatchReads, ReadyPick, add_all
from daybook.eventlog.writing.idempotent_replies import IdempotentReplies
from daybook.eventlog.writing.live_table import LiveTable
from daybook.eventlog.writing.row_cache import RowCache
from daybook.eventlog.writing.table_changes import TableChanges
from daybook.eventlog.writing.unit_of_work import BatchUnitOfWork, LoadedAggregate

Outcome = Receipt | Exception
Changes = dict[str, list[LoadedAggregate]]


class Batch:
    """Runs one batch; `outcome` then holds the receipt or error of each command."""

    def __init__(
        self,
        commands: Sequence[SubmittedCommand],
        tables: Sequence[LiveTable[Any]],
        mapper: EventMapper,
        caches: Mapping[str, RowCache] = MappingProxyType({}),
    ) -> None:
        """`caches` are keyed by the names of deciders."""
        self.commands = commands
        self.outcome: list[Outcome | None] = [None] * len(commands)
        # Indexes of commands to retry, because they lost a race.
        self.retries: set[int] = set()
        # Indexes of commands that raised something other than a refusal, maybe for a bad row.
        self.defects: set[int] = set()
        self.commit_sent = False
        self.position: int | None = None
        self._tables = tables
        self._mapper = mapper
        self._caches = caches
        self._cached: dict[str, list[State]] = {}
        self._append: BatchAppend | None = None
        self._replies = IdempotentReplies()

    async def run(self, pipeline: Pipeline) -> None:
        generations = {name: cache.generation for name, cache in self._caches.items()}
        try:
            changes = await self._run(pipeline)
        except BaseException:
            for name, states in self._cached.items():
                self._caches[name].evict(states)
            raise
        for name, cache in self._caches.items():
            cache.put(changes.get(name, ()), generations[name])

    async def _run(self, pipeline: Pipeline) -> Changes:
        pipeline.add("BEGIN")
        needs = BatchNeeds(self.commands)
        self._replies.find(pipeline, needs.idempotency_keys)
        reads = BatchReads(needs, self._tables, self._mapper, self._caches)
        reads.send(pipeline)
        self._cached = reads.cached
        await pipeline.sync()
        self._replies.load()
        work = await reads.load(pipeline)
        if unserved := self._decide(work):
            await self._retry_if_more_ready(pipeline, unserved, reads.picks)
        changes = {name: entries for name, entries in work.changes.items() if entries}
        append = self._write(pipeline, changes)
        pipeline.add("COMMIT")
        self.commit_sent = len(append) > 0
        await pipeline.sync()
        self._issue_receipts(append.positions)
        return changes

    def _write(self, pipeline: Pipeline, changes: Changes) -> BatchAppend:
        """Takes the remaining locks, then appends the events and writes the rows."""
        rows = {
            table.decider.name: TableChanges(table, changes[table.decider.name])
            for table in self._tables
            if table.decider.name in changes
        }
        side_statements = [table.sides.statements(changes) for table in self._tables]
        self._lock_cached(pipeline, rows)
        for statements in side_statements:
            add_all(pipeline, statements.before)
        self._append = append = BatchAppend(self.commands)
        append.send(pipeline)
        for table_changes in rows.values():
            table_changes.write(pipeline)
            pipeline.flush()
        for statements in side_statements:
            add_all(pipeline, statements.after)
        self._write_keys(pipeline)
        return append

    async def find_outcome(self, connection: Connection) -> bool:
        """Returns whether the batch is in the log, after the connection was lost at COMMIT."""
        assert self._append is not None, "the batch has not sent its events"
        positions = await self._append.find(connection)
        # Fewer positions belong to another process's events with the same derived command id.
        if len(positions) < len(self._append):
            return False
        self._issue_receipts(positions)
        return True

    def _lock_cached(self, pipeline: Pipeline, rows: Mapping[str, TableChanges]) -> None:
        """Locks rows that came from the cache, in the order of the other batches: before the locks
        on lanes and before the append."""
        for table in self._tables:
            if states := self._cached.get(table.decider.name):
                changes = rows.get(table.decider.name) or TableChanges(table, ())
                changes.lock_if_version(pipeline, states)

    def _decide(self, work: BatchUnitOfWork) -> list[int]:
        """Runs every command's decision; returns the indexes of those that found nothing ready."""
        unserved: list[int] = []
        for index, submitted in enumerate(self.commands):
            key = submitted.key
            if key is not None and (reply := self._replies.reply(key)) is not None:
                submitted.events = []
                self.outcome[index] = reply
                continue
            try:
                submitted.result = submitted.command.decide(work)
            except Exception as error:
                work.revoke()
                self._fail(index, submitted, error)
                continue
            if work.found_none_ready:
                unserved.append(index)
            submitted.events = work.accept()
            if key is not None:
                self._replies.store(submitted, key, submitted.result)
        return unserved

    def _fail(self, index: int, submitted: SubmittedCommand, error: Exception) -> None:
        """Sets the outcome of a refused or defective command; the rest of the batch goes on."""
        submitted.events = []
        self.outcome[index] = error
        if isinstance(error, NotLoadedError):
            self.retries.add(index)
        elif not isinstance(error, Refusal):
            self.defects.add(index)
            error.add_note(f"while deciding {submitted.command}")
        elif submitted.key is not None and error.is_kept:
            self._replies.store(submitted, submitted.key, error)

    def _write_keys(self, pipeline: Pipeline) -> None:
        retried = {self.commands[index].origin.command_id for index in self.retries}
        # A concurrent duplicate of a retried request is retried with it.
        for index, reply in enumerate(self.outcome):
            if not isinstance(reply, Receipt) or reply.replayed_response is None:
                continue
            if reply.command_id in retried:
                self.retries.add(index)
        self._replies.write(pipeline, retried=retried)

    async def _retry_if_more_ready(
        self, pipeline: Pipeline, unserved: Sequence[int], picks: Sequence[ReadyPick]
    ) -> None:
        """Retries commands that found nothing ready only because others had locked the rows."""
        for pick in picks:
            rules = pick.table.pick
            empty = [index for index in unserved if self._got_nothing(index, pick)]
            if rules.more_ready_exists is None or not empty:
                continue
            ids = uuids([state.id for state in pick.states])
            parameters = rules.selection(pick.selector)
            found = pipeline.add(rules.more_ready_exists, ids=ids, **parameters)
            await pipeline.sync()
            if found.rows() == [(True,)]:
                self.retries.update(empty)

    def _got_nothing(self, index: int, pick: ReadyPick) -> bool:
        submitted = self.commands[index]
        return not submitted.events and pick.is_need_of(submitted)

    def _issue_receipts(self, positions: Sequence[int]) -> None:
        self.position = positions[-1] if positions else None
        last = 0
        by_command: dict[UUID, int | None] = {}
        for index, submitted in enumerate(self.commands):
            outcome = self.outcome[index]
            if outcome is None:
                last += len(submitted.events)
                position = positions[last - 1] if submitted.events else None
                command_id = submitted.origin.command_id
                by_command[command_id] = position
                self.outcome[index] = Receipt(submitted.result, command_id, position)
            elif isinstance(outcome, Receipt) and outcome.command_id in by_command:
                # A concurrent duplicate in this batch gets the position of the one effect.
                self.outcome[index] = replace(outcome, position=by_command[outcome.command_id])
