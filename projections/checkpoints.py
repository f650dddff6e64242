"""Checkpoints: the live tables as they were, copied inside the database now and then.

A checkpoint is taken in one snapshot, which shows events and live rows of a transaction together.
Positions are drawn before they are committed, so the snapshot may lack some below the largest it
shows: they are noted as missing, and folded in by whoever starts from here. The rows that a
transaction is about to change are locked by it, so no later event of the same aggregate can be in
the snapshot without the missing one.
"""

from msgspec import Struct
from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from psycopg.sql import SQL, Identifier, Literal

from projections.registry import LIVE_TABLES
from projections.snapshot import begin_snapshot

# Folding so many events takes less than a second; a checkpoint of few rows takes milliseconds.
EVENTS_BETWEEN = 50_000
# And where there are many rows, copies of them must not outgrow the log itself.
EVENTS_PER_ROW = 5

READ_LATEST = "SELECT coalesce(max(position), 0) FROM checkpoints WHERE position <= %(upto)s"
READ_HEAD = "SELECT coalesce(max(notification_id), 0) FROM stored_events"
# Only what is newer than the settled horizon can be missing.
FIND_MISSING = """
SELECT coalesce(array_agg(position ORDER BY position), '{}')
FROM generate_series(%(settled)s::bigint + 1, %(head)s::bigint) AS position
WHERE NOT EXISTS (SELECT FROM stored_events WHERE notification_id = position)
"""
INSERT_CHECKPOINT = """
INSERT INTO checkpoints (position, missing, count)
VALUES (%(position)s, %(missing)s, %(count)s)
ON CONFLICT (position) DO NOTHING
"""
COPY_ROWS = """
INSERT INTO checkpoint_rows (position, kind, data)
SELECT {position}, {kind}, to_jsonb(live) FROM {table} AS live
"""
READ_CHECKPOINT = """
SELECT position, missing, count FROM checkpoints
WHERE position <= %(upto)s
ORDER BY position DESC
LIMIT 1
"""

Connection = AsyncConnection[TupleRow]


class Checkpoint(Struct, frozen=True):
    position: int
    missing: list[int]
    count: int


async def latest_checkpoint(connection: Connection, upto: int) -> Checkpoint | None:
    found = await connection.execute(READ_CHECKPOINT, {"upto": upto})
    row = await found.fetchone()
    return None if row is None else Checkpoint(*row)


async def is_due(connection: Connection, settled: int) -> bool:
    last = await latest_checkpoint(connection, settled)
    if last is None:
        return settled >= EVENTS_BETWEEN
    return settled - last.position >= max(EVENTS_BETWEEN, EVENTS_PER_ROW * last.count)


async def take_checkpoint(connection: Connection, settled: int) -> Checkpoint:
    """`settled` is a position up to which nothing will ever be added."""
    async with connection.transaction():
        await begin_snapshot(connection)
        ((head,),) = await (await connection.execute(READ_HEAD)).fetchall()
        ((missing,),) = await (
            await connection.execute(FIND_MISSING, {"settled": settled, "head": head})
        ).fetchall()
        count = 0
        for table in LIVE_TABLES:
            copy = SQL(COPY_ROWS).format(
                position=Literal(head), kind=Literal(table.name), table=Identifier(table.name)
            )
            count += (await connection.execute(copy)).rowcount
        taken = Checkpoint(head, missing, count)
        await connection.execute(
            INSERT_CHECKPOINT, {"position": head, "missing": missing, "count": count}
        )
    return taken
