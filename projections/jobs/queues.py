"""`queues`: settings of queues. A queue with default settings has no row."""

from collections.abc import Sequence

from psycopg.rows import TupleRow

from daybook.domain.jobs.queue import QUEUE, DeadJobPolicy, Limits, Queue, Rate
from daybook.eventlog.postgres import binary_arrays as arrays
from daybook.eventlog.postgres.key_lookup import equals_by_key_lookup
from daybook.eventlog.writing.live_table import LiveTable, Parameters

SELECT_QUEUES = """
SELECT id, version, name, paused, created_at, updated_at, concurrency, rate_count, rate_seconds,
       subject_concurrency, subject_rate_count, subject_rate_seconds, lanes
FROM queues
"""
SELECT_QUEUES_BY_ID = f"{SELECT_QUEUES} WHERE id = ANY(%(ids)b::uuid[])"
LOCK_QUEUES = f"{SELECT_QUEUES} WHERE id = ANY(%(ids)b::uuid[]) ORDER BY id FOR UPDATE"
INSERT_QUEUES = """
INSERT INTO queues (id, version, name, paused, created_at, updated_at, concurrency, rate_count,
                    rate_seconds, subject_concurrency, subject_rate_count, subject_rate_seconds,
                    lanes)
SELECT * FROM unnest(
    %(ids)b::uuid[], %(versions)b::bigint[], %(names)b::text[], %(paused)b::boolean[],
    %(created)b::timestamptz[], %(updated)b::timestamptz[], %(concurrencies)b::integer[],
    %(rate_counts)b::integer[], %(rate_seconds)b::float8[], %(subject_concurrencies)b::integer[],
    %(subject_rate_counts)b::integer[], %(subject_rate_seconds)b::float8[], %(lanes)b::text[])
"""
UPDATE_QUEUES = f"""
UPDATE queues
SET version = new.version, paused = new.paused, updated_at = new.updated_at,
    concurrency = new.concurrency, rate_count = new.rate_count, rate_seconds = new.rate_seconds,
    subject_concurrency = new.subject_concurrency, subject_rate_count = new.subject_rate_count,
    subject_rate_seconds = new.subject_rate_seconds, lanes = new.lanes
FROM unnest(
    %(ids)b::uuid[], %(versions)b::bigint[], %(paused)b::boolean[], %(updated)b::timestamptz[],
    %(concurrencies)b::integer[], %(rate_counts)b::integer[], %(rate_seconds)b::float8[],
    %(subject_concurrencies)b::integer[], %(subject_rate_counts)b::integer[],
    %(subject_rate_seconds)b::float8[], %(lanes)b::text[]
) AS new (id, version, paused, updated_at, concurrency, rate_count, rate_seconds,
          subject_concurrency, subject_rate_count, subject_rate_seconds, lanes)
WHERE {equals_by_key_lookup("queues.id", "new.id")}
"""


class LiveQueues(LiveTable[Queue]):
    decider = QUEUE
    name = "queues"
    select = SELECT_QUEUES
    select_by_id = SELECT_QUEUES_BY_ID
    lock = LOCK_QUEUES
    insert = INSERT_QUEUES
    update = UPDATE_QUEUES

    def load(self, row: TupleRow) -> Queue:
        return Queue(
            id=row[0],
            version=row[1],
            name=row[2],
            paused=row[3],
            created_at=row[4],
            updated_at=row[5],
            limits=Limits(row[6], _rate(row[7], row[8])),
            per_subject=Limits(row[9], _rate(row[10], row[11])),
            lanes=DeadJobPolicy(row[12]),
        )

    def insert_parameters(self, states: Sequence[Queue]) -> Parameters:
        return {
            **self.update_parameters(states),
            "names": arrays.texts([queue.name for queue in states]),
            "created": arrays.timestamps([queue.created_at for queue in states]),
        }

    def update_parameters(self, states: Sequence[Queue]) -> Parameters:
        return {
            "ids": arrays.uuids([queue.id for queue in states]),
            "versions": arrays.bigints([queue.version for queue in states]),
            "paused": arrays.booleans([queue.paused for queue in states]),
            "updated": arrays.timestamps([queue.updated_at for queue in states]),
            "lanes": arrays.texts([queue.lanes for queue in states]),
            **_limits("", [queue.limits for queue in states]),
            **_limits("subject_", [queue.per_subject for queue in states]),
        }


def _rate(count: int | None, seconds: float) -> Rate | None:
    return None if count is None else Rate(count, seconds)


def _limits(prefix: str, limits: Sequence[Limits]) -> Parameters:
    rates = [(one.rate.count, one.rate.seconds) if one.rate else (None, None) for one in limits]
    return {
        f"{prefix}concurrencies": arrays.integers([one.concurrency for one in limits]),
        f"{prefix}rate_counts": arrays.integers([count for count, _ in rates]),
        f"{prefix}rate_seconds": arrays.doubles([seconds for _, seconds in rates]),
    }
