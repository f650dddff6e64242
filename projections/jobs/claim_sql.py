"""SQL that picks and locks ready jobs in queues without limits.

Queues with limits: `limited_claim_sql.py`. The claim is written by the fast update of `JOBS` in
`jobs.py`. Each pair of a queue and a type is one short index walk, so a million other jobs or an
unknown type does not slow a claim down.
"""

from collections.abc import Iterable
from itertools import product

from msgspec import Struct
from psycopg.rows import TupleRow

from daybook.domain.jobs.work import JobSelector
from daybook.eventlog.postgres.binary_arrays import PackedArray, texts
from daybook.eventlog.postgres.pipeline import Connection
from daybook.projections.jobs.job_columns import COLUMNS, URGENCY

# Counting stops at the largest batch that a worker can claim.
READY_COUNT_MAX = 1000

SOURCES = """
wanted (queue, type) AS (
    SELECT * FROM unnest(%(queues)b::text[], %(types)b::text[])
    UNION ALL
    SELECT queue, type FROM job_types WHERE queue = ANY(%(any)b::text[])
)"""
# Of a lane, only the head can be claimed.
OF_SOURCE = """jobs.queue = wanted.queue AND jobs.type = wanted.type
          AND jobs.status = 'PENDING' AND NOT jobs.behind"""
# statement_timestamp() is stable, so the index finds due jobs; with clock_timestamp() a claim would
# step over every job that is not due.
IS_DUE = "run_at <= statement_timestamp()"
# Jobs without a subject and jobs with one have an index each. Ordering the first by subject too
# lets the planner use the order of the index.
_WALKS = f"""
    SELECT * FROM (
        SELECT {COLUMNS} FROM jobs
        WHERE {OF_SOURCE} AND run_at IS NULL AND subject IS NULL
        ORDER BY subject, {URGENCY}
        LIMIT %(limit)b::bigint
        FOR UPDATE SKIP LOCKED
    ) AS at_once
    UNION ALL
    SELECT * FROM (
        SELECT {COLUMNS} FROM jobs
        WHERE {OF_SOURCE} AND run_at IS NULL AND subject IS NOT NULL
        ORDER BY {URGENCY}
        LIMIT %(limit)b::bigint
        FOR UPDATE SKIP LOCKED
    ) AS of_subjects
    UNION ALL
    SELECT * FROM (
        SELECT {COLUMNS} FROM jobs
        WHERE {OF_SOURCE} AND {IS_DUE}
        ORDER BY run_at
        LIMIT %(limit)b::bigint
        FOR UPDATE SKIP LOCKED
    ) AS delayed"""
# The head of one lane, if it can be claimed.
HEAD = f"""
    SELECT {COLUMNS} FROM jobs
    WHERE id = (
        SELECT head.id FROM jobs AS head
        WHERE head.queue = wanted.queue AND head.partition = %(partition)b::text
          AND head.entered IS NOT NULL
        ORDER BY head.place, head.number
        LIMIT 1
    ) AND {OF_SOURCE} AND (run_at IS NULL OR {IS_DUE})
    FOR UPDATE SKIP LOCKED"""


def _claim(walks: str) -> str:
    return f"""
WITH {SOURCES}
SELECT ready.*
FROM wanted, LATERAL ({walks}
) AS ready
WHERE NOT EXISTS (
    SELECT FROM queues
    WHERE queues.name = wanted.queue AND (queues.paused OR queues.limited)
    OFFSET 0)
"""


_IN_ORDER = f"""ORDER BY {URGENCY}
LIMIT %(limit)b::bigint
"""

# Unsorted: each walk of one source is in order, and `PickJobs.merge` sorts them if there
# is more than one. This spares the server a copy of every row.
CLAIM_ONE_QUEUE_AND_TYPE = _claim(_WALKS)
CLAIM_READY = CLAIM_ONE_QUEUE_AND_TYPE + _IN_ORDER
CLAIM_LANE_HEAD = _claim(HEAD) + _IN_ORDER
# False for a claim of one lane: it gets the head or nothing.
MORE_READY_EXISTS = f"""
WITH {SOURCES}
SELECT %(partition)b::text = '' AND EXISTS (
    SELECT
    FROM wanted, LATERAL (
        (SELECT id FROM jobs WHERE {OF_SOURCE} AND run_at IS NULL
           AND id <> ALL(%(ids)b::uuid[]) LIMIT 1)
        UNION ALL
        (SELECT id FROM jobs WHERE {OF_SOURCE} AND {IS_DUE}
           AND id <> ALL(%(ids)b::uuid[]) LIMIT 1)
    ) AS ready
    WHERE NOT EXISTS (
        SELECT FROM queues
        WHERE queues.name = wanted.queue AND (queues.paused OR queues.limited)
        OFFSET 0)
)
"""
# For each source: jobs that can be claimed now, and seconds until the next one is due.
FIND_READY = f"""
WITH {SOURCES}
SELECT wanted.queue, wanted.type,
       least(at_once.count + delayed.count,
             job_room(wanted.queue, NULL, concurrency),
             job_pace(wanted.queue, '', rate_count, rate_seconds)),
       (SELECT extract(epoch FROM run_at - statement_timestamp())::float8
        FROM jobs WHERE {OF_SOURCE} AND run_at > statement_timestamp() ORDER BY run_at LIMIT 1)
FROM wanted
LEFT JOIN queues ON queues.name = wanted.queue,
LATERAL (
    SELECT count(*) FROM (
        SELECT FROM jobs WHERE {OF_SOURCE} AND run_at IS NULL LIMIT {READY_COUNT_MAX}
    ) AS several
) AS at_once,
LATERAL (
    SELECT count(*) FROM (
        SELECT FROM jobs
        WHERE {OF_SOURCE} AND {IS_DUE} LIMIT {READY_COUNT_MAX}
    ) AS several
) AS delayed
WHERE queues.paused IS NOT TRUE
"""
# For each wanted lane: whether its head can be claimed now, or when.
FIND_READY_HEADS = """
SELECT lane.queue, head.type,
       least((head.run_at IS NULL OR head.run_at <= statement_timestamp())::integer,
             job_room(lane.queue, NULL, concurrency),
             job_pace(lane.queue, '', rate_count, rate_seconds)),
       CASE WHEN head.run_at > statement_timestamp()
            THEN extract(epoch FROM head.run_at - statement_timestamp())::float8 END,
       lane.partition
FROM unnest(%(queues)b::text[], %(partitions)b::text[]) AS lane (queue, partition)
LEFT JOIN queues ON queues.name = lane.queue,
LATERAL (
    SELECT type, status, run_at, behind
    FROM jobs
    WHERE (jobs.queue, jobs.partition) = (lane.queue, lane.partition) AND entered IS NOT NULL
    ORDER BY place, number
    LIMIT 1
) AS head
WHERE head.status = 'PENDING' AND NOT head.behind AND queues.paused IS NOT TRUE
"""


class Ready(Struct, frozen=True, gc=False):
    """Jobs of one queue and type that can be claimed now, and seconds until the next is due."""

    queue: str
    type: str
    count: int
    next_seconds: float | None
    partition: str | None = None  # of this lane alone


def selection(selectors: Iterable[JobSelector]) -> dict[str, PackedArray]:
    """Returns queues of which all types are wanted, and pairs of a queue and a type."""
    any_type: set[str] = set()
    pairs: set[tuple[str, str]] = set()
    for selector in selectors:
        if selector.types is None:
            any_type.update(selector.queues)
        else:
            pairs.update(product(selector.queues, selector.types))
    return {
        "any": texts([*any_type]),
        "queues": texts([queue for queue, _ in pairs]),
        "types": texts([type_ for _, type_ in pairs]),
    }


async def find_ready(connection: Connection, selectors: Iterable[JobSelector]) -> list[Ready]:
    plain: list[JobSelector] = []
    lanes: set[tuple[str, str]] = set()
    for selector in selectors:
        if selector.partition is None:
            plain.append(selector)
        else:
            lanes.update(product(selector.queues, (selector.partition,)))
    found: list[TupleRow] = []
    if plain:
        rows = await connection.execute(FIND_READY, selection(plain), binary=True)
        found += await rows.fetchall()
    if lanes:
        wanted = {
            "queues": texts([queue for queue, _ in lanes]),
            "partitions": texts([partition for _, partition in lanes]),
        }
        rows = await connection.execute(FIND_READY_HEADS, wanted, binary=True)
        found += await rows.fetchall()
    return [Ready(*row) for row in found]
