"""The moment at which a copy takes the place of the running tables, which are kept.

Writers wait for one short transaction: the tables are locked, the last events are folded in, and
names change hands. Whoever waited finds the new tables under the old names and goes on. A lock that
is not to be had at once is given up and tried again, because others would wait behind it.
"""

import time

from msgspec import Struct
from psycopg import errors
from psycopg.sql import SQL, Identifier

from daybook.eventlog.postgres.connections import SCHEMA
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
    drop_copy,
    forget_cursor,
    store_cursor,
)
from daybook.projections.rebuild.targets import Connection, Target

# Somebody who was stopped in the middle of it holds the writers up no longer than this.
SWITCH_SECONDS_MAX = 1.0

LIMIT_WAITS = """
SELECT set_config('lock_timeout', %(lock)s, true), set_config('statement_timeout', %(all)s, true),
       set_config('idle_in_transaction_session_timeout', %(all)s, true)
"""
# Whoever reads in one snapshot has locked this before taking it: see projections/snapshot.py.
LOCK_SNAPSHOTS = "LOCK TABLE rebuilds IN ACCESS EXCLUSIVE MODE"
LOCK_RUNNING = SQL("LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE")
MOVE_TABLE = SQL("ALTER TABLE {table} SET SCHEMA {schema}")

# What was moved by something else than events, where that still holds.
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

_NOT_NOW = (errors.LockNotAvailable, errors.QueryCanceled, errors.DeadlockDetected)


class Switched(Struct, frozen=True):
    found: Comparison | None
    """As of the moment of the switch, if there was time for it."""

    seconds: float
    """For how long writers waited, at most."""


async def try_switch(
    connection: Connection,
    copy: Copy,
    *,
    lock_seconds: float,
    compares: bool,
) -> Switched | None:
    """None when somebody was in the way."""
    began = time.monotonic()
    try:
        async with connection.transaction():
            await _limit_waits(connection, lock_seconds)
            found = await _switch(connection, copy, compares=compares)
    except _NOT_NOW:
        return None
    return Switched(found, time.monotonic() - began)


async def _limit_waits(connection: Connection, lock_seconds: float) -> None:
    lock, everything = (f"{seconds * 1000:.0f}ms" for seconds in (lock_seconds, SWITCH_SECONDS_MAX))
    await connection.execute(LIMIT_WAITS, {"lock": lock, "all": everything})


async def _switch(connection: Connection, copy: Copy, *, compares: bool) -> Comparison | None:
    await connection.execute(LOCK_SNAPSHOTS)
    followed = await _hold_running(connection, copy.target)
    goals = goals_at([copy], END_OF_LOG, {copy.target.name: followed} if followed else {})
    (complete,) = await replay_all(connection, [copy], goals)
    await _carry_over(connection, complete)
    comparison = await compare(connection, complete, followed) if compares else None
    # Live tables are ahead of what is settled, but only so much of them is certain.
    left = FollowerCursor(copy.position) if followed is None else followed
    await _exchange(connection, complete)
    if followed is not None:
        await _move_follower(connection, complete)
    await forget_cursor(connection, complete)
    await store_cursor(connection, Copy(BEFORE, copy.target, left))
    return comparison


async def _hold_running(connection: Connection, target: Target) -> FollowerCursor | None:
    """In the order in which followers and writers take their locks. Returns where the follower
    is, if there is one."""
    followed: FollowerCursor | None = None
    if target.is_followed:
        await connection.execute(REGISTER_FOLLOWER, {"name": target.name})
        held = await connection.execute(LOCK_CURSOR, {"name": target.name}, binary=True)
        followed = FollowerCursor(*(await held.fetchone() or ()))
    tables = [Identifier(SCHEMA, table) for table in target.tables]
    await connection.execute(LOCK_RUNNING.format(tables=SQL(", ").join(tables)))
    return followed


async def _carry_over(connection: Connection, copy: Copy) -> None:
    for column, holds in copy.target.unrecorded.items():
        carry = CARRY_OVER.format(
            copy=copy.tables[0],
            running=Identifier(SCHEMA, copy.target.tables[0]),
            column=Identifier(column),
            holds=Identifier(holds),
        )
        await connection.execute(carry)


async def _exchange(connection: Connection, copy: Copy) -> None:
    """The running tables go where nobody is in their way, and end among those that are kept."""
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
    return "; ".join(row[0] for row in await rows.fetchall()) or "nobody any more"
