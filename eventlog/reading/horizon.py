"""The settled horizon: the position up to which the log is complete for ever.

A sequence draws positions before their transactions commit, so a reader that follows the largest
visible position skips late commits. A position settles when all transactions that may hold it or a
smaller one have ended: (1) read the last drawn position L; (2) then find the writers, that is the
transactions with the lock that INSERT takes on the log before it draws a position; (3) once they
have all ended, L is settled. Other long transactions hold nothing up.

A crash loses positions drawn since the last WAL flush, and the sequence draws them again. A visible
event has been flushed with all earlier positions, so the horizon ends at the newest visible event.
A horizon is valid for one connection: the next server may have crashed or failed over.
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
# A writer that waits for its lock has drawn nothing, so only granted locks count. A prepared
# transaction keeps its lock and is found too.
FIND_WRITERS = """
SELECT virtualtransaction
FROM pg_locks
WHERE locktype = 'relation'
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND relation = 'stored_events'::regclass
  AND mode = 'RowExclusiveLock'
  AND granted
"""
# Read last, so that it includes the events of the writers that have ended.
READ_NEWEST_POSITION = "SELECT coalesce(max(notification_id), 0) FROM stored_events"
# A standby cannot see its primary's writers, and its sequences run ahead.
READ_ROLE = "SELECT pg_is_in_recovery()"
# Age in seconds of the oldest write transaction, which holds back the horizon.
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
    """Keeps the candidate L and its writers between two looks; another connection resets it."""

    def __init__(self) -> None:
        self._connection: object = None
        self.reset()

    def reset(self) -> None:
        # Every event up to here is visible, and no position up to here is drawn again.
        self.settled = 0
        # The last drawn position, as of the latest look.
        self.last_position = 0
        self._complete = 0
        self._candidate = 0
        self._awaited: frozenset[str] = frozenset()

    @property
    def is_waiting(self) -> bool:
        """Whether a drawn position is not settled yet."""
        return not self.is_complete(self._candidate)

    def is_complete(self, position: int) -> bool:
        """Whether all writers that may hold this position or a smaller one have ended."""
        return self._complete >= position

    def observe(self, last_position: int, writers: Iterable[str], newest: int) -> int:
        """Evaluates one look, whose three values were read in the order of the parameters."""
        if last_position < self.last_position:
            # The server crashed behind a pooler that kept this connection open.
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
        """Like `look`, in three round trips: a pipeline on a shared session would include the
        statements of its other users."""
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
