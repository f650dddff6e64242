"""How ready jobs are found: the statements that workers' claims stand on.

A claim names queues and types. Each pair of them is one short walk along an index, so neither a
million other jobs nor a type that nobody knows is in the way. Queues with limits stand apart,
because whoever claims from them must see what runs there, one after another.
"""

from collections.abc import Iterable
from itertools import product

from msgspec import Struct
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from domain.workshop import Selector
from eventlog.arrays import PackedArray, texts

# More than one worker asks for at a time need not be counted.
READY_COUNT_MAX = 1000

# As `LiveJobs.load` takes them.
COLUMNS = """id, version, number, queue, type, priority, payload, status, attempts, attempts_max,
       lease_seconds, created_at, updated_at, life, failures, crashes, interruptions, run_at,
       claim_id, worker, started_at, lease_until, subject, unique_key, unique_scope, partition,
       error, skips, entered, operation_id"""

_SOURCES = """
wanted (queue, type) AS (
    SELECT * FROM unnest(%(queues)b::text[], %(types)b::text[])
    UNION ALL
    SELECT queue, type FROM job_types WHERE queue = ANY(%(any)b::text[])
)"""

# Of a lane, only the first can be taken.
_OF_SOURCE = """jobs.queue = wanted.queue AND jobs.type = wanted.type
          AND jobs.status = 'PENDING' AND NOT jobs.behind"""

_WALKS = f"""
    SELECT * FROM (
        SELECT {COLUMNS} FROM jobs
        WHERE {_OF_SOURCE} AND run_at IS NULL
        ORDER BY priority, number
        LIMIT %(limit)b::bigint
        FOR UPDATE SKIP LOCKED
    ) AS at_once
    UNION ALL
    SELECT * FROM (
        SELECT {COLUMNS} FROM jobs
        WHERE {_OF_SOURCE} AND run_at <= clock_timestamp()
        ORDER BY run_at
        LIMIT %(limit)b::bigint
        FOR UPDATE SKIP LOCKED
    ) AS delayed"""

# The head of one lane, if it can be taken.
_HEAD = f"""
    SELECT {COLUMNS} FROM jobs
    WHERE id = (
        SELECT head.id FROM jobs AS head
        WHERE head.queue = wanted.queue AND head.partition = %(partition)b::text
          AND head.entered IS NOT NULL
        ORDER BY head.place, head.number
        LIMIT 1
    ) AND {_OF_SOURCE} AND (run_at IS NULL OR run_at <= clock_timestamp())
    FOR UPDATE SKIP LOCKED"""

_PICK_READY = f"""
WITH {_SOURCES}
SELECT ready.*
FROM wanted, LATERAL (<walks>
) AS ready
WHERE NOT EXISTS (
    SELECT FROM queues
    WHERE queues.name = wanted.queue AND (queues.paused OR queues.limited)
    OFFSET 0)
"""
_IN_ORDER = """ORDER BY priority, number
LIMIT %(limit)b::bigint
"""

# Held before its jobs are counted, in a statement of its own: a statement sees what was there when
# it began, and this one may have to wait.
HOLD_LIMITED = """
SELECT FROM queues
WHERE limited
  AND name = ANY(%(queues)b::text[] || %(any)b::text[])
ORDER BY id
FOR UPDATE
"""

# Of each subject, and of the queue as a whole, as many are taken as its concurrency and its rate
# leave room for; the rate's clock is moved on by what was taken.
_PICK_LIMITED = f"""
WITH {_SOURCES}, held AS MATERIALIZED (
    SELECT * FROM queues WHERE limited AND NOT paused AND name IN (SELECT queue FROM wanted)
), ready AS MATERIALIZED (
    SELECT ready.*
    FROM wanted, LATERAL (<walks>
    ) AS ready
    WHERE wanted.queue IN (SELECT name FROM held)
), queue_room AS MATERIALIZED (
    SELECT name AS queue, least(
        job_room(name, NULL, concurrency), job_pace(name, '', rate_count, rate_seconds)) AS places
    FROM held
), subject_room AS MATERIALIZED (
    SELECT queue, subject, least(
        job_room(queue, subject, subject_concurrency),
        job_pace(queue, subject, subject_rate_count, subject_rate_seconds)) AS places
    FROM (SELECT DISTINCT queue, subject FROM ready WHERE subject IS NOT NULL) AS subjects
    JOIN held ON held.name = queue
), by_subject AS (
    SELECT *, row_number() OVER (PARTITION BY queue, subject ORDER BY priority, number) AS nth
    FROM ready
), fitting AS (
    SELECT by_subject.*, row_number() OVER (PARTITION BY queue ORDER BY priority, number) AS place
    FROM by_subject LEFT JOIN subject_room USING (queue, subject)
    WHERE places IS NULL OR nth <= places
), taken AS MATERIALIZED (
    SELECT fitting.*
    FROM fitting JOIN queue_room USING (queue)
    WHERE place <= places
    ORDER BY priority, number
    LIMIT %(limit)b::bigint
), starts AS (
    SELECT taken.queue, '' AS subject, count(*) * rate_seconds / rate_count AS seconds
    FROM taken JOIN held ON held.name = taken.queue
    WHERE rate_count IS NOT NULL
    GROUP BY taken.queue, rate_seconds, rate_count
    UNION ALL
    SELECT taken.queue, taken.subject, count(*) * subject_rate_seconds / subject_rate_count
    FROM taken JOIN held ON held.name = taken.queue
    WHERE subject_rate_count IS NOT NULL AND taken.subject IS NOT NULL
    GROUP BY taken.queue, taken.subject, subject_rate_seconds, subject_rate_count
), moved AS (
    INSERT INTO queue_paces AS pace (queue, subject, due_at)
    SELECT queue, subject, now() + seconds * interval '1 second' FROM starts
    ON CONFLICT (queue, subject) DO UPDATE
    SET due_at = greatest(pace.due_at, now()) + (excluded.due_at - now())
)
SELECT {COLUMNS} FROM taken
"""

# Of one source, each walk is in order already, and there is rarely more than one of them: whoever
# asks puts them in order if need be, which spares the server a copy of every row.
PICK_SOURCE = _PICK_READY.replace("<walks>", _WALKS)
PICK_READY = PICK_SOURCE + _IN_ORDER
PICK_HEAD = _PICK_READY.replace("<walks>", _HEAD) + _IN_ORDER
PICK_LIMITED, PICK_LIMITED_HEAD = (
    _PICK_LIMITED.replace("<walks>", walks) for walks in (_WALKS, _HEAD)
)

# Whoever wants one lane alone gets its head or nothing, and is not told to look again.
OVERLOOKED = f"""
WITH {_SOURCES}
SELECT %(partition)b::text = '' AND EXISTS (
    SELECT
    FROM wanted, LATERAL (
        (SELECT id FROM jobs WHERE {_OF_SOURCE} AND run_at IS NULL
           AND id <> ALL(%(ids)b::uuid[]) LIMIT 1)
        UNION ALL
        (SELECT id FROM jobs WHERE {_OF_SOURCE} AND run_at <= clock_timestamp()
           AND id <> ALL(%(ids)b::uuid[]) LIMIT 1)
    ) AS ready
    WHERE NOT EXISTS (
        SELECT FROM queues
        WHERE queues.name = wanted.queue AND (queues.paused OR queues.limited)
        OFFSET 0)
)
"""

# For each source how many jobs could be taken now, and after how long the next one is due.
FIND_READY = f"""
WITH {_SOURCES}
SELECT wanted.queue, wanted.type,
       least(at_once.count + delayed.count,
             job_room(wanted.queue, NULL, concurrency),
             job_pace(wanted.queue, '', rate_count, rate_seconds)),
       (SELECT extract(epoch FROM run_at - clock_timestamp())::float8
        FROM jobs WHERE {_OF_SOURCE} AND run_at > clock_timestamp() ORDER BY run_at LIMIT 1)
FROM wanted
LEFT JOIN queues ON queues.name = wanted.queue,
LATERAL (
    SELECT count(*) FROM (
        SELECT FROM jobs WHERE {_OF_SOURCE} AND run_at IS NULL LIMIT {READY_COUNT_MAX}
    ) AS several
) AS at_once,
LATERAL (
    SELECT count(*) FROM (
        SELECT FROM jobs
        WHERE {_OF_SOURCE} AND run_at <= clock_timestamp() LIMIT {READY_COUNT_MAX}
    ) AS several
) AS delayed
WHERE queues.paused IS NOT TRUE
"""


# Of each lane that somebody wants by name, whether its head could be taken, or when.
FIND_READY_HEADS = """
SELECT lane.queue, head.type,
       least((head.run_at IS NULL OR head.run_at <= clock_timestamp())::integer,
             job_room(lane.queue, NULL, concurrency),
             job_pace(lane.queue, '', rate_count, rate_seconds)),
       CASE WHEN head.run_at > clock_timestamp()
            THEN extract(epoch FROM head.run_at - clock_timestamp())::float8 END,
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
    """How many jobs of one kind could be taken now, and when the next one is due."""

    queue: str
    type: str
    count: int
    next_seconds: float | None
    partition: str | None = None
    """Of this lane alone."""


def selection(selectors: Iterable[Selector]) -> dict[str, PackedArray]:
    """Queues of which all types are wanted, and pairs of a queue and a type."""
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


async def find_ready(
    connection: AsyncConnection[TupleRow], selectors: Iterable[Selector]
) -> list[Ready]:
    plain: list[Selector] = []
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
