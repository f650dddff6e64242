"""Search of dead jobs by a text in their error, newest first.

Errors have no index, so a page examines LOOKED_AT_MAX dead jobs: it may have few matches, or none,
and still a next cursor.
"""

from hashlib import blake2s
from typing import Annotated

from msgspec import Meta, Struct, json

from daybook.domain.jobs.job import Job
from daybook.eventlog.postgres.pipeline import Connection
from daybook.projections.jobs.dead_jobs import DeadFilter
from daybook.projections.jobs.job_columns import COLUMNS
from daybook.projections.jobs.job_list_sql import OF_SOURCE, SOURCES
from daybook.projections.jobs.jobs import load_jobs
from daybook.projections.page_cursor import NUMBER_MAX, BadCursorError, read_cursor, write_cursor
from daybook.projections.snapshot import PLAN_BY_INDEX

LOOKED_AT_MAX = 5000

SEARCH_DEAD_JOBS = f"""{SOURCES}
SELECT number, id, strpos(error, %(error)s) > 0
FROM sources, LATERAL (
    SELECT number, id, error
    FROM jobs
    WHERE {OF_SOURCE} AND status = 'DEAD' AND number < %(before)s
    ORDER BY number DESC
    LIMIT %(limit)s
) AS dead
ORDER BY number DESC
LIMIT %(limit)s
"""
READ_DEAD_JOBS = f"""
SELECT {COLUMNS}
FROM jobs
WHERE id = ANY(%(ids)s) AND status = 'DEAD'
ORDER BY number DESC
"""


class DeadJobMatches(Struct, frozen=True):
    jobs: list[Job]
    next_cursor: str | None


class DeadJobCursor(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    mark: str
    number: Annotated[int, Meta(ge=0, le=NUMBER_MAX)]


async def search_dead(
    connection: Connection, wanted: DeadFilter, *, limit: int, cursor: str | None = None
) -> DeadJobMatches:
    mark = blake2s(json.encode(wanted), digest_size=8).hexdigest()
    given = {
        "queue": wanted.queue,
        "type": wanted.type,
        "error": wanted.error,
        "before": NUMBER_MAX if cursor is None else _number(cursor, mark),
        # One more than is examined shows whether there is a next page.
        "limit": LOOKED_AT_MAX + 1,
    }
    async with connection.transaction():
        await connection.execute(PLAN_BY_INDEX)
        rows = await connection.execute(SEARCH_DEAD_JOBS, given, binary=True)
        walked = await rows.fetchall()
        matches = [row for row in walked[:LOOKED_AT_MAX] if row[2]]
        ids = [row[1] for row in matches[:limit]]
        jobs = await connection.execute(READ_DEAD_JOBS, {"ids": ids}, binary=True)
        loaded = load_jobs(await jobs.fetchall())
    if len(matches) > limit:
        return DeadJobMatches(loaded, write_cursor(DeadJobCursor(mark, matches[limit - 1][0])))
    is_more = len(walked) > LOOKED_AT_MAX
    end = write_cursor(DeadJobCursor(mark, walked[LOOKED_AT_MAX - 1][0])) if is_more else None
    return DeadJobMatches(loaded, end)


def _number(cursor: str, mark: str) -> int:
    parsed = read_cursor(cursor, DeadJobCursor)
    if parsed.mark != mark:
        raise BadCursorError
    return parsed.number
