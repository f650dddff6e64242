"""Settings and job counts of queues: every queue that has settings or ever had a job.

Counts stop at a limit for each type, so the time does not depend on the number of jobs.
"""

from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace
from psycopg.rows import TupleRow

from daybook.domain.jobs.queue import DeadJobPolicy, Limits
from daybook.eventlog.postgres.pipeline import Connection
from daybook.projections.jobs.queues import QUEUES
from daybook.projections.snapshot import PLAN_BY_INDEX

_OF_SOURCE = "(jobs.queue, jobs.type) = (source.queue, source.type)"
_PENDING = f"{_OF_SOURCE} AND status = 'PENDING' AND NOT behind"
# statement_timestamp() is stable, so indexes on run_at can be used. The oldest pending job is the
# first of any priority, or the delayed job that was due first.
READ_QUEUE_STATS = f"""
WITH known AS (
    SELECT name FROM queues WHERE %(name)s::text IS NULL OR name = %(name)s
    UNION
    SELECT queue FROM job_types WHERE %(name)s::text IS NULL OR queue = %(name)s
), counted AS (
    SELECT source.queue,
           sum(at_once.count + due.count)::bigint AS pending,
           sum(scheduled.count)::bigint AS scheduled,
           sum(queueing.count)::bigint AS behind,
           sum(dead.count)::bigint AS dead,
           bool_or(at_once.count = %(limit)s OR due.count = %(limit)s) AS more_pending,
           bool_or(scheduled.count = %(limit)s) AS more_scheduled,
           bool_or(queueing.count = %(limit)s) AS more_behind,
           bool_or(dead.count = %(limit)s) AS more_dead,
           min(least(oldest.created_at, longest_due.run_at)) AS oldest_pending_at
    FROM known JOIN job_types AS source ON source.queue = known.name, LATERAL (
        SELECT count(*) FROM (
            SELECT FROM jobs WHERE {_PENDING} AND run_at IS NULL LIMIT %(limit)s
        ) AS walked
    ) AS at_once, LATERAL (
        SELECT count(*) FROM (
            SELECT FROM jobs WHERE {_PENDING} AND run_at <= statement_timestamp() LIMIT %(limit)s
        ) AS walked
    ) AS due, LATERAL (
        SELECT count(*) FROM (
            SELECT FROM jobs WHERE {_PENDING} AND run_at > statement_timestamp() LIMIT %(limit)s
        ) AS walked
    ) AS scheduled, LATERAL (
        SELECT count(*) FROM (
            SELECT FROM jobs
            WHERE {_OF_SOURCE} AND status = 'PENDING' AND behind LIMIT %(limit)s
        ) AS walked
    ) AS queueing, LATERAL (
        SELECT count(*) FROM (
            SELECT FROM jobs WHERE {_OF_SOURCE} AND status = 'DEAD' LIMIT %(limit)s
        ) AS walked
    ) AS dead, LATERAL (
        SELECT min(first.created_at) AS created_at
        FROM generate_series(1, 10) AS priorities (priority), LATERAL (
            (SELECT created_at
             FROM jobs
             WHERE {_PENDING} AND run_at IS NULL AND jobs.priority = priorities.priority
               AND subject IS NULL
             ORDER BY subject, number
             LIMIT 1)
            UNION ALL
            (SELECT created_at
             FROM jobs
             WHERE {_PENDING} AND run_at IS NULL AND jobs.priority = priorities.priority
               AND subject IS NOT NULL
             ORDER BY number
             LIMIT 1)
        ) AS first
    ) AS oldest, LATERAL (
        SELECT min(run_at) AS run_at
        FROM jobs
        WHERE {_PENDING} AND run_at <= statement_timestamp()
    ) AS longest_due
    GROUP BY source.queue
)
SELECT known.name, coalesce(pending, 0), coalesce(scheduled, 0), coalesce(behind, 0),
       processing.count, coalesce(dead, 0), coalesce(more_pending, false),
       coalesce(more_scheduled, false), coalesce(more_behind, false),
       processing.count = %(limit)s, coalesce(more_dead, false), oldest_pending_at, settings.*
FROM known
LEFT JOIN counted ON counted.queue = known.name
LEFT JOIN ({QUEUES.select}) AS settings ON settings.name = known.name, LATERAL (
    SELECT count(*) FROM (
        SELECT FROM jobs WHERE jobs.queue = known.name AND claim_id IS NOT NULL LIMIT %(limit)s
    ) AS walked
) AS processing
ORDER BY known.name
"""


class QueueStats(Struct, frozen=True, kw_only=True):
    name: str
    paused: bool = False
    limits: Limits = Limits()
    per_subject: Limits = Limits()
    lanes: DeadJobPolicy = DeadJobPolicy.BLOCK
    pending: int  # due, whether or not the queue is paused or limited
    scheduled: int  # not due yet
    behind: int  # behind another job or operation in their lane
    processing: int
    dead: int
    at_least: tuple[str, ...]  # names of the counts that stopped at the limit
    oldest_pending_at: datetime | None  # when the oldest pending job became due


async def read_queue_stats(
    connection: Connection, *, name: str | None = None, count_max: int
) -> list[QueueStats]:
    """Returns the stats of all queues by name, or of the named one if it is known."""
    async with connection.transaction():
        await connection.execute(PLAN_BY_INDEX)
        rows = await connection.execute(
            READ_QUEUE_STATS, {"name": name, "limit": count_max}, binary=True
        )
        return [_queue_stats(row) for row in await rows.fetchall()]


def _queue_stats(row: TupleRow) -> QueueStats:
    names = ("pending", "scheduled", "behind", "processing", "dead")
    counts = dict(zip(names, row[1:6], strict=True))
    stats = QueueStats(
        name=row[0],
        **counts,
        at_least=tuple(name for name, is_more in zip(counts, row[6:11], strict=True) if is_more),
        oldest_pending_at=row[11],
    )
    if row[12] is None:
        return stats
    settings = QUEUES.load(row[12:])
    return replace(
        stats,
        paused=settings.paused,
        limits=settings.limits,
        per_subject=settings.per_subject,
        lanes=settings.lanes,
    )
