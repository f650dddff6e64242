"""What can be rebuilt: live tables and read models.

A target writes its tables by their plain names, so the session's search path says which ones: the
statements that keep the running tables up to date rebuild them too.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from psycopg.sql import SQL, Composed, Identifier

from daybook.domain.deciders import DECIDERS
from daybook.domain.event import State
from daybook.domain.soundness import fault_in
from daybook.eventlog.codec import EventMapper, FollowedEvent
from daybook.eventlog.event_faults import describe_error
from daybook.eventlog.postgres.binary_arrays import uuids
from daybook.eventlog.reading.fold import fold_histories
from daybook.eventlog.reading.follower import FollowerCursor, Rebuildable
from daybook.eventlog.reading.skip_unreadable import apply_readable
from daybook.eventlog.writing.live_table import LiveTable
from daybook.projections.rebuild.errors import UnfoldableEventError
from daybook.projections.registry import LIVE_TABLES, READ_MODELS, WRITTEN_MODELS

MAPPER = EventMapper(DECIDERS)

# A read model looks up what its events lack, all of a batch at once: this is what it has to hold.
READ_MODEL_BATCH = 5_000

# Whatever was touched is taken out and put in anew. Row by row, two bots that exchanged their
# orders would for a moment both hold the same, which an index forbids.
DELETE_ROWS = SQL("DELETE FROM {table} WHERE id = ANY(%(ids)s)")

Connection = AsyncConnection[TupleRow]
Events = Sequence[FollowedEvent]


class Target:
    """A projection, as whoever rebuilds it sees it."""

    name: str
    tables: tuple[str, ...]
    topics: frozenset[str]
    is_followed = False
    """Whether its running tables are a follower's, and may be behind the log."""

    unrecorded: Mapping[str, str] = {}
    """As of a LiveTable."""

    async def apply(self, connection: Connection, events: Events, *, after: int) -> list[str]:
        """Brings the tables from the position `after` to that of the last of these events; returns
        a sentence for each event or aggregate left out because it cannot be read."""
        raise NotImplementedError

    async def settle(self, connection: Connection) -> None:
        """Once this and what it depends on are at the same position."""

    def passed(self, cursor: FollowerCursor, events: Events, *, upto: int) -> FollowerCursor:  # noqa: ARG002 (subclasses)
        """Where it stands after these events."""
        return FollowerCursor(upto)


class DerivedTarget(Target):
    """A read model. If it is not followed, its running table is as current as live ones."""

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
        self.tables = (table.name, *table.side_tables)
        self.topics = frozenset(MAPPER.topics_of(table.decider.events))
        self.unrecorded = table.columns_outside_log

    async def apply(self, connection: Connection, events: Events, *, after: int) -> list[str]:
        histories: dict[int, list[FollowedEvent]] = {}
        for event in events:
            histories.setdefault(event.originator_id.int, []).append(event)
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

    async def settle(self, connection: Connection) -> None:
        for query, given in self._table.recompute_all():
            await connection.execute(query, given, binary=True)

    async def _stored(self, connection: Connection, firsts: Events) -> dict[int, State]:
        ids = uuids([event.originator_id for event in firsts])
        rows = await connection.execute(self._table.lock, {"ids": ids}, binary=True)
        states = map(self._table.load, await rows.fetchall())
        return {state.id.int: state for state in states}

    async def _folded(
        self, connection: Connection, firsts: Events, stored: Mapping[int, State], *, upto: int
    ) -> dict[int, State | None]:
        """Those that have a past which is not what is stored: they had finished and come back, or
        were left in the middle of events that are told again."""

        def continues(event: FollowedEvent) -> bool:
            state = stored.get(event.originator_id.int)
            version = 0 if state is None else state.version
            return event.originator_version == version + 1

        ids = [event.originator_id for event in firsts if not continues(event)]
        if not ids:
            return {}
        found = await fold_histories(connection, MAPPER, ids, upto=upto)
        return {aggregate_id.int: found.get(aggregate_id) for aggregate_id in ids}

    def _fold(self, before: Mapping[int, State | None], history: Events) -> State:
        evolve = self._table.decider.evolve
        state = before.get(history[0].originator_id.int)
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
        # What a table keeps beside its rows is written when a row is inserted.
        passing = self._noted(state for state in states if finished(state))
        await self._delete(connection, [state.id for state in stored.values()])
        if inserted := sorted([*live, *passing], key=lambda state: state.id.int):
            await connection.execute(self._table.insert, self._table.insert_parameters(inserted))
        await self._delete(connection, [state.id for state in passing])
        for query, given in self._table.recompute_derived([*stored.values(), *states]):
            await connection.execute(query, given, binary=True)

    def _noted(self, finished: Iterable[State]) -> list[State]:
        if not self._table.side_tables:
            return []
        return [*{self._table.side_row(state): state for state in finished}.values()]

    async def _delete(self, connection: Connection, ids: Sequence[UUID]) -> None:
        if ids:
            await connection.execute(self._deleting, {"ids": uuids(ids)})

    @property
    def _deleting(self) -> str | Composed:
        """What a table keeps beside its rows may change when one of them goes."""
        if self._table.side_tables:
            return self._table.delete
        return DELETE_ROWS.format(table=Identifier(self._table.name))


TARGETS: tuple[Target, ...] = (
    *(LiveTarget(table) for table in LIVE_TABLES),
    *(DerivedTarget(model) for model in WRITTEN_MODELS),
    *(FollowedTarget(model) for model in READ_MODELS),
)
