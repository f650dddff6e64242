"""`upstream_cursors`: the import cursor of every upstream."""

from daybook.domain.upstreams.upstream import UPSTREAM, Upstream
from daybook.eventlog.postgres.pipeline import Connection
from daybook.eventlog.writing.live_table import LiveTable
from daybook.eventlog.writing.row_mapping import Column

UPSTREAMS = LiveTable(
    "upstream_cursors",
    UPSTREAM,
    [
        Column("id", "uuid"),
        Column("stream", "text", "name"),
        Column("created_at", "timestamptz"),
        Column("version", "bigint", changes=True),
        Column("updated_at", "timestamptz", changes=True),
        Column("ordinal", "bigint", changes=True),
        Column("cursor", "text", changes=True, value=lambda upstream: upstream.cursor),
        Column("marks", "bytea", changes=True),
        Column("poll", "bytea", changes=True),
        Column("polled_at", "timestamptz", changes=True),
        Column("reconciled_at", "timestamptz", changes=True),
        Column("error", "text", changes=True),
    ],
)
READ_UPSTREAM = f"{UPSTREAMS.select} WHERE stream = %(stream)s"
READ_UPSTREAMS = f"{UPSTREAMS.select} ORDER BY stream"


async def one_upstream(connection: Connection, stream: str) -> Upstream | None:
    rows = await connection.execute(READ_UPSTREAM, {"stream": stream}, binary=True)
    row = await rows.fetchone()
    return None if row is None else UPSTREAMS.load(row)


async def all_upstreams(connection: Connection) -> list[Upstream]:
    rows = await connection.execute(READ_UPSTREAMS, binary=True)
    return [UPSTREAMS.load(row) for row in await rows.fetchall()]
