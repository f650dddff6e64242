"""Lists are read at one moment: what is live, what has finished as far as its read model knows,
and the tail of the log that the read model does not know yet."""

from datetime import datetime

from daybook.eventlog.postgres.pipeline import Connection

# How much may wait for a read model before a list gives up: to look at so much takes half a
# second, and a read model so far behind is being rebuilt or has stopped.
TAIL_MAX = 20_000
# What has finished is folded in steps of a few milliseconds, between which others have their turn.
FOLD_MAX = 500

# A rebuild exchanges tables, and in a snapshot from before that the new ones would be as they were
# while they were made. So whoever wants a snapshot waits for the exchange first, behind a lock:
# that, unlike a query, takes none.
IN_ONE_SNAPSHOT = """
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;
LOCK TABLE rebuilds IN ACCESS SHARE MODE
"""

# Every statement of a list walks an index and stops at its limit; the planner, whose statistics
# are always old where rows come and go this fast, would rather read and sort whole tables.
PLAN_BY_INDEX = """
SELECT set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true),
       set_config('enable_sort', 'off', true),
       set_config('max_parallel_workers_per_gather', '0', true)
"""

# The clock is the database's, like that of every event.
READ_CLOCK = f"""{PLAN_BY_INDEX},
       clock_timestamp()
"""
READ_CURSOR_POSITION = f"""{PLAN_BY_INDEX},
       clock_timestamp(), coalesce((SELECT position FROM followers WHERE name = %(name)s), 0)
"""


class ListBehindError(Exception):
    """So much of the log is not in a read model yet that a list would take too long."""

    def __init__(self) -> None:
        super().__init__("The list of what has finished is still catching up with the log.")


async def begin_snapshot(connection: Connection) -> None:
    """As the first thing in a transaction that reads several tables as they were at one moment."""
    await connection.execute(IN_ONE_SNAPSHOT, prepare=False)


async def enter_snapshot(connection: Connection, read_model: str) -> tuple[datetime, int]:
    """At the beginning of a transaction: what time it is, and how far the read model is."""
    await begin_snapshot(connection)
    found = await connection.execute(READ_CURSOR_POSITION, {"name": read_model})
    ((*_, now, position),) = await found.fetchall()
    return now, position


async def enter_live_snapshot(connection: Connection) -> datetime:
    """The same where nothing is followed; what time it is."""
    await begin_snapshot(connection)
    now: datetime
    ((*_, now),) = await (await connection.execute(READ_CLOCK)).fetchall()
    return now
