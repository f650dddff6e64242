"""Switch: replaces the running tables by a copy and keeps them for a rollback.

Writers wait for one short transaction that locks the tables, replays the last events and exchanges
the names. A lock that is not granted within lock_seconds is given up and tried again, because
others would queue behind it.
"""

import time

from msgspec import Struct
from psycopg import errors
from psycopg.sql import SQL, Identifier

from daybook.eventlog.postgres.connections import SCHEMA
from daybook.eventlog.postgres.pipeline import Connection
from daybook.eventlog.reading.epochs import epoch_of
from daybook.eventlog.reading.follower import (
    LOCK_CURSOR,
    MOVE_CURSOR,
    REGISTER_FOLLOWER,
    FollowerCursor,
)
from daybook.projections.rebuild.comparison import Comparison, compare
from daybook.projections.rebuild.replay import END_OF_LOG, goals_at, replay_all
from daybook.projections.rebuild.shadow_tables import (
    BEFORE,
    SHADOW,
    Copy,
    delete_cursor,
    drop_copy,
    store_cursor,
)
from daybook.projections.rebuild.targets import Target

# Longest wait of writers, even if this process is stopped in the middle.
SWITCH_SECONDS_MAX = 1.0

LIMIT_WAITS = """
SELECT set_config('lock_timeout', %(lock)s, true), set_config('statement_timeout', %(all)s, true),
       set_config('idle_in_transaction_session_timeout', %(all)s, true)
"""
# Snapshots of lists begin with a lock on this table: see projections/snapshot.py.
LOCK_SNAPSHOTS = "LOCK TABLE rebuilds IN ACCESS EXCLUSIVE MODE"
LOCK_RUNNING = SQL("LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE")
MOVE_TABLE = SQL("ALTER TABLE {table} SET SCHEMA {schema}")
# Columns outside the log (heartbeats), where their claim is still the same.
CARRY_OVER = SQL("""
UPDATE {copy} AS rebuilt
SET {column} = running.{column}
FROM {running} AS running
WHERE rebuilt.id = running.id
  AND rebuilt.{holds} IS NOT NULL AND running.{holds} IS NOT NULL
  AND rebuilt.{holds} = running.{holds}
  AND rebuilt.{column} IS DISTINCT FROM running.{column}
""")
FIND_HOLDERS = """
SELECT DISTINCT format('process %%s of %%s',
                       pid, coalesce(nullif(application_name, ''), backend_type))
FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE relation = ANY(%(tables)s::text[]::regclass[]) AND granted AND pid <> pg_backend_pid()
LIMIT 3
"""

_LOCK_FAILURES = (errors.LockNotAvailable, errors.QueryCanceled, errors.DeadlockDetected)


class Switched(Struct, frozen=True):
    found: Comparison | None  # in the switch, if it was compared
    seconds: float  # longest wait of writers


async def try_switch(
    connection: Connection, copy: Copy, *, lock_seconds: float, compares: bool
) -> Switched | None:
    """Returns None if a lock was not granted within lock_seconds."""
    began = time.monotonic()
    try:
        async with connection.transaction():
            await _limit_waits(connection, lock_seconds)
            found = await _switch(connection, copy, compares=compares)
    except _LOCK_FAILURES:
        return None
    return Switched(found, time.monotonic() - began)


async def _limit_waits(connection: Connection, lock_seconds: float) -> None:
    lock, everything = (f"{seconds * 1000:.0f}ms" for seconds in (lock_seconds, SWITCH_SECONDS_MAX))
    await connection.execute(LIMIT_WAITS, {"lock": lock, "all": everything})


async def _switch(connection: Connection, copy: Copy, *, compares: bool) -> Comparison | None:
    await connection.execute(LOCK_SNAPSHOTS)
    followed = await _lock_running(connection, copy.target)
    goals = goals_at([copy], END_OF_LOG, {copy.target.name: followed} if followed else {})
    (complete,) = await replay_all(connection, [copy], goals)
    await _carry_over(connection, complete)
    comparison = await compare(connection, complete, followed) if compares else None
    # Live tables are ahead of the settled position; only that much is certain.
    left = FollowerCursor(copy.position) if followed is None else followed
    await _exchange(connection, complete)
    if followed is not None:
        await _move_follower(connection, complete)
    await delete_cursor(connection, complete)
    await store_cursor(connection, Copy(BEFORE, copy.target, left))
    return comparison


async def _lock_running(connection: Connection, target: Target) -> FollowerCursor | None:
    """Locks in the order of followers and writers; returns the follower's cursor, if any."""
    followed: FollowerCursor | None = None
    if target.is_followed:
        await connection.execute(REGISTER_FOLLOWER, {"name": target.name})
        rows = await connection.execute(LOCK_CURSOR, {"name": target.name}, binary=True)
        followed = FollowerCursor(*(await rows.fetchone() or ()))
    tables = [Identifier(SCHEMA, table) for table in target.tables]
    await connection.execute(LOCK_RUNNING.format(tables=SQL(", ").join(tables)))
    return followed


async def _carry_over(connection: Connection, copy: Copy) -> None:
    for column, holds in copy.target.columns_outside_log.items():
        carry = CARRY_OVER.format(
            copy=copy.tables[0],
            running=Identifier(SCHEMA, copy.target.tables[0]),
            column=Identifier(column),
            holds=Identifier(holds),
        )
        await connection.execute(carry)


async def _exchange(connection: Connection, copy: Copy) -> None:
    """Moves the running tables to BEFORE; in a rollback by way of SHADOW, as BEFORE is in use."""
    aside = BEFORE if copy.schema == SHADOW else SHADOW
    await drop_copy(connection, Copy(aside, copy.target))
    for table in copy.target.tables:
        await _move(connection, Identifier(SCHEMA, table), aside)
        await _move(connection, Identifier(copy.schema, table), SCHEMA)
        if aside != BEFORE:
            await _move(connection, Identifier(aside, table), BEFORE)


async def _move(connection: Connection, table: Identifier, schema: str) -> None:
    await connection.execute(MOVE_TABLE.format(table=table, schema=Identifier(schema)))


async def _move_follower(connection: Connection, copy: Copy) -> None:
    cursor = copy.cursor
    where = {"position": cursor.position, "count": cursor.count, "digest": cursor.digest}
    of = {"name": copy.target.name, "epoch": await epoch_of(connection)}
    await connection.execute(MOVE_CURSOR, {**of, **where})


async def describe_holders(connection: Connection, copy: Copy) -> str:
    tables = ["stored_events", "rebuilds", *(f"{SCHEMA}.{table}" for table in copy.target.tables)]
    rows = await connection.execute(FIND_HOLDERS, {"tables": tables})
    return "; ".join(row[0] for row in await rows.fetchall()) or "none at present"
