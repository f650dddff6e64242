"""The epochs of the log: which life of which server a position was read in.

A crash keeps every position that was told. A failover to a standby that was behind does not, nor
does a restore: the same positions are drawn again, for other events. Both begin a new timeline, or
have another system identifier, and so a new epoch.

A cursor that survived into a new epoch was written before it began, so everything up to that cursor
is the same in both. That is where a client that comes from the old epoch goes on.
"""

from weakref import WeakKeyDictionary

from msgspec import Struct
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from daybook.eventlog.errors import StandbyError

# The control file knows of a new timeline only after the next checkpoint; WAL is written on it at
# once. A standby writes none.
READ_EPOCH = """
SELECT to_hex((SELECT system_identifier FROM pg_control_system())) || '.'
       || ltrim(substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8), '0')
WHERE NOT pg_is_in_recovery()
"""
# The first epoch begins with the log. Later ones begin where the furthest follower was; none of
# them moves its cursor before the epoch stands here.
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
# Where the log may first differ from that of the epoch, and where the last epoch began. Of an epoch
# that is not known here, nothing is known to be the same.
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
    """A position of the log as it was told, and in which epoch; older clients do not know that."""

    position: int
    epoch: str | None = None

    def __str__(self) -> str:
        return str(self.position) if self.epoch is None else f"{self.position}-{self.epoch}"


async def epoch_of(connection: Connection) -> str:
    """Of the server at the other end, which is asked once: a connection does not outlive it."""
    known = _epochs.get(connection)
    if known is not None:
        return known
    found = await (await connection.execute(READ_EPOCH)).fetchone()
    if found is None:
        raise StandbyError
    epoch = _epochs[connection] = str(found[0])
    return epoch


async def enter_epoch(connection: Connection) -> str:
    """Returns the log's epoch, and stores it if it is new. Callers go on to move a cursor or to
    give positions to clients."""
    epoch = await epoch_of(connection)
    await connection.execute(BEGIN_EPOCH, {"epoch": epoch})
    return epoch


async def common_position(connection: Connection, place: LogPosition) -> int:
    """From where on to read so that nothing is skipped: the place itself, or an earlier position if
    the log is not the one that the place was told of, or ends before it."""
    found = await connection.execute(FIND_COMMON, {"epoch": place.epoch})
    ((newest, last_began, diverged, is_known),) = await found.fetchall()
    if not is_known:
        return 0
    if diverged is not None:
        return int(min(place.position, diverged))
    if place.position > newest:
        return int(min(last_began or 0, newest))
    return place.position
