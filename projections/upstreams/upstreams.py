"""`upstream_cursors`: the import cursor of every upstream."""

from collections.abc import Sequence

from msgspec import json
from psycopg.rows import TupleRow

from daybook.domain.upstreams.upstream import UPSTREAM, Mark, Poll, Upstream
from daybook.eventlog.postgres.binary_arrays import bigints, byteas, texts, timestamps, uuids
from daybook.eventlog.postgres.key_lookup import equals_by_key_lookup
from daybook.eventlog.postgres.pipeline import Connection
from daybook.eventlog.writing.live_table import LiveTable, Parameters

SELECT_UPSTREAMS = """
SELECT id, version, stream, created_at, updated_at, ordinal, marks, poll, polled_at, reconciled_at,
       error
FROM upstream_cursors
"""
LOCK_UPSTREAMS = f"{SELECT_UPSTREAMS} WHERE id = ANY(%(ids)b::uuid[]) ORDER BY id FOR UPDATE"
INSERT_UPSTREAMS = """
INSERT INTO upstream_cursors (id, version, stream, created_at, updated_at, ordinal, cursor, marks,
                              poll, polled_at, reconciled_at, error)
SELECT * FROM unnest(
    %(ids)b::uuid[], %(versions)b::bigint[], %(streams)b::text[], %(created)b::timestamptz[],
    %(updated)b::timestamptz[], %(ordinals)b::bigint[], %(cursors)b::text[], %(marks)b::bytea[],
    %(polls)b::bytea[], %(polled)b::timestamptz[], %(reconciled)b::timestamptz[],
    %(errors)b::text[])
"""
UPDATE_UPSTREAMS = f"""
UPDATE upstream_cursors
SET version = new.version, updated_at = new.updated_at, ordinal = new.ordinal,
    cursor = new.cursor, marks = new.marks, poll = new.poll, polled_at = new.polled_at,
    reconciled_at = new.reconciled_at, error = new.error
FROM unnest(
    %(ids)b::uuid[], %(versions)b::bigint[], %(updated)b::timestamptz[], %(ordinals)b::bigint[],
    %(cursors)b::text[], %(marks)b::bytea[], %(polls)b::bytea[], %(polled)b::timestamptz[],
    %(reconciled)b::timestamptz[], %(errors)b::text[]
) AS new (id, version, updated_at, ordinal, cursor, marks, poll, polled_at, reconciled_at, error)
WHERE {equals_by_key_lookup("upstream_cursors.id", "new.id")}
"""
READ_UPSTREAM = f"{SELECT_UPSTREAMS} WHERE stream = %(stream)s"
READ_UPSTREAMS = f"{SELECT_UPSTREAMS} ORDER BY stream"

_marks = json.Decoder(tuple[Mark, ...])
_poll = json.Decoder(Poll | None)


class LiveUpstreams(LiveTable[Upstream]):
    decider = UPSTREAM
    name = "upstream_cursors"
    select = SELECT_UPSTREAMS
    lock = LOCK_UPSTREAMS
    insert = INSERT_UPSTREAMS
    update = UPDATE_UPSTREAMS

    def load(self, row: TupleRow) -> Upstream:
        return Upstream(
            id=row[0],
            version=row[1],
            name=row[2],
            created_at=row[3],
            updated_at=row[4],
            ordinal=row[5],
            marks=_marks.decode(row[6]),
            poll=_poll.decode(row[7]),
            polled_at=row[8],
            reconciled_at=row[9],
            error=row[10],
        )

    def insert_parameters(self, states: Sequence[Upstream]) -> Parameters:
        return {
            **self.update_parameters(states),
            "streams": texts([upstream.name for upstream in states]),
            "created": timestamps([upstream.created_at for upstream in states]),
        }

    def update_parameters(self, states: Sequence[Upstream]) -> Parameters:
        return {
            "ids": uuids([upstream.id for upstream in states]),
            "versions": bigints([upstream.version for upstream in states]),
            "updated": timestamps([upstream.updated_at for upstream in states]),
            "ordinals": bigints([upstream.ordinal for upstream in states]),
            "cursors": texts([upstream.cursor for upstream in states]),
            "marks": byteas([json.encode(upstream.marks) for upstream in states]),
            "polls": byteas([json.encode(upstream.poll) for upstream in states]),
            "polled": timestamps([upstream.polled_at for upstream in states]),
            "reconciled": timestamps([upstream.reconciled_at for upstream in states]),
            "errors": texts([upstream.error for upstream in states]),
        }


async def one_upstream(connection: Connection, stream: str) -> Upstream | None:
    rows = await connection.execute(READ_UPSTREAM, {"stream": stream}, binary=True)
    row = await rows.fetchone()
    return None if row is None else LiveUpstreams().load(row)


async def all_upstreams(connection: Connection) -> list[Upstream]:
    rows = await connection.execute(READ_UPSTREAMS, binary=True)
    return [LiveUpstreams().load(row) for row in await rows.fetchall()]
