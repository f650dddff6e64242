"""State as of a position of the log: the same fold, stopped earlier.

It starts from the last checkpoint before the position, so the time depends on the events in
between and not on the length of the log. Only the wanted kinds of aggregates are read.
"""

from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import TupleRow
from psycopg.sql import SQL, Identifier

from daybook.domain.deciders import DECIDERS
from daybook.domain.event import Decider
from daybook.eventlog.codec import EventMapper
from daybook.eventlog.postgres.pipeline import Connection
from daybook.eventlog.reading.fold import fold_histories
from daybook.eventlog.writing.live_table import LiveTable
from daybook.eventlog.writing.unreadable_rows import unreadable_condition
from daybook.projections.registry import LIVE_TABLES
from daybook.projections.time_travel.checkpoints import Checkpoint, latest_checkpoint, twin_of

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
READ_ROWS = "SELECT {columns} FROM {twin} AS {table} WHERE as_of = %(position)s"
# The rows of a checkpoint in JSON.
READ_JSON_ROWS = """
SELECT {columns}
FROM (
    SELECT data AS copied_data FROM checkpoint_rows
    WHERE position = %(position)s AND kind = %(kind)s
) AS copied, jsonb_populate_record(NULL::{table}, copied_data) AS {table}
WHERE true
"""
READ_EVENTS = """
SELECT notification_id, originator_id, originator_version, topic, state
FROM stored_events
WHERE notification_id > %(after)s AND notification_id <= %(upto)s AND topic = ANY(%(topics)s)
ORDER BY notification_id
LIMIT %(limit)s
"""
READ_MISSING = """
SELECT notification_id, originator_id, originator_version, topic, state
FROM stored_events
WHERE notification_id = ANY(%(positions)s) AND topic = ANY(%(topics)s)
ORDER BY notification_id
"""

_MAPPER = EventMapper(DECIDERS)


class Past:
    """The unfinished aggregates of some kinds at one position."""

    def __init__(self, connection: Connection) -> None:
        self.states: dict[UUID, Any] = {}
        self._unreadable: set[UUID] = set()
        self._connection = connection

    @classmethod
    async def at(cls, connection: Connection, position: int, *deciders: Decider[Any]) -> "Past":
        """Reads all kinds if none is named."""
        past = cls(connection)
        for table in LIVE_TABLES:
            if not deciders or table.decider in deciders:
                await past._add(table, position)
        return past

    async def _add(self, table: LiveTable[Any], position: int) -> None:
        start = await latest_checkpoint(self._connection, table.name, upto=position)
        if start.count:
            async for state in _copied(self._connection, table, start):
                self.states[state.id] = state
        topics = _MAPPER.topics_of(table.decider.events)
        if start.missing:
            missing = {"positions": start.missing, "topics": topics}
            found = await self._connection.execute(READ_MISSING, missing, binary=True)
            await self._fold(await found.fetchall())
        wanted = {"after": start.position, "upto": position, "topics": topics, "limit": CHUNK}
        while True:
            found = await self._connection.execute(READ_EVENTS, wanted, binary=True)
            rows = await found.fetchall()
            await self._fold(rows)
            if len(rows) < CHUNK:
                return
            wanted["after"] = rows[-1][0]

    def of(self, kind: type[Any]) -> Iterator[Any]:
        return (state for state in self.states.values() if isinstance(state, kind))

    async def _fold(self, rows: list[TupleRow]) -> None:
        await self._bring_back(rows)
        states = self.states
        finished: set[UUID] = set()
        for _, aggregate_id, _, topic, stored in rows:
            try:
                decider = _MAPPER.decider_of(topic)
                after = decider.evolve(states.get(aggregate_id), _MAPPER.decode(topic, stored))
            except Exception:
                # The aggregate is left out from here on.
                self._unreadable.add(aggregate_id)
                continue
            states[aggregate_id] = after
            (finished.add if decider.finished(after) else finished.discard)(aggregate_id)
        # After the loop: a finished aggregate may be restarted within the chunk.
        for aggregate_id in finished | self._unreadable:
            states.pop(aggregate_id, None)

    async def _bring_back(self, rows: list[TupleRow]) -> None:
        """Folds aggregates that had finished before the chunk and have events in it."""
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


async def position_of(connection: Connection, instant: datetime) -> int:
    """Returns the last position recorded at or before an instant, by binary search: positions rise
    with time."""
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


async def _copied(
    connection: Connection, table: LiveTable[Any], start: Checkpoint
) -> AsyncIterator[Any]:
    rows = SQL(READ_JSON_ROWS if start.is_json else READ_ROWS)
    query = rows.format(
        columns=SQL(table.column_list), twin=twin_of(table), table=Identifier(table.name)
    )
    where = {"position": start.position, "kind": table.name}
    found = await connection.execute(query, where, binary=True)
    try:
        rows_found = await found.fetchall()
    except psycopg.DataError:
        # The checkpoint has a row that cannot be loaded.
        unreadable = await unreadable_condition(connection, table.name)
        query = SQL("{} AND NOT {}").format(query, unreadable)
        rows_found = await (await connection.execute(query, where, binary=True)).fetchall()
    for row in rows_found:
        yield table.load(row)
