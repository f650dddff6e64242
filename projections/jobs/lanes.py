"""Lanes: the jobs of one partition in one queue, run strictly one after another.

A job's `place` is the log position of the event with which it entered. All jobs but the head are
`behind` and in no index that claims walk. The head stays head while it is leased, backs off, or is
dead and blocks, so one job of a lane is in flight at a time. An accepted operation reserves a place
in its lanes until it is executed, cancelled, or fails in a queue that skips; its jobs enter there.

Owns `operation_lanes`, and `lanes`, whose rows exist to be locked: a transaction that enters or
leaves a lane locks its row before it appends events. So positions rise in the order of the locks,
and the head is never looked up while another transaction changes it. Lanes are locked after all
rows that a command names, and the row of the new head last. If another transaction holds that row
and waits for the lane, PostgreSQL aborts one of the two, and the committer repeats it.
"""

from collections.abc import Iterable, Sequence
from uuid import UUID

from daybook.domain.ids import key_of
from daybook.domain.jobs.job import Job
from daybook.domain.jobs.lane import lane_id
from daybook.domain.messages.operation import Operation
from daybook.eventlog.postgres.binary_arrays import bigints, texts, uuids
from daybook.eventlog.postgres.key_lookup import equals_by_key_lookup
from daybook.eventlog.writing.live_table import (
    NO_SIDE_STATEMENTS,
    Change,
    SideStatements,
    Statements,
)

# Sorted: two batches that insert the same keys in opposite order would deadlock.
CREATE_LANES = """
INSERT INTO lanes (id, queue, partition)
SELECT *
FROM unnest(%(ids)b::uuid[], %(queues)b::text[], %(partitions)b::text[])
    AS lane (id, queue, partition)
WHERE NOT EXISTS (SELECT FROM lanes WHERE lanes.id = lane.id OFFSET 0)
ORDER BY id
ON CONFLICT DO NOTHING
"""
LOCK_LANES = "SELECT FROM lanes WHERE id = ANY(%(ids)b::uuid[]) ORDER BY id FOR UPDATE"
RESERVE_PLACES = """
INSERT INTO operation_lanes (queue, partition, place, operation_id)
SELECT queue, partition, (
    SELECT notification_id
    FROM stored_events
    WHERE (originator_id, originator_version) = (operation.id, 1)
), id
FROM unnest(%(ids)b::uuid[], %(queues)b::text[], %(partitions)b::text[])
    AS operation (id, queue, partition)
"""
RELEASE_PLACES = f"""
DELETE FROM operation_lanes AS held
USING unnest(%(ids)b::uuid[], %(queues)b::text[], %(partitions)b::text[])
    AS freed (operation_id, queue, partition)
WHERE {equals_by_key_lookup("held.operation_id", "freed.operation_id")}
  AND {equals_by_key_lookup("held.queue", "freed.queue")} AND held.partition = freed.partition
"""
# Jobs of the same batch have no place yet, so EXISTS finds only earlier members.
ENTER_LANES = f"""
WITH entering AS MATERIALIZED (
    SELECT job.id, queue, partition, notification_id AS place, row_number() OVER (
        PARTITION BY queue, partition ORDER BY notification_id, number) > 1 AS follows
    FROM unnest(%(ids)b::uuid[], %(numbers)b::bigint[], %(entries)b::uuid[],
                %(versions)b::bigint[], %(queues)b::text[], %(partitions)b::text[])
        AS job (id, number, entry, version, queue, partition), LATERAL (
        SELECT notification_id
        FROM stored_events
        WHERE (originator_id, originator_version) = (job.entry, job.version)
        OFFSET 0
    ) AS event
)
UPDATE jobs
SET place = entering.place,
    behind = follows OR EXISTS (
        SELECT FROM jobs AS member
        WHERE (member.queue, member.partition) = (entering.queue, entering.partition)
          AND member.entered IS NOT NULL AND member.place < entering.place
    ) OR EXISTS (
        SELECT FROM operation_lanes AS held
        WHERE (held.queue, held.partition) = (entering.queue, entering.partition)
          AND held.place < entering.place)
FROM entering
WHERE {equals_by_key_lookup("jobs.id", "entering.id")}
"""
ADVANCE_LANES = f"""
WITH heads AS MATERIALIZED (
    SELECT head.id
    FROM unnest(%(queues)b::text[], %(partitions)b::text[]) AS lane (queue, partition), LATERAL (
        SELECT id, place, behind
        FROM jobs
        WHERE (jobs.queue, jobs.partition) = (lane.queue, lane.partition) AND entered IS NOT NULL
        ORDER BY place, number
        LIMIT 1
    ) AS head
    WHERE head.behind AND NOT EXISTS (
        SELECT FROM operation_lanes AS held
        WHERE (held.queue, held.partition) = (lane.queue, lane.partition)
          AND held.place < head.place
        OFFSET 0)
)
UPDATE jobs SET behind = false FROM heads WHERE {equals_by_key_lookup("jobs.id", "heads.id")}
"""
# Places and heads from the log alone, for rebuilt tables.
RECOMPUTE_LANES = f"""
WITH members AS MATERIALIZED (
    SELECT member.id, notification_id AS place, row_number() OVER (
        PARTITION BY lane.queue, lane.partition ORDER BY notification_id, number) > 1 AS behind
    FROM unnest(%(queues)b::text[], %(partitions)b::text[]) AS lane (queue, partition), LATERAL (
        SELECT id, number, entered, operation_id
        FROM jobs
        WHERE (jobs.queue, jobs.partition) = (lane.queue, lane.partition) AND entered IS NOT NULL
        OFFSET 0
    ) AS member, LATERAL (
        SELECT notification_id
        FROM stored_events
        WHERE originator_id = coalesce(member.operation_id, member.id)
          AND originator_version = CASE WHEN member.operation_id IS NULL THEN entered ELSE 1 END
        OFFSET 0
    ) AS event
)
UPDATE jobs
SET place = members.place, behind = members.behind
FROM members
WHERE {equals_by_key_lookup("jobs.id", "members.id")}
  AND (jobs.place, jobs.behind) IS DISTINCT FROM (members.place, members.behind)
"""
# Heads of all lanes, once the tables of jobs and of operations are complete.
RECOMPUTE_LANE_HEADS = """
WITH members AS MATERIALIZED (
    SELECT id, row_number() OVER (
        PARTITION BY queue, partition ORDER BY place, number) > 1 OR EXISTS (
        SELECT FROM operation_lanes AS held
        WHERE (held.queue, held.partition) = (jobs.queue, jobs.partition)
          AND held.place < jobs.place) AS is_behind
    FROM jobs
    WHERE entered IS NOT NULL
)
UPDATE jobs SET behind = is_behind FROM members
WHERE jobs.id = members.id AND jobs.behind <> is_behind
"""

Lane = tuple[str, str]  # queue and partition


class LaneChanges:
    def __init__(self) -> None:
        self.entering: list[Job] = []
        self.left: set[Lane] = set()
        self.reserved: list[tuple[UUID, Lane]] = []
        self.released: list[tuple[UUID, Lane]] = []

    def add_job(self, before: Job | None, after: Job) -> None:
        was = None if before is None else before.entered
        if after.entered == was:
            return
        if before is not None and was is not None:
            self.left.add(_lane(before))
        if after.entered is not None:
            self.entering.append(after)

    def add_operation(self, before: Operation | None, after: Operation) -> None:
        was = set() if before is None else before.lanes
        self.reserved += [(after.id, lane) for lane in sorted(after.lanes - was)]
        self.released += [(after.id, lane) for lane in sorted(was - after.lanes)]
        self.left |= was - after.lanes

    @property
    def lanes(self) -> set[Lane]:
        return self.left.union([lane for _, lane in self.reserved], map(_lane, self.entering))


def lane_statements(jobs: Iterable[Change], operations: Iterable[Change] = ()) -> SideStatements:
    """Returns the statements that lock, enter and leave the lanes of these changes."""
    changes = LaneChanges()
    for change in jobs:
        # Most jobs have no lane.
        if change.state.partition is not None or (change.before and change.before.partition):
            changes.add_job(change.before, change.state)
    for change in operations:
        changes.add_operation(change.before, change.state)
    lanes = changes.lanes
    if not lanes:
        return NO_SIDE_STATEMENTS
    after = [
        *_places(RELEASE_PLACES, changes.released),
        *_places(RESERVE_PLACES, changes.reserved),
        *_enter(changes.entering),
        *_advance(changes.left),
    ]
    return SideStatements(_lock(lanes), after)


def recompute_lanes(jobs: Sequence[Job]) -> Statements:
    lanes = {_lane(job) for job in jobs if job.partition is not None}
    return [(RECOMPUTE_LANES, _columns([*lanes]))] if lanes else []


def recompute_lane_heads() -> Statements:
    return [(RECOMPUTE_LANE_HEADS, {})]


def _lock(lanes: Iterable[Lane]) -> Statements:
    by_id = sorted([(lane_id(*lane), lane) for lane in lanes], key=lambda one: key_of(one[0]))
    ids = uuids([one for one, _ in by_id])
    return [
        (CREATE_LANES, {"ids": ids, **_columns([lane for _, lane in by_id])}),
        (LOCK_LANES, {"ids": ids}),
    ]


def _places(query: str, places: Sequence[tuple[UUID, Lane]]) -> Statements:
    if not places:
        return []
    ids = uuids([operation_id for operation_id, _ in places])
    return [(query, {"ids": ids, **_columns([lane for _, lane in places])})]


def _enter(jobs: Sequence[Job]) -> Statements:
    if not jobs:
        return []
    given = {
        "ids": uuids([job.id for job in jobs]),
        "numbers": bigints([job.number for job in jobs]),
        "entries": uuids([job.operation_id or job.id for job in jobs]),
        "versions": bigints([1 if job.operation_id else job.entered for job in jobs]),
        **_columns([_lane(job) for job in jobs]),
    }
    return [(ENTER_LANES, given)]


def _advance(lanes: Iterable[Lane]) -> Statements:
    left = [*lanes]
    return [(ADVANCE_LANES, _columns(left))] if left else []


def _lane(job: Job) -> Lane:
    assert job.partition is not None, "a job in a lane has a partition"
    return job.queue, job.partition


def _columns(lanes: Sequence[Lane]) -> dict[str, object]:
    return {
        "queues": texts([queue for queue, _ in lanes]),
        "partitions": texts([partition for _, partition in lanes]),
    }
