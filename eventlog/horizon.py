"""The settled horizon: up to where the log is complete, for ever.

Positions are drawn from a sequence before their transactions commit, so a reader that simply
follows the largest position it saw skips whatever commits late. A position is settled when
every transaction that may hold it, or a smaller one, has ended:

1. look which position was drawn last: L;
2. after that, look who is writing: every transaction that holds the lock that an INSERT takes on
   the log, before it draws a position, and keeps until it ends;
3. once all of those have ended, whatever will ever exist up to L is visible: L is settled.

Only writers of this very log are waited for, so a stranger's long transaction holds nothing up.
"""

from collections.abc import Iterable
from typing import Any

from psycopg import AsyncConnection, Connection
from psycopg.rows import TupleRow, tuple_row

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
# How long the oldest of them has been at it: so long nobody reads past it.
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
    """Remembers the candidate L between two looks, and who has to end before it is settled."""

    def __init__(self) -> None:
        self.settled = 0
        self.last_position = 0
        """What was drawn last, when it last looked."""

        self._candidate = 0
        self._awaited: frozenset[str] = frozenset()

    @property
    def is_waiting(self) -> bool:
        """Whether something was drawn that is not settled yet: another look is worth while."""
        return self._candidate > self.settled

    def observe(self, last_position: int, writers: Iterable[str]) -> int:
        """Takes one look: the position drawn last, and who was writing after that was read."""
        self.last_position = last_position
        now_writing = frozenset(writers)
        self._awaited &= now_writing
        if not self._awaited:
            self.settled = max(self.settled, self._candidate)
            self._candidate, self._awaited = last_position, now_writing
            if not now_writing:
                self.settled = max(self.settled, last_position)
        return self.settled

    async def look(self, connection: AsyncConnection[TupleRow]) -> int:
        async with connection.pipeline():
            last = await connection.execute(READ_LAST_POSITION)
            writers = await connection.execute(FIND_WRITERS)
        ((position,),) = await last.fetchall()
        return self.observe(position, [row[0] for row in await writers.fetchall()])

    def look_in_thread(self, connection: Connection[Any]) -> int:
        cursor = connection.cursor(row_factory=tuple_row)
        ((position,),) = cursor.execute(READ_LAST_POSITION).fetchall()
        writers = cursor.execute(FIND_WRITERS).fetchall()
        return self.observe(position, [row[0] for row in writers])
