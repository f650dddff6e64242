"""The settled horizon: up to where the log is complete, for ever.

Positions are drawn from a sequence before their transactions commit, so a reader that simply
follows the largest position it saw skips whatever commits late. A position is settled when
every transaction that may hold it, or a smaller one, has ended:

1. look which position was drawn last: L;
2. after that, find the writers: every transaction that holds the lock that an INSERT takes on the
   log, before it draws a position, and keeps until it ends;
3. once all of them have ended, every event that will ever exist up to L is visible: L is settled.

Only writers of this very log are waited for, so a stranger's long transaction holds nothing up.

A sequence is not transactional: a crash loses the positions that were drawn since the last flush of
WAL, and the sequence hands them out again. An event is different: its transaction is flushed before
it becomes visible, and flushes every position drawn before. So the horizon ends at the newest
visible event, however much further the sequence is. A look on one connection says nothing about the
next connection, whose server may have crashed or failed over meanwhile.
"""

from collections.abc import Iterable
from typing import Any

from psycopg import AsyncConnection, AsyncCursor, Connection
from psycopg.rows import TupleRow, tuple_row

from daybook.eventlog.errors import StandbyError

Cursor = AsyncCursor[TupleRow]

READ_LAST_POSITION = """
SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM stored_events_notification_id_seq
"""
# A waiting writer has drawn nothing yet, so only granted locks count. A prepared transaction
# keeps its lock, and is found here like any other.
FIND_WRITERS = """
SELECT virtualtransaction
FROM pg_locks
WHERE locktype = 'relation'
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND relation = 'stored_events'::regclass
  AND mode = 'RowExclusiveLock'
  AND granted
"""
# Read last: it includes every event that the ended writers made visible.
READ_NEWEST_POSITION = "SELECT coalesce(max(notification_id), 0) FROM stored_events"
# A standby does not see the writers of its primary, and its sequences run ahead: it cannot tell
# which positions are settled.
READ_ROLE = "SELECT pg_is_in_recovery()"
# Age of the oldest writer's transaction, in seconds. No reader passes that writer until it ends.
READ_HORIZON_AGE = """
SELECT coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)), 0)::float8
FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE locktype = 'relation'
  AND pg_locks.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND relation = 'stored_events'::regclass
  AND mode = 'RowExclusiveLock'
  AND granted
"""


class Horizon:
    """Remembers the candidate L between two looks, and the writers that must end before L is
    settled.

    It belongs to one connection at a time: a look on another one starts anew.
    """

    def __init__(self) -> None:
        self._connection: object = None
        self.reset()

    def reset(self) -> None:
        self.settled = 0
        """Every event up to here is visible, and no position up to here is drawn again."""

        self.last_position = 0
        """The position drawn last, as of the latest look."""

        self._complete = 0
        self._candidate = 0
        self._awaited: frozenset[str] = frozenset()

    @property
    def is_waiting(self) -> bool:
        """Whether a drawn position is not settled yet, so that another look is worth while."""
        return not self.is_complete(self._candidate)

    def is_complete(self, position: int) -> bool:
        """Whether all writers that may hold this position or a smaller one have ended."""
        return self._complete >= position

    def observe(self, last_position: int, writers: Iterable[str], newest: int) -> int:
        """Takes one look: the position drawn last, then the writers, then the newest visible event,
        each read after the one before."""
        if last_position < self.last_position:
            # A pooler kept this connection open while the server behind it crashed.
            self.reset()
        self.last_position = last_position
        now_writing = frozenset(writers)
        self._awaited &= now_writing
        if not self._awaited:
            self._complete = max(self._complete, self._candidate)
            self._candidate, self._awaited = last_position, now_writing
            if not now_writing:
                self._complete = max(self._complete, last_position)
        self.settled = max(self.settled, min(self._complete, newest))
        return self.settled

    async def look(self, connection: AsyncConnection[TupleRow]) -> int:
        await self._enter(connection)
        async with connection.pipeline():
            last = await connection.execute(READ_LAST_POSITION)
            writers = await connection.execute(FIND_WRITERS)
            newest = await connection.execute(READ_NEWEST_POSITION)
        return await self._observe(last, writers, newest)

    async def look_step_by_step(self, connection: AsyncConnection[TupleRow]) -> int:
        """Three round trips instead of one: for a session that others use in between, where a
        pipeline would take their statements in."""
        await self._enter(connection)
        last = await connection.execute(READ_LAST_POSITION)
        writers = await connection.execute(FIND_WRITERS)
        newest = await connection.execute(READ_NEWEST_POSITION)
        return await self._observe(last, writers, newest)

    async def _enter(self, connection: AsyncConnection[TupleRow]) -> None:
        if connection is not self._connection:
            await refuse_standby(connection)
            self.reset()
            self._connection = connection

    async def _observe(self, last: Cursor, writers: Cursor, newest: Cursor) -> int:
        ((position,),) = await last.fetchall()
        now_writing = [row[0] for row in await writers.fetchall()]
        ((visible,),) = await newest.fetchall()
        return self.observe(position, now_writing, visible)

    def look_in_thread(self, connection: Connection[Any]) -> int:
        cursor = connection.cursor(row_factory=tuple_row)
        if connection is not self._connection:
            _refuse_if(cursor.execute(READ_ROLE).fetchone() == (True,))
            self.reset()
            self._connection = connection
        ((position,),) = cursor.execute(READ_LAST_POSITION).fetchall()
        writers = [row[0] for row in cursor.execute(FIND_WRITERS).fetchall()]
        ((visible,),) = cursor.execute(READ_NEWEST_POSITION).fetchall()
        return self.observe(position, writers, visible)


async def refuse_standby(connection: AsyncConnection[TupleRow]) -> None:
    role = await connection.execute(READ_ROLE)
    _refuse_if(await role.fetchone() == (True,))


def _refuse_if(is_standby: bool) -> None:
    if is_standby:
        raise StandbyError
