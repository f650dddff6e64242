"""`upstream_records`: the imported records of all upstreams, deleted ones too.

`upstream_checks` has the records that a full poll has found.
"""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from msgspec import Struct

from daybook.domain.upstreams.record import UPSTREAM_RECORD, UpstreamRecord, record_uuid
from daybook.eventlog.postgres.binary_arrays import uuids
from daybook.eventlog.postgres.pipeline import Connection
from daybook.eventlog.writing.live_table import LiveTable
from daybook.eventlog.writing.row_mapping import Column

UPSTREAM_RECORDS = LiveTable(
    "upstream_records",
    UPSTREAM_RECORD,
    [
        Column("id", "uuid"),
        Column("stream", "text"),
        Column("record_id", "text"),
        Column("seen_at", "timestamptz"),
        Column("version", "bigint", changes=True),
        Column("revision", "text", changes=True),
        Column("data", "bytea", changes=True),
        Column("updated_at", "timestamptz", changes=True),
        Column("deleted", "boolean", changes=True),
        Column("vanished", "boolean", changes=True),
    ],
)

READ_RECORD = f"{UPSTREAM_RECORDS.select} WHERE id = %(id)s"
READ_RECORDS = f"""{UPSTREAM_RECORDS.select}
WHERE stream = %(stream)s AND id > %(after)s
ORDER BY id
LIMIT %(limit)s
"""
READ_KNOWN = """
SELECT id, revision, deleted, vanished FROM upstream_records WHERE id = ANY(%(ids)b::uuid[])
"""
# Sorted: two transactions that insert the same ids in opposite order would deadlock.
CHECK_RECORDS = """
INSERT INTO upstream_checks (id, checked_at)
SELECT id, clock_timestamp() FROM unnest(%(ids)b::uuid[]) AS found (id) GROUP BY id ORDER BY id
ON CONFLICT (id) DO UPDATE SET checked_at = excluded.checked_at
"""
_NOT_FOUND_SINCE = """
FROM upstream_records AS known
LEFT JOIN upstream_checks AS found ON found.id = known.id AND found.checked_at >= %(since)s
WHERE known.stream = %(stream)s AND NOT known.deleted AND known.seen_at < %(since)s
"""
COUNT_VANISHED = f"""
SELECT count(*) FILTER (WHERE found.id IS NULL), count(*) {_NOT_FOUND_SINCE}
"""
FIND_VANISHED = f"""
SELECT known.id {_NOT_FOUND_SINCE} AND found.id IS NULL
ORDER BY known.id
LIMIT %(limit)s
"""


class Known(Struct, frozen=True, gc=False):
    """The columns that tell whether an upstream record has changed."""

    id: UUID
    revision: str
    deleted: bool
    vanished: bool


class Missing(Struct, frozen=True, gc=False):
    """Records that a full poll did not find, of those that existed before it."""

    count: int
    of: int


async def read_known(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, Known]:
    rows = await connection.execute(READ_KNOWN, {"ids": uuids(ids)}, binary=True)
    return {row[0]: Known(*row) for row in await rows.fetchall()}


async def check_records(connection: Connection, ids: Sequence[UUID]) -> None:
    """Marks records as found by a full poll."""
    await connection.execute(CHECK_RECORDS, {"ids": uuids(ids)}, binary=True)


async def count_vanished(connection: Connection, stream: str, *, since: datetime) -> Missing:
    rows = await connection.execute(COUNT_VANISHED, {"stream": stream, "since": since})
    ((count, of),) = await rows.fetchall()
    return Missing(count, of)


async def find_vanished(
    connection: Connection, stream: str, *, since: datetime, limit: int
) -> list[UUID]:
    parameters = {"stream": stream, "since": since, "limit": limit}
    rows = await connection.execute(FIND_VANISHED, parameters)
    return [row[0] for row in await rows.fetchall()]


async def one_record(connection: Connection, stream: str, record_id: str) -> UpstreamRecord | None:
    parameters = {"id": record_uuid(stream, record_id)}
    row = await (await connection.execute(READ_RECORD, parameters, binary=True)).fetchone()
    return None if row is None else UPSTREAM_RECORDS.load(row)


async def read_records(
    connection: Connection, stream: str, *, after: UUID, limit: int
) -> list[UpstreamRecord]:
    parameters = {"stream": stream, "after": after, "limit": limit}
    rows = await connection.execute(READ_RECORDS, parameters, binary=True)
    return [UPSTREAM_RECORDS.load(row) for row in await rows.fetchall()]
