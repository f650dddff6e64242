"""Rows of live tables that no version can load, as an older version may have written them. They
are moved to `quarantined_rows`, so that they block no command.

The server finds them, from the types of the columns, because a client cannot load any of a result
that holds one such value. The search runs only after a failure. `quarantined_rows` keeps the row as
it was; its history is in the log.
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

# Each look reads whole tables: a defect that has nothing to do with rows must not make it a habit.
AGAIN_SECONDS = 1.0

READ_COLUMNS = """
SELECT attname, atttypid = 'timestamptz'::regtype
FROM pg_attribute
WHERE attrelid = %(table)s::regclass AND attnum > 0 AND NOT attisdropped
  AND atttypid IN ('timestamptz'::regtype, 'float8'::regtype)
ORDER BY attnum
"""
# The calendar of Python, in which instants are loaded.
_INSTANT = SQL("""
coalesce({one} NOT BETWEEN '0001-01-01 00:00:00+00' AND
         '9999-12-31 23:59:59.999999+00'::timestamptz, false)""")
# To the server NaN is greater than every number.
_NUMBER = SQL("coalesce(abs({one}) > {most}, false)")
# One transaction writes the row's version and the log's.
_VERSION = SQL("""
{version} IS DISTINCT FROM (
    SELECT max(originator_version) FROM stored_events WHERE originator_id = {id})
""")
FIND_ROWS = SQL("SELECT id FROM {table} WHERE {condition} ORDER BY id")
TAKE_ROWS = SQL("""
WITH taken AS (DELETE FROM {table} WHERE {condition} RETURNING {table}.*)
INSERT INTO quarantined_rows (id, table_name, data)
SELECT id, {name}, to_jsonb(taken) FROM taken
ON CONFLICT (id) DO UPDATE SET data = excluded.data, taken_at = clock_timestamp()
RETURNING id
""")

Connection = AsyncConnection[TupleRow]


def is_unloadable(error: BaseException) -> bool:
    """Whether a value came from the server that cannot be loaded: the server itself, which would
    give a state, has nothing against it."""
    return isinstance(error, psycopg.DataError) and error.sqlstate is None


def condition_of(columns: Iterable[tuple[str, bool]]) -> Composable:
    """True for rows that cannot be loaded, or not be worked with."""
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


async def take_unreadable_rows(
    connection: Connection, table: LiveTable[Any], suspects: Sequence[UUID] = ()
) -> list[UUID]:
    """Moves the rows that cannot be loaded, and the suspects whose version differs from the log's;
    returns their ids."""
    name = Identifier(table.name)
    condition = await unreadable_condition(connection, table.name)
    if suspects:
        mismatched = _VERSION.format(
            version=Identifier(table.name, "version"), id=Identifier(table.name, "id")
        )
        condition = SQL("({} OR id = ANY(%(suspects)b) AND {})").format(condition, mismatched)
    query = TAKE_ROWS.format(table=name, condition=condition, name=table.name)
    given = {"suspects": uuids(suspects)} if suspects else {}
    async with connection.transaction():
        taken = [row[0] for row in await (await connection.execute(query, given)).fetchall()]
        for statement, parameters in table.recompute_all() if taken else ():
            await connection.execute(statement.encode(), parameters)
    return taken


class UnreadableRows:
    """Takes such rows out for one process. Calls without suspects share the result of a search that
    ended less than AGAIN_SECONDS ago."""

    def __init__(self, conninfo: str, tables: Sequence[LiveTable[Any]]) -> None:
        """`conninfo` is that of a writer."""
        self._conninfo = conninfo
        self._tables = tables
        self._turn = asyncio.Lock()
        self._looked_at = -AGAIN_SECONDS
        self._found = False

    async def quarantine(self, suspects: Sequence[UUID] = ()) -> bool:
        """Whether there were any, so that it is worth while to try again."""
        async with self._turn:
            if time.monotonic() < self._looked_at + AGAIN_SECONDS and not suspects:
                return self._found
            self._found = await self._quarantine(suspects)
            self._looked_at = time.monotonic()
        return self._found

    async def _quarantine(self, suspects: Sequence[UUID]) -> bool:
        taken: list[str] = []
        async with await connect(self._conninfo) as connection:
            for table in self._tables:
                ids = await take_unreadable_rows(connection, table, suspects)
                taken += [f"{table.decider.name} {one}" for one in ids]
        if taken:
            _log.error(
                "%d rows that cannot be loaded were taken out of the live tables (%s). Everything "
                "else goes on. 'daybook quarantine list' says why; then set them aside. A row that "
                "is not listed there has a sound history: 'daybook rebuild TABLE' restores it.",
                len(taken),
                ", ".join(taken[:5]),
            )
        return bool(taken)
