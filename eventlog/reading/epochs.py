"""Epochs of the log: they distinguish positions before a failover or restore from later ones.

A crash keeps every published position. A failover to a lagging standby or a restore does not: the
same positions are drawn again for other events. Both start a new timeline or system identifier, and
so a new epoch. A cursor found in a new epoch was written before it began, so the log up to that
cursor is the same in both epochs; a client of the old epoch resumes there.
"""

from weakref import WeakKeyDictionary

from msgspec import Struct
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from daybook.eventlog.errors import StandbyError

# The WAL file name has the new timeline at once, the control file only after the next checkpoint.
# A standby writes no WAL.
READ_EPOCH = """
SELECT to_hex((SELECT system_identifier FROM pg_control_system())) || '.'
       || ltrim(substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8), '0')
WHERE NOT pg_is_in_recovery()
"""
# The first epoch begins with the log, later ones at the furthest follower's position. No follower
# moves its cursor before its epoch is stored.
BEGIN_EPOCH = """
INSERT INTO log_epochs (number, epoch, position)
SELECT coalesce((SELECT max(number) FROM log_epochs), 0) + 1, %(epoch)s,
       CASE WHEN EXISTS (SELECT FROM log_epochs)
            THEN least((SELECT coalesce(max(position), 0) FROM followers
                        WHERE epoch IS DISTINCT FROM %(epoch)s),
                       (SELECT coalesce(max(notification_id), 0) FROM stored_events))
            ELSE 0 END
WHERE NOT EXISTS (SELECT FROM log_epochs WHERE epoch = %(epoch)s)
ON CONFLICT DO NOTHING
"""
# Returns where the log may diverge from the given epoch's log, and where the last epoch began. An
# unknown epoch shares no known position.
FIND_COMMON = """
SELECT (SELECT coalesce(max(notification_id), 0) FROM stored_events),
       (SELECT position FROM log_epochs ORDER BY number DESC LIMIT 1),
       (SELECT min(position) FROM log_epochs
        WHERE number > (SELECT number FROM log_epochs WHERE epoch = %(epoch)s)),
       %(epoch)s::text IS NULL OR EXISTS (SELECT FROM log_epochs WHERE epoch = %(epoch)s)
"""
READ_LAST_EPOCH = """
SELECT number, epoch, position, began_at FROM log_epochs ORDER BY number DESC LIMIT 1
"""

Connection = AsyncConnection[TupleRow]

_epochs: "WeakKeyDictionary[Connection, str]" = WeakKeyDictionary()


class LogPosition(Struct, frozen=True):
    """A published position with its epoch, which older clients do not send."""

    position: int
    epoch: str | None = None

    def __str__(self) -> str:
        return str(self.position) if self.epoch is None else f"{self.position}-{self.epoch}"


async def epoch_of(connection: Connection) -> str:
    """Returns the server's epoch, read once a connection; raises StandbyError on a standby."""
    known = _epochs.get(connection)
    if known is not None:
        return known
    found = await (await connection.execute(READ_EPOCH)).fetchone()
    if found is None:
        raise StandbyError
    epoch = _epochs[connection] = str(found[0])
    return epoch


async def enter_epoch(connection: Connection) -> str:
    """Returns the epoch and stores a new one; required before moving cursors or publishing."""
    epoch = await epoch_of(connection)
    await connection.execute(BEGIN_EPOCH, {"epoch": epoch})
    return epoch


async def common_position(connection: Connection, client: LogPosition) -> int:
    """Returns the position from which to read without skipping: the client's own, or an earlier one
    if the log has diverged from the client's epoch or ends before it."""
    found = await connection.execute(FIND_COMMON, {"epoch": client.epoch})
    ((newest, last_began, diverged, is_known),) = await found.fetchall()
    if not is_known:
        return 0
    if diverged is not None:
        return int(min(client.position, diverged))
    if client.position > newest:
        return int(min(last_began or 0, newest))
    return client.position
