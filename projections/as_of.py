"""Everything as it was at a position of the log, or at an instant: the same fold, stopped earlier.

It starts from the last checkpoint before that position, so it takes as long as the events in
between, however long the log is.
"""

from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec import Struct
from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from psycopg.sql import SQL, Identifier

from domain.event import State
from eventlog.history import fold_histories
from eventlog.live import LiveTable
from eventlog.mapper import EventMapper
from projections.checkpoints import latest_checkpoint
from projections.registry import DECIDERS, LIVE_TABLES

CHUNK = 2000

READ_BOUNDS = """
SELECT coalesce(min(notification_id), 0), coalesce(max(notification_id), 0) FROM stored_events
"""
READ_INSTANT = """
SELECT notification_id, recorded_at FROM stored_events
WHERE notification_id <= %(position)s
ORDER BY notification_id DESC
LIMIT 1
"""
# The row of a live table, out of what was copied.
READ_ROWS = """
FROM (
    SELECT data AS copied_data FROM checkpoint_rows
    WHERE position = %(position)s AND kind = %(kind)s
) AS copied, jsonb_populate_record(NULL::{table}, copied_data) AS {table}
"""
READ_EVENTS = """
SELECT notification_id, originator_id, originator_version, topic, state
FROM stored_events
WHERE notification_id > %(after)s AND notification_id <= %(upto)s
ORDER BY notification_id
LIMIT %(limit)s
"""
READ_MISSING = """
SELECT notification_id, originator_id, originator_version, topic, state
FROM stored_events
WHERE notification_id = ANY(%(positions)s)
ORDER BY notification_id
"""

_MAPPER = EventMapper(DECIDERS)

Connection = AsyncConnection[TupleRow]


class Past:
    """The unfinished aggregates at one position; it can be moved on, never back."""

    def __init__(self, connection: Connection, position: int, states: dict[UUID, Any]) -> None:
        self.position = position
        self.states = states
        self._connection = connection

    @classmethod
    async def at(cls, connection: Connection, position: int) -> "Past":
        checkpoint = await latest_checkpoint(connection, position)
        if checkpoint is None:
            past = cls(connection, 0, {})
        else:
            states = {state.id: state async for state in _copied(connection, checkpoint.position)}
            past = cls(connection, checkpoint.position, states)
            rows = await connection.execute(
                READ_MISSING, {"positions": checkpoint.missing}, binary=True
            )
            await past._fold(await rows.fetchall())
        async for _ in past.move_to(position):
            pass
        return past

    async def move_to(self, position: int) -> AsyncIterator[int]:
        """Folds on, chunk by chunk; tells after each how far it is."""
        while self.position < position:
            limits = {"after": self.position, "upto": position, "limit": CHUNK}
            found = await self._connection.execute(READ_EVENTS, limits, binary=True)
            rows = await found.fetchall()
            await self._fold(rows)
            self.position = rows[-1][0] if len(rows) == CHUNK else position
            yield self.position

    def of(self, kind: type[Any]) -> Iterator[Any]:
        return (state for state in self.states.values() if isinstance(state, kind))

    async def _fold(self, rows: list[TupleRow]) -> None:
        await self._bring_back(rows)
        states = self.states
        finished: set[UUID] = set()
        for _, aggregate_id, _, topic, stored in rows:
            decider = _MAPPER.decider_of(topic)
            after = decider.evolve(states.get(aggregate_id), _MAPPER.decode(topic, stored))
            states[aggregate_id] = after
            (finished.add if decider.finished(after) else finished.discard)(aggregate_id)
        # Not earlier: what is finished may come back within the chunk.
        for aggregate_id in finished:
            del states[aggregate_id]

    async def _bring_back(self, rows: list[TupleRow]) -> None:
        """Aggregates that were finished, and to which something happens all the same."""
        begun: set[UUID] = set()
        absent: dict[UUID, int] = {}
        for position, aggregate_id, version, _, _ in rows:
            if version == 1:
                begun.add(aggregate_id)
            elif aggregate_id not in self.states and aggregate_id not in begun:
                absent.setdefault(aggregate_id, position)
        for aggregate_id, position in absent.items():
            before = position - 1
            self.states |= await fold_histories(
                self._connection, _MAPPER, [aggregate_id], upto=before
            )


class Change(Struct, frozen=True):
    """What became of one aggregate between two moments; None before it was and after it ended."""

    id: UUID
    kind: str
    before: State | None
    after: State | None
    events: int


async def position_of(connection: Connection, instant: datetime) -> int:
    """The last position that was recorded at that instant or before. Positions rise with time, so
    it is found by halves."""
    ((low, high),) = await (await connection.execute(READ_BOUNDS)).fetchall()
    low -= 1
    while low < high:
        middle = (low + high + 1) // 2
        found = await connection.execute(READ_INSTANT, {"position": middle})
        row = await found.fetchone()
        if row is None or row[1] > instant:
            high = (middle if row is None else row[0]) - 1
        else:
            low = middle
    return max(int(low), 0)


async def _copied(connection: Connection, position: int) -> AsyncIterator[Any]:
    for table in LIVE_TABLES:
        select, _, _ = table.select.rpartition("FROM")
        query = SQL(select) + SQL(READ_ROWS).format(table=Identifier(table.name))
        found = await connection.execute(
            query, {"position": position, "kind": table.name}, binary=True
        )
        for row in await found.fetchall():
            yield _loaded(table, row)


def _loaded(table: LiveTable[Any], row: TupleRow) -> Any:
    return table.load(row)
