"""A submitted command, and the combined needs of a batch of commands."""

from collections.abc import Collection, Hashable, Sequence
from typing import Any
from uuid import UUID

from daybook.domain.command import (
    AggregateNeed,
    Command,
    CountRelated,
    Lock,
    LockAll,
    LockRelated,
    Need,
    Needs,
    NextNumbers,
    Peek,
    PeekAll,
    PickReady,
)
from daybook.domain.ids import key_of
from daybook.eventlog.origin import Origin
from daybook.eventlog.postgres.binary_arrays import uuids
from daybook.eventlog.postgres.pipeline import PendingResult, Pipeline
from daybook.eventlog.writing.idempotency import IdempotencyKey, Scope
from daybook.eventlog.writing.live_table import LiveTable
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


class TableNeeds:
    """Combined needs of one live table; ids are keyed by their integers."""

    def __init__(self) -> None:
        self.lock: dict[int, UUID] = {}
        self.lock_related: dict[int, UUID] = {}
        self.lock_all = False
        self.may_use_cache = True
        self.peek: dict[int, UUID] = {}
        self.peek_all = False
        self.count_related: dict[int, UUID] = {}
        self.pick: dict[Hashable, int] = {}

    def add(self, need: AggregateNeed) -> None:
        match need:
            case Lock(_, ids):
                self.lock.update(zip(map(key_of, ids), ids, strict=True))
                self.may_use_cache &= need.may_use_cache
            case LockRelated(_, to):
                self.lock_related[key_of(to)] = to
                self.may_use_cache = False
            case LockAll():
                self.lock_all, self.may_use_cache = True, False
            case Peek(_, ids):
                self.peek.update(zip(map(key_of, ids), ids, strict=True))
            case PeekAll():
                self.peek_all = True
            case CountRelated(_, ids):
                self.count_related.update(zip(map(key_of, ids), ids, strict=True))
            case PickReady(_, selector, limit):
                self.pick[selector] = self.pick.get(selector, 0) + limit


_NONE = TableNeeds()


class BatchNeeds:
    def __init__(self, commands: Sequence[SubmittedCommand]) -> None:
        self._tables: dict[str, TableNeeds] = {}
        self.next_numbers: dict[str, int] = {}
        self.idempotency_keys: list[Scope] = []
        for submitted in commands:
            for need in submitted.needs:
                self._add(need)
            if submitted.key is not None:
                self.idempotency_keys.append(submitted.key.scope)

    def _add(self, need: Need) -> None:
        if isinstance(need, NextNumbers):
            drawn = self.next_numbers.get(need.sequence, 0)
            self.next_numbers[need.sequence] = drawn + need.count
        elif (table := self._tables.get(need.decider.name)) is not None:
            table.add(need)
        else:
            self._tables[need.decider.name] = table = TableNeeds()
            table.add(need)

    def _of(self, table: LiveTable[Any]) -> TableNeeds:
        return self._tables.get(table.decider.name, _NONE)

    def cacheable(self, table: LiveTable[Any]) -> Collection[int]:
        """Returns the keys of the ids to lock, or none if cached states are not enough."""
        needs = self._of(table)
        return needs.lock.keys() if needs.may_use_cache else ()

    @property
    def lock_ids(self) -> dict[int, UUID]:
        return {key: one for table in self._tables.values() for key, one in table.lock.items()}

    @property
    def peek_ids(self) -> list[UUID]:
        return [one for table in self._tables.values() for one in table.peek.values()]

    @property
    def peek_all(self) -> set[str]:
        return {name for name, table in self._tables.items() if table.peek_all}

    def peek(self, pipeline: Pipeline, table: LiveTable[Any]) -> PendingResult | None:
        needs = self._of(table)
        if needs.peek_all:
            return pipeline.add(table.select)
        if needs.peek:
            return pipeline.add(table.select_by_id, ids=uuids([*needs.peek.values()]))
        return None

    def count_related(self, pipeline: Pipeline, table: LiveTable[Any]) -> PendingResult | None:
        if ids := self._of(table).count_related:
            return pipeline.add(table.count_related, related_ids=uuids([*ids.values()]))
        return None

    def lock(self, pipeline: Pipeline, table: LiveTable[Any]) -> PendingResult | None:
        """Locks all needed rows of a table with one statement, so that they are locked in order."""
        needs = self._of(table)
        if needs.lock_all:
            return pipeline.add(table.lock_all)
        ids = uuids([*needs.lock.values()])
        if related := needs.lock_related:
            return pipeline.add(table.lock_related, ids=ids, related_ids=uuids([*related.values()]))
        return pipeline.add(table.lock, ids=ids) if needs.lock else None

    def pick(self, table: LiveTable[Any]) -> dict[Hashable, int]:
        """Returns how many ready rows are wanted, by selector."""
        return {one: limit for one, limit in self._of(table).pick.items() if limit}
