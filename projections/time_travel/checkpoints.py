"""Checkpoints: copies of live tables inside the database, one table at a time, for time travel.

A live table has a twin with its columns in the schema `daybook_past`. Older copies are JSON in
`checkpoint_rows`; they are still read, but no longer written.

A checkpoint is taken in one snapshot, which shows events and rows of a transaction together.
Positions are assigned before commit, so a snapshot may lack positions below its largest: they are
stored as missing and folded in by the reader. Writers lock the rows they change, so a snapshot
never has a later event of an aggregate without the missing one.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec import Struct
from psycopg.sql import SQL, Identifier, Literal

from daybook.eventlog.postgres.pipeline import Connection
from daybook.eventlog.writing.live_table import LiveTable
from daybook.projections.registry import LIVE_TABLES
from daybook.projections.snapshot import begin_snapshot

PAST: Final = "daybook_past"

# Folding this many events takes 0.2 s; a checkpoint of few rows takes milliseconds.
EVENTS_BETWEEN = 20_000
# Keeps the copies of large tables smaller than the log.
EVENTS_PER_ROW = 5

READ_HEAD = "SELECT coalesce(max(notification_id), 0) FROM stored_events"
# Only positions above the settled horizon can be missing.
FIND_MISSING = """
SELECT coalesce(array_agg(position ORDER BY position), '{}')
FROM generate_series(%(settled)s::bigint + 1, %(head)s::bigint) AS position
WHERE NOT EXISTS (SELECT FROM stored_events WHERE notification_id = position)
"""
INSERT_CHECKPOINT = """
INSERT INTO daybook_past.checkpoints (kind, position, missing, count)
VALUES (%(kind)s, %(position)s, %(missing)s, %(count)s)
"""
# Columns by name: a rebuild or a migration may have changed their order. A column missing in the
# twin is an error.
READ_COLUMNS = """
SELECT attname FROM pg_attribute
WHERE attrelid = %(table)s::regclass AND attnum > 0 AND NOT attisdropped
ORDER BY attnum
"""
COPY_ROWS = """
INSERT INTO {twin} (as_of, {columns}) SELECT {position}, {columns} FROM {table}
"""
READ_CHECKPOINT = """
(SELECT position, missing, count, false AS is_json FROM daybook_past.checkpoints
 WHERE kind = %(kind)s AND position <= %(upto)s
 ORDER BY position DESC
 LIMIT 1)
UNION ALL
(SELECT position, missing, count, true FROM checkpoints
 WHERE kind = %(kind)s AND position <= %(upto)s
 ORDER BY position DESC
 LIMIT 1)
ORDER BY position DESC, is_json
LIMIT 1
"""


class Checkpoint(Struct, frozen=True):
    position: int = 0
    missing: Sequence[int] = ()
    count: int = 0
    is_json: bool = False


async def latest_checkpoint(connection: Connection, kind: str, *, upto: int) -> Checkpoint:
    """Returns the last checkpoint up to that position; position 0 if there is none."""
    found = await connection.execute(READ_CHECKPOINT, {"kind": kind, "upto": upto})
    row = await found.fetchone()
    return Checkpoint() if row is None else Checkpoint(*row)


async def due_tables(connection: Connection, head: int) -> list[LiveTable[Any]]:
    due: list[LiveTable[Any]] = []
    for table in LIVE_TABLES:
        last = await latest_checkpoint(connection, table.name, upto=head)
        if head - last.position >= max(EVENTS_BETWEEN, EVENTS_PER_ROW * last.count):
            due.append(table)
    return due


async def take_checkpoints(
    connection: Connection, settled: int, tables: Iterable[LiveTable[Any]] = LIVE_TABLES
) -> int:
    """`settled` is a settled position of the log. Returns the position of the checkpoints."""
    async with connection.transaction():
        await begin_snapshot(connection)
        ((head,),) = await (await connection.execute(READ_HEAD)).fetchall()
        ((missing,),) = await (
            await connection.execute(FIND_MISSING, {"settled": settled, "head": head})
        ).fetchall()
        for table in tables:
            count = await _copy(connection, table, head)
            taken = {"kind": table.name, "position": head, "missing": missing, "count": count}
            await connection.execute(INSERT_CHECKPOINT, taken)
    return int(head)


def twin_of(table: LiveTable[Any]) -> Identifier:
    return Identifier(PAST, table.name)


async def _copy(connection: Connection, table: LiveTable[Any], position: int) -> int:
    found = await connection.execute(READ_COLUMNS, {"table": table.name})
    columns = SQL(", ").join([Identifier(name) for (name,) in await found.fetchall()])
    copy = SQL(COPY_ROWS).format(
        twin=twin_of(table),
        columns=columns,
        position=Literal(position),
        table=Identifier(table.name),
    )
    return (await connection.execute(copy)).rowcount
