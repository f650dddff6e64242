"""Snapshots for lists: live rows, the read model of finished ones, and the tail of the log that
the read model has not applied yet, all in one REPEATABLE READ transaction."""

from datetime import datetime

from daybook.eventlog.postgres.pipeline import Connection

# Longest tail that a list folds (0.5 s); a read model further behind is rebuilding or has stopped.
TAIL_MAX = 20_000
# Aggregates folded at a time, a few milliseconds, before the event loop runs other tasks.
FOLD_MAX = 500

# A rebuild switches tables, and a snapshot from before the switch would show the new tables half
# filled. LOCK TABLE waits for a switch before the snapshot is taken; a query would take it first.
IN_ONE_SNAPSHOT = """
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;
LOCK TABLE rebuilds IN ACCESS SHARE MODE
"""
# Every statement of a list walks an index and stops at its limit. The planner's statistics are
# always stale for tables that change this fast, so it would read and sort whole tables.
PLAN_BY_INDEX = """
SELECT set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true),
       set_config('enable_sort', 'off', true),
       set_config('max_parallel_workers_per_gather', '0', true)
"""
# The database's clock, as for every event.
READ_CLOCK = f"""{PLAN_BY_INDEX},
       clock_timestamp()
"""
READ_CURSOR_POSITION = f"""{PLAN_BY_INDEX},
       clock_timestamp(), coalesce((SELECT position FROM followers WHERE name = %(name)s), 0)
"""


class ListBehindError(Exception):
    """The read model is more than TAIL_MAX events behind the log."""

    def __init__(self) -> None:
        super().__init__(
            "The list of finished items is catching up with the log; retry in a few seconds."
        )


async def begin_snapshot(connection: Connection) -> None:
    """Must be the first statement of the transaction."""
    await connection.execute(IN_ONE_SNAPSHOT, prepare=False)


async def enter_snapshot(connection: Connection, read_model: str) -> tuple[datetime, int]:
    """Begins a snapshot; returns the time and the position of the read model."""
    await begin_snapshot(connection)
    found = await connection.execute(READ_CURSOR_POSITION, {"name": read_model})
    ((*_, now, position),) = await found.fetchall()
    return now, position


async def enter_live_snapshot(connection: Connection, plan: str) -> datetime:
    """Begins a snapshot of live tables only; returns the time. `plan` sets the planner and reads
    the clock, such as READ_CLOCK."""
    await begin_snapshot(connection)
    now: datetime
    ((*_, now),) = await (await connection.execute(plan)).fetchall()
    return now
