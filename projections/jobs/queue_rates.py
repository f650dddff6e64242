"""Job rates by queue, counted from the last LOOKED_AT_MAX positions of the log.

Nothing is stored for it, and the time does not depend on the length of the log. The covered period
depends on the traffic and is part of the result.
"""

from collections import Counter
from datetime import datetime, timedelta
from uuid import UUID

from msgspec import Struct
from psycopg.rows import TupleRow

from daybook.domain.event import Event
from daybook.domain.jobs.job import JOB, Job
from daybook.eventlog.codec import EventMapper
from daybook.eventlog.postgres.pipeline import Connection
from daybook.eventlog.reading.settled_position import settled_position
from daybook.projections.jobs.job_creations import read_creations

SLICE_SECONDS = 5
LOOKED_AT_MAX = 5_000
PAST_SECONDS_MAX = 600

# The queue of a job is that of its live row or of finished_jobs, by scalar subqueries: the planner
# would turn a join into a read of all jobs. Jobs in neither, finished by an older version, get
# their label from the log.
COUNT_CHANGES = """
SELECT at, topic, queue, count(*), array_agg(id) FILTER (WHERE queue IS NULL)
FROM (
    SELECT originator_id AS id, topic,
           date_bin(%(slice)s * interval '1 second', recorded_at, 'epoch') AS at,
           coalesce((SELECT queue FROM jobs WHERE jobs.id = originator_id),
                    (SELECT queue FROM finished_jobs AS done WHERE done.id = originator_id)
           ) AS queue
    FROM stored_events
    WHERE notification_id > %(after)s AND notification_id <= %(upto)s
      AND topic = ANY(%(topics)s) AND recorded_at > %(since)s
) AS told
GROUP BY 1, 2, 3
"""
# The counted period begins with the last event before the window.
READ_BOUNDS = """
SELECT clock_timestamp(),
       (SELECT recorded_at FROM stored_events WHERE notification_id <= %(after)s
        ORDER BY notification_id DESC LIMIT 1)
"""

_MAPPER = EventMapper((JOB,))
KINDS: dict[str, list[type[Event]]] = {
    "created": [Job.Created, Job.Requeued],
    "completed": [Job.Completed],
    "failed": [Job.Failed],
    "dead": [Job.MovedToDLQ],
}
_NAMES = {topic: name for name, kinds in KINDS.items() for topic in _MAPPER.topics_of(kinds)}


class Slice(Struct, frozen=True):
    """Counts of one queue within SLICE_SECONDS."""

    at: datetime
    queue: str
    counts: dict[str, int]


class Rates(Struct, frozen=True):
    since: datetime  # all events from here on are counted
    until: datetime
    position: int
    slices: list[Slice]


async def read_rates(connection: Connection, *, after: int | None) -> Rates:
    upto = await settled_position(connection)
    begin = max(after or 0, upto - LOOKED_AT_MAX, 0)
    bounds = {"after": begin, "upto": upto}
    ((now, before),) = await (await connection.execute(READ_BOUNDS, bounds)).fetchall()
    earliest = now - timedelta(seconds=PAST_SECONDS_MAX)
    since = max(earliest, before or earliest)
    given = {**bounds, "slice": SLICE_SECONDS, "since": earliest, "topics": [*_NAMES]}
    rows = await (await connection.execute(COUNT_CHANGES, given)).fetchall()
    return Rates(since, now, upto, await _slices(connection, rows))


async def _slices(connection: Connection, rows: list[TupleRow]) -> list[Slice]:
    unknown = [job_id for row in rows for job_id in row[4] or ()]
    created = await read_creations(connection, [*set(unknown)]) if unknown else {}
    counted: dict[tuple[datetime, str], Counter[str]] = {}
    for at, topic, queue, count, ids in rows:
        for name, amount in _by_queue(queue, count, ids, created):
            counted.setdefault((at, name), Counter())[_NAMES[topic]] += amount
    return [
        Slice(at, queue, {name: counts[name] for name in KINDS})
        for (at, queue), counts in sorted(counted.items())
    ]


def _by_queue(
    queue: str | None, count: int, ids: list[UUID] | None, created: dict[UUID, Job.Created]
) -> list[tuple[str, int]]:
    if queue is not None:
        return [(queue, count)]
    return [*Counter(created[job_id].queue for job_id in ids or ()).items()]
