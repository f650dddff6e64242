"""Quarantine of live rows that no version can load; an older version may have written them.

They move to `quarantined_rows`, unchanged, so that they block no command. The server finds them by
column type, because a client can load nothing of a result with one such value. The search runs only
after a failure.
"""

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from psycopg.sql import SQL, Composable, Identifier

from daybook.domain.soundness import NUMBER_MAX
from daybook.eventlog.postgres.binary_arrays import uuids
from daybook.eventlog.postgres.connections import connect
from daybook.eventlog.writing.live_table import LiveTable

_log = logging.getLogger("daybook")

# Minimum interval of searches, which scan whole tables: an unrelated defect must not repeat them.
AGAIN_SECONDS = 1.0

READ_COLUMNS = """
SELECT attname, atttypid = 'timestamptz'::regtype
FROM pg_attribute
WHERE attrelid = %(table)s::regclass AND attnum > 0 AND NOT attisdropped
  AND atttypid IN ('timestamptz'::regtype, 'float8'::regtype)
ORDER BY attnum
"""
# The range of Python's datetime.
_INSTANT = SQL("""
coalesce({one} NOT BETWEEN '0001-01-01 00:00:00+00' AND
         '9999-12-31 23:59:59.999999+00'::timestamptz, false)""")
# PostgreSQL sorts NaN above every number.
_NUMBER = SQL("coalesce(abs({one}) > {most}, false)")
# One transaction writes a row and its events, so their versions are equal.
_VERSION = SQL("""
{version} IS DISTINCT FROM (
    SELECT max(originator_version) FROM stored_events WHERE originator_id = {id})
""")
FIND_ROWS = SQL("SELECT id FROM {table} WHERE {condition} ORDER BY id")
QUARANTINE_ROWS = SQL("""
WITH taken AS (DELETE FROM {table} WHERE {condition} RETURNING {table}.*)
INSERT INTO quarantined_rows (id, table_name, data)
SELECT id, {name}, to_jsonb(taken) FROM taken
ON CONFLICT (id) DO UPDATE SET data = excluded.data, taken_at = clock_timestamp()
RETURNING id
""")

Connection = AsyncConnection[TupleRow]


def is_unloadable(error: BaseException) -> bool:
    """Whether the client failed to load a value; an error of the server would have a SQLSTATE."""
    return isinstance(error, psycopg.DataError) and error.sqlstate is None


def condition_of(columns: Iterable[tuple[str, bool]]) -> Composable:
    """Returns the SQL condition of rows that cannot be loaded or whose numbers are out of range."""
    tests = [
        (_INSTANT if is_instant else _NUMBER).format(one=Identifier(name), most=NUMBER_MAX)
        for name, is_instant in columns
    ]
    return SQL("({})").format(SQL(" OR ").join(tests)) if tests else SQL("(false)")


async def unreadable_condition(connection: Connection, table: str) -> Composable:
    found = await connection.execute(READ_COLUMNS, {"table": table})
    return condition_of(await found.fetchall())


async def find_unreadable_rows(connection: Connection, table: str) -> list[UUID]:
    condition = await unreadable_condition(connection, table)
    query = FIND_ROWS.format(table=Identifier(table), condition=condition)
    return [row[0] for row in await (await connection.execute(query)).fetchall()]


async def quarantine_unreadable_rows(
    connection: Connection, table: LiveTable[Any], suspects: Sequence[UUID] = ()
) -> list[UUID]:
    """Quarantines rows that cannot be loaded, and suspects whose version differs from the log's;
    returns their ids."""
    name = Identifier(table.name)
    condition = await unreadable_condition(connection, table.name)
    if suspects:
        mismatched = _VERSION.format(
            version=Identifier(table.name, "version"), id=Identifier(table.name, "id")
        )
        condition = SQL("({} OR id = ANY(%(suspects)b) AND {})").format(condition, mismatched)
    query = QUARANTINE_ROWS.format(table=name, condition=condition, name=table.name)
    parameters = {"suspects": uuids(suspects)} if suspects else {}
    async with connection.transaction():
        quarantined = [
            row[0] for row in await (await connection.execute(query, parameters)).fetchall()
        ]
        for statement, values in table.sides.recompute_all() if quarantined else ():
            await connection.execute(statement.encode(), values)
    return quarantined


class UnreadableRows:
    """Quarantines rows for one process. Calls without suspects share the result of a search that
    ended less than AGAIN_SECONDS ago."""

    def __init__(self, conninfo: str, tables: Sequence[LiveTable[Any]]) -> None:
        self._conninfo = conninfo
        self._tables = tables
        self._lock = asyncio.Lock()
        self._searched_at = -AGAIN_SECONDS
        self._found = False

    async def quarantine(self, suspects: Sequence[UUID] = ()) -> bool:
        """Returns whether any row was quarantined, so that a retry is worthwhile."""
        async with self._lock:
            if time.monotonic() < self._searched_at + AGAIN_SECONDS and not suspects:
                return self._found
            self._found = await self._quarantine(suspects)
            self._searched_at = time.monotonic()
        return self._found

    async def _quarantine(self, suspects: Sequence[UUID]) -> bool:
        quarantined: list[str] = []
        async with await connect(self._conninfo) as connection:
            for table in self._tables:
                ids = await quarantine_unreadable_rows(connection, table, suspects)
                quarantined += [f"{table.decider.name} {one}" for one in ids]
        if quarantined:
            _log.error(
                "quarantined %d live rows that cannot be loaded (%s); all other commands continue. "
                "Run 'daybook quarantine list' for the reasons, then set them aside. If a row is "
                "not listed, its history is sound: restore it with 'daybook rebuild TABLE'.",
                len(quarantined),
                ", ".join(quarantined[:5]),
            )
        return bool(quarantined)
