"""Targets of a rebuild: live tables and read models.

A target writes unqualified table names, and the search path selects copies or running tables. So
the statements that maintain a table also rebuild it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from psycopg.sql import SQL, Composed, Identifier

from daybook.domain.deciders import DECIDERS
from daybook.domain.event import State
from daybook.domain.ids import key_of
from daybook.domain.soundness import fault_in
from daybook.eventlog.codec import EventMapper, FollowedEvent
from daybook.eventlog.event_faults import describe_error
from daybook.eventlog.postgres.binary_arrays import uuids
from daybook.eventlog.postgres.pipeline import Connection
from daybook.eventlog.reading.fold import fold_histories
from daybook.eventlog.reading.follower import FollowerCursor, Rebuildable
from daybook.eventlog.reading.skip_unreadable import apply_readable
from daybook.eventlog.writing.live_table import LiveTable
from daybook.projections.rebuild.errors import UnfoldableEventError
from daybook.projections.registry import LIVE_TABLES, READ_MODELS, WRITTEN_MODELS

MAPPER = EventMapper(DECIDERS)

# Events that a read model applies at once: it folds all aggregates of a batch in memory.
READ_MODEL_BATCH = 5_000

# Touched rows are deleted and inserted. Updates row by row would violate a unique index when two
# bots exchange their orders.
DELETE_ROWS = SQL("DELETE FROM {table} WHERE id = ANY(%(ids)s)")

Events = Sequence[FollowedEvent]


class Target:
    name: str
    tables: tuple[str, ...]
    topics: frozenset[str]
    is_followed = False  # a follower writes the running tables, which may be behind the log
    columns_outside_log: Mapping[str, str] = {}  # see LiveTable

    async def apply(self, connection: Connection, events: Events, *, after: int) -> list[str]:
        """Applies events after position `after`; returns a sentence for each unreadable one that is
        left out."""
        raise NotImplementedError

    async def recompute_all(self, connection: Connection) -> None:
        """Runs once this and the tables it depends on are at one position."""

    def passed(self, cursor: FollowerCursor, events: Events, *, upto: int) -> FollowerCursor:  # noqa: ARG002 (subclasses)
        """Returns the cursor after these events."""
        return FollowerCursor(upto)


class DerivedTarget(Target):
    """A read model, written in the transaction of the events or by a follower."""

    def __init__(self, projection: Rebuildable) -> None:
        self._projection = projection
        self.name = projection.name
        self.tables = (projection.name,)
        kinds = projection.kinds
        self.topics = frozenset(MAPPER.known_topics if kinds is None else MAPPER.topics_of(kinds))

    async def apply(self, connection: Connection, events: Events, *, after: int) -> list[str]:
        del after  # Only live tables need it.
        left_out: list[str] = []
        for first in range(0, len(events), READ_MODEL_BATCH):
            some = events[first : first + READ_MODEL_BATCH]
            left_out += await apply_readable(connection, self._projection, some, MAPPER)
        return left_out


class FollowedTarget(DerivedTarget):
    is_followed = True

    def passed(self, cursor: FollowerCursor, events: Events, *, upto: int) -> FollowerCursor:
        return cursor.past([event.position for event in events], upto=upto)


class LiveTarget(Target):
    def __init__(self, table: LiveTable[Any]) -> None:
        self._table = table
        self.name = table.name
        self.tables = (table.name, *table.sides.names)
        self.topics = frozenset(MAPPER.topics_of(table.decider.events))
        self.columns_outside_log = table.columns_outside_log

    async def apply(self, connection: Connection, events: Events, *, after: int) -> list[str]:
        histories: dict[int, list[FollowedEvent]] = {}
        for event in events:
            histories.setdefault(key_of(event.originator_id), []).append(event)
        firsts = [history[0] for history in histories.values()]
        stored = await self._stored(connection, firsts)
        before = {**stored, **await self._folded(connection, firsts, stored, upto=after)}
        states, left_out = list[State](), list[str]()
        for history in histories.values():
            try:
                states.append(self._fold(before, history))
            except UnfoldableEventError as error:
                left_out.append(f"{self._table.decider.name} {error}")
        await self._write(connection, stored, states)
        return left_out

    async def recompute_all(self, connection: Connection) -> None:
        for query, given in self._table.sides.recompute_all():
            await connection.execute(query, given, binary=True)

    async def _stored(self, connection: Connection, firsts: Events) -> dict[int, State]:
        ids = uuids([event.originator_id for event in firsts])
        rows = await connection.execute(self._table.lock, {"ids": ids}, binary=True)
        states = map(self._table.load, await rows.fetchall())
        return {key_of(state.id): state for state in states}

    async def _folded(
        self, connection: Connection, firsts: Events, stored: Mapping[int, State], *, upto: int
    ) -> dict[int, State | None]:
        """Returns aggregates to be folded from the log because their stored row does not precede
        these events: they had finished, or a part of the events is replayed again."""

        def continues(event: FollowedEvent) -> bool:
            state = stored.get(key_of(event.originator_id))
            version = 0 if state is None else state.version
            return event.originator_version == version + 1

        ids = [event.originator_id for event in firsts if not continues(event)]
        if not ids:
            return {}
        found = await fold_histories(connection, MAPPER, ids, upto=upto)
        return {key_of(aggregate_id): found.get(aggregate_id) for aggregate_id in ids}

    def _fold(self, before: Mapping[int, State | None], history: Events) -> State:
        evolve = self._table.decider.evolve
        state = before.get(key_of(history[0].originator_id))
        for recorded in history:
            try:
                state = evolve(state, recorded.event)
            except Exception as error:
                raise UnfoldableEventError(recorded, describe_error(error)) from error
            if state.version != recorded.originator_version:
                raise UnfoldableEventError(recorded, f"it folds to version {state.version}")
        assert state is not None, "a history has events"
        if fault := fault_in(state):
            raise UnfoldableEventError(history[-1], fault)
        return state

    async def _write(
        self, connection: Connection, stored: Mapping[int, State], states: Sequence[State]
    ) -> None:
        finished = self._table.decider.finished
        live = [state for state in states if not finished(state)]
        # Side rows are written when a row is inserted, so finished ones are inserted and deleted.
        passing = self._with_side_rows(state for state in states if finished(state))
        await self._delete(connection, [state.id for state in stored.values()])
        if inserted := sorted([*live, *passing], key=lambda state: key_of(state.id)):
            await connection.execute(self._table.insert, self._table.insert_parameters(inserted))
        await self._delete(connection, [state.id for state in passing])
        for query, given in self._table.sides.recompute([*stored.values(), *states]):
            await connection.execute(query, given, binary=True)

    def _with_side_rows(self, finished: Iterable[State]) -> list[State]:
        if not self._table.sides.names:
            return []
        return [*{self._table.sides.row(state): state for state in finished}.values()]

    async def _delete(self, connection: Connection, ids: Sequence[UUID]) -> None:
        if ids:
            await connection.execute(self._delete_statement, {"ids": uuids(ids)})

    @property
    def _delete_statement(self) -> str | Composed:
        """The table's own statement where it maintains side tables."""
        if self._table.sides.names:
            return self._table.delete
        return DELETE_ROWS.format(table=Identifier(self._table.name))


TARGETS: tuple[Target, ...] = (
    *(LiveTarget(table) for table in LIVE_TABLES),
    *(DerivedTarget(model) for model in WRITTEN_MODELS),
    *(FollowedTarget(model) for model in READ_MODELS),
)
