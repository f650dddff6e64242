"""Lanes: the jobs of one partition in one queue, done strictly one after another.

The order within a lane is that of the log: a job's `place` is the position of the event with
which it entered. All but the first are `behind`, and what is behind is in no index that claims
walk: the head of a lane is known, never searched. It stays the head while it is claimed, rests, or
is dead and blocks; so one of a lane is in flight at a time.

Owns `lanes`, whose rows are there to be locked: whoever enters or leaves a lane holds its row, from
before the events are appended until they are committed. So within a lane positions rise in the
order of its locks, and nobody looks for its head while another changes it. Lanes are held after
all rows that a command names. Who holds a lane waits for one such row at most, that of the next
head; whoever has that in hand and wants the lane cancels it or sends its unique key again:
PostgreSQL ends one of the two, and the committer repeats it.
"""

from collections.abc import Iterable, Sequence

from domain.job import Job
from domain.lane import lane_id
from eventlog.arrays import bigints, texts, uuids
from eventlog.live import NOTHING_AROUND, Around, Change, Statements

# Sorted, as everything that goes into a unique index.
MAKE_LANES = """
INSERT INTO lanes (id, queue, partition)
SELECT *
FROM unnest(%(ids)b::uuid[], %(queues)b::text[], %(partitions)b::text[])
    AS lane (id, queue, partition)
WHERE NOT EXISTS (SELECT FROM lanes WHERE lanes.id = lane.id)
ORDER BY id
ON CONFLICT DO NOTHING
"""

HOLD_LANES = "SELECT FROM lanes WHERE id = ANY(%(ids)b::uuid[]) ORDER BY id FOR UPDATE"

# Those that enter together have no place yet, so that each of them finds only those before them.
ENTER_LANES = """
WITH entering AS MATERIALIZED (
    SELECT job.id, queue, partition, notification_id AS place,
           row_number() OVER (PARTITION BY queue, partition ORDER BY notification_id) > 1 AS follows
    FROM unnest(%(ids)b::uuid[], %(versions)b::bigint[], %(queues)b::text[],
                %(partitions)b::text[]) AS job (id, version, queue, partition)
    JOIN stored_events ON (originator_id, originator_version) = (job.id, job.version)
)
UPDATE jobs
SET place = entering.place,
    behind = follows OR EXISTS (
        SELECT FROM jobs AS member
        WHERE (member.queue, member.partition) = (entering.queue, entering.partition)
          AND member.entered IS NOT NULL AND member.place < entering.place)
FROM entering
WHERE jobs.id = entering.id
"""

ADVANCE_LANES = """
WITH heads AS MATERIALIZED (
    SELECT head.id
    FROM unnest(%(queues)b::text[], %(partitions)b::text[]) AS lane (queue, partition), LATERAL (
        SELECT id, behind
        FROM jobs
        WHERE (jobs.queue, jobs.partition) = (lane.queue, lane.partition) AND entered IS NOT NULL
        ORDER BY place
        LIMIT 1
    ) AS head
    WHERE head.behind
)
UPDATE jobs SET behind = false FROM heads WHERE jobs.id = heads.id
"""

# From the log alone, whatever the rows say: for tables that are made anew.
RECKON_LANES = """
WITH members AS MATERIALIZED (
    SELECT jobs.id, notification_id AS place, row_number() OVER (
        PARTITION BY queue, partition ORDER BY notification_id) > 1 AS behind
    FROM unnest(%(queues)b::text[], %(partitions)b::text[]) AS lane (queue, partition)
    JOIN jobs USING (queue, partition)
    JOIN stored_events ON (originator_id, originator_version) = (jobs.id, jobs.entered)
    WHERE entered IS NOT NULL
)
UPDATE jobs
SET place = members.place, behind = members.behind
FROM members
WHERE jobs.id = members.id
  AND (jobs.place, jobs.behind) IS DISTINCT FROM (members.place, members.behind)
"""

Lane = tuple[str, str]
"""A queue and a partition."""


def around(changes: Iterable[Change]) -> Around:
    """What it takes that these jobs enter their lanes and leave them."""
    entering: list[Job] = []
    left: set[Lane] = set()
    for change in changes:
        before: Job | None = change.before
        after: Job = change.state
        was = None if before is None else before.entered
        if after.entered == was:
            continue
        if before is not None and before.entered is not None:
            left.add(_lane(before))
        if after.entered is not None:
            entering.append(after)
    if not entering and not left:
        return NOTHING_AROUND
    return Around(hold(left.union(map(_lane, entering))), [*_enter(entering), *_advance(left)])


def hold(lanes: Iterable[Lane]) -> Statements:
    by_id = sorted([(lane_id(*lane), lane) for lane in lanes], key=lambda one: one[0].int)
    ids = uuids([one for one, _ in by_id])
    return [
        (MAKE_LANES, {"ids": ids, **_columns([lane for _, lane in by_id])}),
        (HOLD_LANES, {"ids": ids}),
    ]


def reckon(jobs: Sequence[Job]) -> Statements:
    lanes = {_lane(job) for job in jobs if job.partition is not None}
    return [(RECKON_LANES, _columns([*lanes]))] if lanes else []


def _enter(jobs: Sequence[Job]) -> Statements:
    if not jobs:
        return []
    given = {
        "ids": uuids([job.id for job in jobs]),
        "versions": bigints([job.entered for job in jobs]),
        **_columns([_lane(job) for job in jobs]),
    }
    return [(ENTER_LANES, given)]


def _advance(lanes: Iterable[Lane]) -> Statements:
    left = [*lanes]
    return [(ADVANCE_LANES, _columns(left))] if left else []


def _lane(job: Job) -> Lane:
    assert job.partition is not None, "who is in a lane has a partition"
    return job.queue, job.partition


def _columns(lanes: Sequence[Lane]) -> dict[str, object]:
    return {
        "queues": texts([queue for queue, _ in lanes]),
        "partitions": texts([partition for _, partition in lanes]),
    }
