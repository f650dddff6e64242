"""Number of pending jobs in all queues, counted up to a limit."""

from datetime import datetime

from msgspec import Struct

from daybook.eventlog.postgres.pipeline import Connection

# Three counts, one for each index.
COUNT_PENDING = """
SELECT (
    SELECT count(*) FROM (
        SELECT FROM jobs
        WHERE status = 'PENDING' AND run_at IS NULL AND NOT behind LIMIT %(limit)s
    ) AS at_once
) + (
    SELECT count(*) FROM (
        SELECT FROM jobs WHERE status = 'PENDING' AND behind LIMIT %(limit)s
    ) AS queueing
) + (
    SELECT count(*) FROM (
        SELECT FROM jobs
        WHERE status = 'PENDING' AND run_at IS NOT NULL AND NOT behind LIMIT %(limit)s
    ) AS later
), clock_timestamp()
"""


class Pending(Struct, frozen=True, gc=False):
    count: int
    at: datetime


async def count_pending(connection: Connection, *, count_max: int) -> Pending:
    rows = await connection.execute(COUNT_PENDING, {"limit": count_max}, binary=True)
    ((count, at),) = await rows.fetchall()
    return Pending(min(count, count_max), at)
