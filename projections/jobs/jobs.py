"""`jobs`: the live table of unfinished jobs, from which workers claim."""

from collections.abc import Iterable, Sequence
from itertools import chain
from uuid import UUID

from psycopg.rows import TupleRow

from daybook.domain.jobs.job import JOB, Job, urgency
from daybook.domain.jobs.work import JobSelector
from daybook.domain.messages.operation import OPERATION
from daybook.eventlog.postgres.binary_arrays import bigints, smallints, texts
from daybook.eventlog.writing.live_table import (
    CacheRules,
    Change,
    Changes,
    FastUpdate,
    LiveTable,
    Pick,
    SideStatements,
    SideTables,
    Statements,
)
from daybook.eventlog.writing.row_mapping import Parameters
from daybook.projections.jobs import claim_sql, finished_jobs, lanes, limited_claim_sql
from daybook.projections.jobs.job_columns import JOB_COLUMNS

CACHED_PAYLOAD_BYTES_MAX = 2_000


class PickJobs(Pick[Job]):
    more_ready_exists = claim_sql.MORE_READY_EXISTS

    def locks_before(self, selector: JobSelector) -> Statements:
        wanted = self.selection(selector)
        queues = {name: wanted[name] for name in ("any", "queues")}
        return [(limited_claim_sql.LOCK_LIMITED_QUEUES, queues)]

    def statements(self, selector: JobSelector, limit: int) -> Statements:
        claim = claim_sql.CLAIM_LANE_HEAD
        if selector.partition is None:
            is_one = has_one_queue_and_type(selector)
            claim = claim_sql.CLAIM_ONE_QUEUE_AND_TYPE if is_one else claim_sql.CLAIM_READY
        return [(claim, {**self.selection(selector), "limit": limit})]

    def statements_after_locks(
        self, selector: JobSelector, limit: int, ready: Sequence[Job]
    ) -> Statements:
        claim = limited_claim_sql.CLAIM_LIMITED
        if selector.partition is not None:
            claim = limited_claim_sql.CLAIM_LIMITED_LANE_HEAD
        wanted = {
            **self.selection(selector),
            "limit": limit,
            "priorities": smallints([job.priority for job in ready]),
            "numbers": bigints([job.number for job in ready]),
        }
        return [(claim, wanted)]

    def merge(self, selector: JobSelector, picked: Sequence[list[Job]]) -> list[Job]:  # noqa: ARG002 (base)
        ready, *limited = picked
        # One source is up to three walks, each in order: jobs without a subject, jobs with one, and
        # delayed jobs.
        if limited or (ready and (ready[-1].run_at or ready[-1].subject) is not None):
            return sorted(chain(ready, *limited), key=urgency)
        return ready

    def selection(self, selector: JobSelector) -> Parameters:
        return {**claim_sql.selection([selector]), "partition": selector.partition or ""}


class CacheClaimedJobs(CacheRules[Job]):
    # Another process may have changed the row. The version alone proves nothing after a failover,
    # when another claim may have the same version.
    lock_if_version = """
SELECT must_be_known(coalesce(
    array_agg(version) = %(versions)b::bigint[]
    AND array_agg(claim_id) = %(claims)b::uuid[], false))
FROM (
    SELECT version, claim_id FROM jobs WHERE id = ANY(%(ids)b::uuid[]) ORDER BY id FOR UPDATE
) AS locked
"""
    delete_if_version = """
WITH deleted AS (
    DELETE FROM jobs WHERE id = ANY(%(ids)b::uuid[]) AND claim_id = ANY(%(claims)b::uuid[])
    RETURNING version
)
SELECT must_be_known(count(*) = %(count)b::bigint AND sum(version) = %(versions)b::bigint)
FROM deleted
"""

    def cacheable(self, changes: Iterable[Change]) -> list[Job]:
        """Returns claimed jobs, as their worker reports soon. Large jobs are left out, and jobs in
        a lane, whose rows have columns that no event sets."""
        return [
            change.state
            for change in changes
            if change.state.claim is not None
            and change.state.partition is None
            and len(change.state.payload) <= CACHED_PAYLOAD_BYTES_MAX
        ]

    def claim_id(self, state: Job) -> UUID:
        assert state.claim is not None, "only claimed jobs are cached"
        return state.claim.id


class JobSides(SideTables[Job]):
    """`job_types` has every pair of a queue and a type; lanes and finished jobs have their rows."""

    names = ("job_types",)
    # Sorted: two batches that insert the same in opposite order would wait for each other.
    with_insert = """types AS (
    INSERT INTO job_types (queue, type)
    SELECT queue, type
    FROM unnest(%(used_queues)b::text[], %(used_types)b::text[]) AS used (queue, type)
    WHERE NOT EXISTS (
        SELECT FROM job_types
        WHERE (job_types.queue, job_types.type) = (used.queue, used.type)
        OFFSET 0)
    ORDER BY queue, type
    ON CONFLICT DO NOTHING
)"""

    def insert_parameters(self, states: Sequence[Job]) -> Parameters:
        used = {self.row(job) for job in states}
        return {
            "used_queues": texts([queue for queue, _ in used]),
            "used_types": texts([type_ for _, type_ in used]),
        }

    def row(self, state: Job) -> tuple[str, str]:
        return state.queue, state.type

    def statements(self, changes: Changes) -> SideStatements:
        jobs = changes.get(JOB.name, ())
        finished = finished_jobs.side_statements(jobs)
        of_lanes = lanes.lane_statements(jobs, changes.get(OPERATION.name, ()))
        return SideStatements(of_lanes.before, [*of_lanes.after, *finished])

    def recompute(self, states: Sequence[Job]) -> Statements:
        return lanes.recompute_lanes(states)

    def recompute_all(self) -> Statements:
        return lanes.recompute_lane_heads()


def _is_just_claimed(before: Job, after: Job) -> bool:
    is_next = after.version == before.version + 1
    return is_next and before.claim is None and after.claim is not None


def has_one_queue_and_type(selector: JobSelector) -> bool:
    return len(selector.queues) == 1 and selector.types is not None and len(selector.types) == 1


JOBS = LiveTable(
    "jobs",
    JOB,
    JOB_COLUMNS,
    # Of a lane, a job keeps the place of its entry, and the operation that reserved it.
    update_values={
        "place": "CASE WHEN new.entered IS NULL THEN NULL ELSE jobs.place END",
        "operation_id": "CASE WHEN new.entered = jobs.entered THEN jobs.operation_id END",
    },
    # Jobs whose only new event is a claim (`bench jobs`).
    fast_update=FastUpdate(
        _is_just_claimed,
        columns=("version", "started_at", "lease_until", "claim_id", "attempts", "worker"),
        values={"updated_at": "new.started_at", "run_at": "NULL", "status": "'PROCESSING'"},
    ),
    pick=PickJobs(),
    cache=CacheClaimedJobs(),
    sides=JobSides(),
    # Written by heartbeats while the claim lasts.
    columns_outside_log={
        "lease_until": "claim_id",
        "heartbeat_claim_id": "claim_id",
        "heartbeat_seconds": "claim_id",
    },
)


def load_jobs(rows: Iterable[TupleRow]) -> list[Job]:
    load = JOBS.load
    return [load(row) for row in rows]
