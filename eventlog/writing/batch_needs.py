"""A submitted command, and the combined needs of a batch of commands."""

from collections.abc import Collection, Hashable, Sequence
from typing import Any
from uuid import UUID

from daybook.domain.command import Command, Needs
from daybook.domain.event import State
from daybook.eventlog.origin import Origin
from daybook.eventlog.postgres.binary_arrays import uuids
from daybook.eventlog.postgres.pipeline import PendingResult, Pipeline
from daybook.eventlog.writing.idempotency import IdempotencyKey, Scope
from daybook.eventlog.writing.live_table import LiveTable, Statements
from daybook.eventlog.writing.unit_of_work import PendingEvent


class SubmittedCommand:
    __slots__ = ("command", "events", "key", "needs", "origin", "result")

    def __init__(
        self, command: Command[Any], origin: Origin, key: IdempotencyKey | None = None
    ) -> None:
        self.command = command
        self.origin = origin
        self.key = key
        self.needs: Needs = command.needs
        self.events: list[PendingEvent] = []
        self.result: Any = None


class BatchNeeds:
    """Combined needs of a batch, by the names of deciders; ids are keyed by their integers, which
    hash faster."""

    def __init__(self, commands: Sequence[SubmittedCommand]) -> None:
        self._lock: dict[str, dict[int, UUID]] = {}
        self._uncached: set[str] = set()
        self._lock_related: dict[str, dict[int, UUID]] = {}
        self._lock_all: set[str] = set()
        self._peek: dict[str, dict[int, UUID]] = {}
        self._count_related: dict[str, dict[int, UUID]] = {}
        self.peek_all: set[str] = set()
        self._pick: dict[str, dict[Hashable, int]] = {}
        self.next_numbers: dict[str, int] = {}
        self.idempotency_keys: list[Scope] = []
        for submitted in commands:
            self._add(submitted.needs)
            if submitted.key is not None:
                self.idempotency_keys.append(submitted.key.scope)

    def _add(self, needs: Needs) -> None:
        for decider, aggregate_id in needs.lock:
            self._lock.setdefault(decider.name, {})[aggregate_id.int] = aggregate_id
            if not needs.may_use_cache:
                self._uncached.add(decider.name)
        for decider, aggregate_id in needs.lock_related:
            self._lock_related.setdefault(decider.name, {})[aggregate_id.int] = aggregate_id
        for decider in needs.lock_all:
            self._lock_all.add(decider.name)
        for decider, aggregate_id in needs.peek:
            self._peek.setdefault(decider.name, {})[aggregate_id.int] = aggregate_id
        for decider in needs.peek_all:
            self.peek_all.add(decider.name)
        if needs.pick is not None:
            counts = self._pick.setdefault(needs.pick.name, {})
            counts[needs.pick_selector] = counts.get(needs.pick_selector, 0) + needs.pick_count
        for decider, related_to in needs.count_related:
            self._count_related.setdefault(decider.name, {})[related_to.int] = related_to
        for sequence, count in needs.next_numbers:
            self.next_numbers[sequence] = self.next_numbers.get(sequence, 0) + count

    def cacheable(self, name: str) -> Collection[int]:
        """Returns the integers of the ids to lock, or none if cached states are not enough."""
        if name in self._uncached or name in self._lock_all or name in self._lock_related:
            return ()
        return self._lock.get(name, {}).keys()

    @property
    def lock_ids(self) -> dict[int, UUID]:
        return {key: one for ids in self._lock.values() for key, one in ids.items()}

    @property
    def peek_ids(self) -> list[UUID]:
        return [one for ids in self._peek.values() for one in ids.values()]

    def peek(self, pipeline: Pipeline, table: LiveTable[Any]) -> PendingResult | None:
        name = table.decider.name
        if name in self.peek_all:
            return pipeline.add(table.select)
        if ids := self._peek.get(name):
            return pipeline.add(table.select_by_id, ids=uuids([*ids.values()]))
        return None

    def count_related(self, pipeline: Pipeline, table: LiveTable[Any]) -> PendingResult | None:
        if ids := self._count_related.get(table.decider.name):
            return pipeline.add(table.count_related_statement, tied=uuids([*ids.values()]))
        return None

    def lock(self, pipeline: Pipeline, table: LiveTable[Any]) -> PendingResult | None:
        """Locks all needed rows of a table with one statement, so that they are locked in order."""
        name = table.decider.name
        ids = [*self._lock.get(name, {}).values()]
        if name in self._lock_all:
            return pipeline.add(table.lock_all)
        if related := self._lock_related.get(name):
            return pipeline.add(table.lock_related, ids=uuids(ids), tied=uuids([*related.values()]))
        return pipeline.add(table.lock, ids=uuids(ids)) if ids else None

    def pick(self, pipeline: Pipeline, table: LiveTable[Any]) -> list["ReadyPick"]:
        wanted = self._pick.get(table.decider.name, {})
        return [ReadyPick(pipeline, table, one, limit) for one, limit in wanted.items() if limit]


class ReadyPick:
    """Ready rows of one table for one selector, in claim order after `load`."""

    def __init__(
        self, pipeline: Pipeline, table: LiveTable[Any], selector: Hashable, limit: int
    ) -> None:
        self.table = table
        self.selector = selector
        self._limit = limit
        self._locks = add_all(pipeline, table.locks_before_pick(selector))
        self._results = add_all(pipeline, table.pick_statements(selector, limit))
        self.states: list[State] = []

    def pick_more(self, pipeline: Pipeline) -> bool:
        """Adds the picks that depend on the rows locked first; returns False if none were."""
        if not any(result.rows() for result in self._locks):
            return False
        ready = [state for result in self._results for state in load(self.table, result)]
        more = self.table.picks_after_locks(self.selector, self._limit, ready)
        self._results += add_all(pipeline, more)
        return True

    def load(self) -> None:
        picked = [load(self.table, result) for result in self._results]
        self.states = self.table.merge_picks(self.selector, picked)


def add_all(pipeline: Pipeline, statements: Statements) -> list[PendingResult]:
    return [pipeline.add(query, **parameters) for query, parameters in statements]


def load(table: LiveTable[Any], result: PendingResult) -> list[State]:
    return [table.load(row) for row in result.rows()]
