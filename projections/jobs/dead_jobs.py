"""Dead jobs for bulk retries: found oldest first, a batch at a time, or counted.

A batch is a number of examined jobs, not of matches, so a filter without matches takes no longer.
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
    error: str | None = None  # a part of the job's error


class DeadJobBatch(Struct, frozen=True):
    """The matches among consecutive dead jobs."""

    matches: list[tuple[int, UUID]]  # number and id
    last_number: int
    is_last: bool
    now: datetime | None  # None if no job was examined

    @property
    def ids(self) -> list[UUID]:
        return [job_id for _, job_id in self.matches]

    def cut(self, limit: int) -> "DeadJobBatch":
        """Returns the batch up to its match number `limit`."""
        if len(self.matches) <= limit:
            return self
        matches = self.matches[:limit]
        last_number = matches[-1][0] if matches else self.matches[0][0] - 1
        return replace(self, matches=matches, last_number=last_number, is_last=False)


async def find_dead(
    connection: Connection, wanted: DeadFilter, *, after: int, limit: int
) -> DeadJobBatch:
    # One more than asked for shows whether there is another batch.
    given = {"after": after, "limit": limit + 1}
    rows = await _read(connection, FIND_DEAD_JOBS, wanted, given)
    looked_at = rows[:limit]
    return DeadJobBatch(
        matches=[(number, job_id) for number, job_id, is_match, _ in looked_at if is_match],
        last_number=looked_at[-1][0] if looked_at else after,
        is_last=len(rows) <= limit,
        now=rows[0][3] if rows else None,
    )


async def count_dead(
    connection: Connection, wanted: DeadFilter, *, after: int, limit: int
) -> tuple[int, bool]:
    """Returns the number of matches, and whether dead jobs were left unexamined."""
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
