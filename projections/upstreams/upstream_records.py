"""`upstream_records`: the imported records of all upstreams, deleted ones too.

`upstream_checks` has the records that a full poll has found.
"""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from msgspec import Raw, Struct
from psycopg.rows import TupleRow

from daybook.domain.upstreams.record import UPSTREAM_RECORD, UpstreamRecord, record_uuid
from daybook.eventlog.postgres import binary_arrays as arrays
from daybook.eventlog.postgres.key_lookup import equals_by_key_lookup
from daybook.eventlog.postgres.pipeline import Connection
from daybook.eventlog.writing.live_table import LiveTable, Parameters

SELECT_RECORDS = """
SELECT id, version, stream, record_id, revision, data, seen_at, updated_at, deleted, vanished
FROM upstream_records
"""
LOCK_RECORDS = f"{SELECT_RECORDS} WHERE id = ANY(%(ids)b::uuid[]) ORDER BY id FOR UPDATE"
INSERT_RECORDS = """
INSERT INTO upstream_records (id, version, stream, record_id, revision, data, seen_at, updated_at,
                              deleted, vanished)
SELECT * FROM unnest(
    %(ids)b::uuid[], %(versions)b::bigint[], %(streams)b::text[], %(record_ids)b::text[],
    %(revisions)b::text[], %(data)b::bytea[], %(seen)b::timestamptz[], %(updated)b::timestamptz[],
    %(deleted)b::boolean[], %(vanished)b::boolean[])
"""
UPDATE_RECORDS = f"""
UPDATE upstream_records
SET version = new.version, revision = new.revision, data = new.data, updated_at = new.updated_at,
    deleted = new.deleted, vanished = new.vanished
FROM unnest(
    %(ids)b::uuid[], %(versions)b::bigint[], %(revisions)b::text[], %(data)b::bytea[],
    %(updated)b::timestamptz[], %(deleted)b::boolean[], %(vanished)b::boolean[]
) AS new (id, version, revision, data, updated_at, deleted, vanished)
WHERE {equals_by_key_lookup("upstream_records.id", "new.id")}
"""
READ_RECORD = f"{SELECT_RECORDS} WHERE id = %(id)s"
READ_RECORDS = f"""{SELECT_RECORDS}
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


class LiveUpstreamRecords(LiveTable[UpstreamRecord]):
    decider = UPSTREAM_RECORD
    name = "upstream_records"
    select = SELECT_RECORDS
    lock = LOCK_RECORDS
    insert = INSERT_RECORDS
    update = UPDATE_RECORDS

    def load(self, row: TupleRow) -> UpstreamRecord:
        return UpstreamRecord(
            id=row[0],
            version=row[1],
            stream=row[2],
            record_id=row[3],
            revision=row[4],
            data=Raw(row[5]),
            seen_at=row[6],
            updated_at=row[7],
            deleted=row[8],
            vanished=row[9],
        )

    def insert_parameters(self, states: Sequence[UpstreamRecord]) -> Parameters:
        return {
            **self.update_parameters(states),
            "streams": arrays.texts([record.stream for record in states]),
            "record_ids": arrays.texts([record.record_id for record in states]),
            "seen": arrays.timestamps([record.seen_at for record in states]),
        }

    def update_parameters(self, states: Sequence[UpstreamRecord]) -> Parameters:
        return {
            "ids": arrays.uuids([record.id for record in states]),
            "versions": arrays.bigints([record.version for record in states]),
            "revisions": arrays.texts([record.revision for record in states]),
            "data": arrays.byteas([bytes(record.data) for record in states]),
            "updated": arrays.timestamps([record.updated_at for record in states]),
            "deleted": arrays.booleans([record.deleted for record in states]),
            "vanished": arrays.booleans([record.vanished for record in states]),
        }


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
    rows = await connection.execute(READ_KNOWN, {"ids": arrays.uuids(ids)}, binary=True)
    return {row[0]: Known(*row) for row in await rows.fetchall()}


async def check_records(connection: Connection, ids: Sequence[UUID]) -> None:
    """Marks records as found by a full poll."""
    await connection.execute(CHECK_RECORDS, {"ids": arrays.uuids(ids)}, binary=True)


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
    return None if row is None else LiveUpstreamRecords().load(row)


async def read_records(
    connection: Connection, stream: str, *, after: UUID, limit: int
) -> list[UpstreamRecord]:
    parameters = {"stream": stream, "after": after, "limit": limit}
    rows = await connection.execute(READ_RECORDS, parameters, binary=True)
    return [LiveUpstreamRecords().load(row) for row in await rows.fetchall()]
