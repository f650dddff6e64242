"""Dead jobs that may begin a new life: found oldest first, a stretch at a time, or only counted.

Which of them have the error that is looked for is seen on the way, so that a search for what nobody
has takes no longer than any other stretch.
"""

from datetime import datetime
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace
from psycopg.rows import TupleRow

from daybook.eventlog.postgres.pipeline import Connection
from daybook.projections.jobs.job_list_sql import OF_SOURCE, SOURCES
from daybook.projections.snapshot import PLAN_BY_INDEX

_IS_MATCH = "(%(error)s::text IS NULL OR strpos(error, %(error)s) > 0)"

FIND_DEAD_JOBS = f"""{SOURCES}
SELECT number, id, {_IS_MATCH}, clock_timestamp()
FROM sources, LATERAL (
    SELECT number, id, error
    FROM jobs
    WHERE {OF_SOURCE} AND status = 'DEAD' AND number > %(after)s
    ORDER BY number
    LIMIT %(limit)s
) AS dead
ORDER BY number
LIMIT %(limit)s
"""

COUNT_DEAD_JOBS = f"""{SOURCES}
SELECT count(*) FILTER (WHERE {_IS_MATCH}), count(*)
FROM (
    SELECT error
    FROM sources, LATERAL (
        SELECT error
        FROM jobs
        WHERE {OF_SOURCE} AND status = 'DEAD' AND number > %(after)s
        LIMIT %(limit)s
    ) AS dead
    LIMIT %(limit)s
) AS walked
"""


class DeadFilter(Struct, frozen=True, gc=False):
    """None means any."""

    queue: str | None = None
    type: str | None = None
    error: str | None = None
    """Contained in the job's own."""


class DeadJobBatch(Struct, frozen=True):
    """So many dead jobs one after another, and which of them are meant."""

    meant: list[tuple[int, UUID]]
    """Number and id of each."""

    last_number: int
    is_last: bool
    now: datetime | None
    """Unless there were none."""

    @property
    def ids(self) -> list[UUID]:
        return [job_id for _, job_id in self.meant]

    def cut(self, limit: int) -> "DeadJobBatch":
        """The same up to the last of so many that are meant."""
        if len(self.meant) <= limit:
            return self
        meant = self.meant[:limit]
        last_number = meant[-1][0] if meant else self.meant[0][0] - 1
        return replace(self, meant=meant, last_number=last_number, is_last=False)


async def find_dead(
    connection: Connection, wanted: DeadFilter, *, after: int, limit: int
) -> DeadJobBatch:
    # One more than asked for shows whether there is another stretch.
    given = {"after": after, "limit": limit + 1}
    rows = await _read(connection, FIND_DEAD_JOBS, wanted, given)
    looked_at = rows[:limit]
    return DeadJobBatch(
        meant=[(number, job_id) for number, job_id, is_match, _ in looked_at if is_match],
        last_number=looked_at[-1][0] if looked_at else after,
        is_last=len(rows) <= limit,
        now=rows[0][3] if rows else None,
    )


async def count_dead(
    connection: Connection, wanted: DeadFilter, *, after: int, limit: int
) -> tuple[int, bool]:
    """How many are meant, and whether there may be more than the dead ones looked at."""
    rows = await _read(connection, COUNT_DEAD_JOBS, wanted, {"after": after, "limit": limit})
    ((matched, looked_at),) = rows
    return matched, looked_at == limit


async def _read(
    connection: Connection, statement: str, wanted: DeadFilter, given: dict[str, int]
) -> list[TupleRow]:
    filters = {"queue": wanted.queue, "type": wanted.type, "error": wanted.error}
    async with connection.transaction():
        await connection.execute(PLAN_BY_INDEX)
        rows = await connection.execute(statement, {**filters, **given}, binary=True)
        return await rows.fetchall()
