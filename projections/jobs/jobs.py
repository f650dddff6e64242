"""`jobs`: the live table of unfinished jobs, from which workers claim."""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, ClassVar
from uuid import UUID

from msgspec import Raw
from psycopg.rows import TupleRow

from daybook.domain.jobs.job import JOB, NULL, Job, JobClaim, JobStatus, UniqueScope
from daybook.domain.jobs.work import JobSelector
from daybook.domain.messages.operation import OPERATION
from daybook.eventlog.postgres import binary_arrays as arrays
from daybook.eventlog.postgres.key_lookup import equals_by_key_lookup
from daybook.eventlog.writing.live_table import (
    Change,
    Changes,
    LiveTable,
    Parameters,
    SideStatements,
    Statements,
)
from daybook.projections.jobs import finished_jobs, lanes
from daybook.projections.jobs.claim_sql import (
    CLAIM_LANE_HEAD,
    CLAIM_ONE_QUEUE_AND_TYPE,
    CLAIM_READY,
    COLUMNS,
    MORE_READY_EXISTS,
    selection,
)
from daybook.projections.jobs.limited_claim_sql import (
    CLAIM_LIMITED,
    CLAIM_LIMITED_LANE_HEAD,
    LOCK_LIMITED_QUEUES,
)

SELECT_JOBS = f"SELECT {COLUMNS}\nFROM jobs\n"
LOCK_JOBS = f"{SELECT_JOBS} WHERE id = ANY(%(ids)b::uuid[]) ORDER BY id FOR UPDATE"
_INSERTED = arrays.unnested(
    "ids uuid, versions bigint, numbers bigint, created timestamptz, updated timestamptz, "
    "run_at timestamptz, started timestamptz, until timestamptz, claims uuid, "
    "lease_seconds float8, lives integer, failures integer, crashes integer, "
    "interruptions integer, priorities smallint, attempts smallint, attempts_max smallint, "
    "statuses text, queues text, types text, workers text, subjects text, keys text, scopes text, "
    "partitions text, errors text, payloads bytea, skips boolean, entered bigint, operations uuid"
)
_NEW = arrays.unnested(
    "ids uuid, numbers bigint, created timestamptz, run_at timestamptz, lease_seconds float8, "
    "priorities smallint, attempts_max smallint, queues text, types text, subjects text, "
    "keys text, scopes text, partitions text, payloads bytea, skips boolean, entered bigint, "
    "operations uuid"
)
_NOTE_TYPES = """
WITH types AS (
    -- Sorted: two batches that insert the same in opposite order would wait for each other.
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
# A job that enters a lane is behind until its place is known: see `projections/jobs/lanes.py`.
INSERT_JOBS = f"""{_NOTE_TYPES}
INSERT INTO jobs (id, version, number, created_at, updated_at, run_at, started_at, lease_until,
                  claim_id, lease_seconds, life, failures, crashes, interruptions, priority,
                  attempts, attempts_max, status, queue, type, worker, subject, unique_key,
                  unique_scope, partition, error, payload, skips, entered, operation_id, behind)
SELECT {_INSERTED},
    unnest(%(entered)b::bigint[]) IS NOT NULL
"""
# Fast path for jobs at version 1: constant columns are inlined (2x faster, bench jobs).
INSERT_NEW_JOBS = f"""{_NOTE_TYPES}
INSERT INTO jobs (id, number, created_at, run_at, lease_seconds, priority, attempts_max, queue,
                  type, subject, unique_key, unique_scope, partition, payload, skips, entered,
                  operation_id, behind, updated_at, version, life, failures, crashes,
                  interruptions, attempts, status)
SELECT {_NEW},
    unnest(%(entered)b::bigint[]) IS NOT NULL, unnest(%(created)b::timestamptz[]),
    1, 1, 0, 0, 0, 0, 'PENDING'
"""
_UPDATED = arrays.unnested(
    "ids uuid, versions bigint, updated timestamptz, run_at timestamptz, started timestamptz, "
    "until timestamptz, claims uuid, lives integer, failures integer, crashes integer, "
    "interruptions integer, attempts smallint, statuses text, workers text, errors text, "
    "entered bigint"
)
UPDATE_JOBS = f"""
UPDATE jobs
SET version = new.version, updated_at = new.updated_at, run_at = new.run_at,
    started_at = new.started_at, lease_until = new.lease_until, claim_id = new.claim_id,
    life = new.life, failures = new.failures, crashes = new.crashes,
    interruptions = new.interruptions, attempts = new.attempts, status = new.status,
    worker = new.worker, error = new.error, entered = new.entered,
    place = CASE WHEN new.entered IS NULL THEN NULL ELSE jobs.place END,
    operation_id = CASE WHEN new.entered = jobs.entered THEN jobs.operation_id END
FROM (SELECT {_UPDATED})
    AS new (id, version, updated_at, run_at, started_at, lease_until, claim_id, life, failures,
            crashes, interruptions, attempts, status, worker, error, entered)
WHERE {equals_by_key_lookup("jobs.id", "new.id")}
"""
_CLAIMED = arrays.unnested(
    "ids uuid, versions bigint, started timestamptz, until timestamptz, claims uuid, "
    "attempts smallint, workers text"
)
# Fast path for jobs whose only new event is a claim.
UPDATE_CLAIMED_JOBS = f"""
UPDATE jobs
SET version = new.version, updated_at = new.started_at, run_at = NULL,
    started_at = new.started_at, lease_until = new.lease_until, claim_id = new.claim_id,
    attempts = new.attempts, status = 'PROCESSING', worker = new.worker
FROM (SELECT {_CLAIMED})
    AS new (id, version, started_at, lease_until, claim_id, attempts, worker)
WHERE {equals_by_key_lookup("jobs.id", "new.id")}
"""
DELETE_JOBS = "DELETE FROM jobs WHERE id = ANY(%(ids)b::uuid[])"
# Checks cached jobs: another process may have changed the row. The version alone proves nothing
# after a failover, when another claim may have the same version.
LOCK_JOBS_IF_VERSION = """
SELECT must_be_known(coalesce(
    array_agg(version) = %(versions)b::bigint[]
    AND array_agg(claim_id) = %(claims)b::uuid[], false))
FROM (
    SELECT version, claim_id FROM jobs WHERE id = ANY(%(ids)b::uuid[]) ORDER BY id FOR UPDATE
) AS held
"""
DELETE_JOBS_IF_VERSION = f"""
WITH gone AS ({DELETE_JOBS} AND claim_id = ANY(%(claims)b::uuid[]) RETURNING version)
SELECT must_be_known(count(*) = %(count)b::bigint AND sum(version) = %(versions)b::bigint)
FROM gone
"""

CACHED_PAYLOAD_BYTES_MAX = 2_000

_STATUSES = {status.value: status for status in JobStatus}
_DEAD = JobStatus.DEAD
_SCOPES: dict[str | None, UniqueScope | None] = {None: None, **{s.value: s for s in UniqueScope}}


class LiveJobs(LiveTable[Job]):
    decider = JOB
    name = "jobs"
    select = SELECT_JOBS
    lock = LOCK_JOBS
    more_ready_exists = MORE_READY_EXISTS
    insert = INSERT_JOBS
    update = UPDATE_JOBS
    delete = DELETE_JOBS
    is_cached = True
    lock_if_version = LOCK_JOBS_IF_VERSION
    delete_if_version = DELETE_JOBS_IF_VERSION
    side_tables = ("job_types",)
    # Written by heartbeats while the claim lasts.
    columns_outside_log: ClassVar[Parameters] = {
        "lease_until": "claim_id",
        "heartbeat_claim_id": "claim_id",
        "heartbeat_seconds": "claim_id",
    }

    def side_statements(self, changes: Changes) -> SideStatements:
        jobs = changes.get(JOB.name, ())
        finished = finished_jobs.side_statements(jobs)
        of_lanes = lanes.lane_statements(jobs, changes.get(OPERATION.name, ()))
        return SideStatements(of_lanes.before, [*of_lanes.after, *finished])

    def recompute_derived(self, states: Sequence[Job]) -> Statements:
        return lanes.recompute_lanes(states)

    def recompute_all(self) -> Statements:
        return lanes.recompute_lane_heads()

    def locks_before_pick(self, among: JobSelector) -> Statements:
        wanted = self.selection(among)
        return [(LOCK_LIMITED_QUEUES, {name: wanted[name] for name in ("any", "queues")})]

    def pick_statements(self, among: JobSelector, limit: int) -> Statements:
        wanted = {**self.selection(among), "limit": limit}
        if among.partition is None:
            return [(CLAIM_ONE_QUEUE_AND_TYPE if _is_one(among) else CLAIM_READY, wanted)]
        return [(CLAIM_LANE_HEAD, wanted)]

    def picks_after_locks(self, among: JobSelector, limit: int, ready: Sequence[Job]) -> Statements:
        wanted = {
            **self.selection(among),
            "limit": limit,
            "priorities": arrays.smallints([job.priority for job in ready]),
            "numbers": arrays.bigints([job.number for job in ready]),
        }
        return [(CLAIM_LIMITED if among.partition is None else CLAIM_LIMITED_LANE_HEAD, wanted)]

    def merge_picks(self, among: JobSelector, picked: Sequence[list[Job]]) -> list[Job]:  # noqa: ARG002 (base)
        ready, *limited = picked
        # One source is up to three walks, each in order: jobs without a subject, jobs with one, and
        # delayed jobs.
        if limited or (ready and (ready[-1].run_at or ready[-1].subject) is not None):
            return sorted(chain(ready, *limited), key=lambda job: (job.priority, job.number))
        return ready

    def selection(self, among: JobSelector) -> Parameters:
        return {**selection([among]), "partition": among.partition or ""}

    def cacheable(self, changes: Iterable[Change]) -> list[Job]:
        """Returns leased jobs, as their worker reports soon. Large jobs are left out, and jobs in a
        lane, whose rows have columns that no event sets."""
        return [
            change.state
            for change in changes
            if change.state.claim is not None
            and change.state.partition is None
            and len(change.state.payload) <= CACHED_PAYLOAD_BYTES_MAX
        ]

    def claim_id(self, state: Job) -> UUID:
        assert state.claim is not None, "only leased jobs are cached"
        return state.claim.id

    def side_row(self, state: Job) -> tuple[str, str]:
        return state.queue, state.type

    def load(self, row: TupleRow) -> Job:
        # Positional, in the order of the fields: keyword arguments take six times as long.
        # fmt: off
        (id_, version, number, queue, type_, priority, payload, status_, attempts, attempts_max,
         lease_seconds, created_at, updated_at, life, failures, crashes, interruptions, run_at,
         claim_id, worker, started_at, lease_until, subject, unique_key, unique_scope, partition,
         error, skips, entered, operation_id) = row
        status = _STATUSES[status_]
        return Job(
            id_, version, number, queue, type_, priority, Raw(payload), status, attempts,
            attempts_max, lease_seconds, created_at, updated_at, life, failures, crashes,
            interruptions, run_at,
            None if claim_id is None else JobClaim(claim_id, started_at, lease_until, worker),
            subject, unique_key, _SCOPES[unique_scope], partition, skips, entered, operation_id,
            error, NULL, updated_at if status is _DEAD else None,
        )
        # fmt: on

    def insert_statement(self, states: Sequence[Job]) -> tuple[str, Parameters]:
        if all(job.version == 1 for job in states):
            return INSERT_NEW_JOBS, self._created(states)
        return self.insert, self.insert_parameters(states)

    def update_statement(self, changes: Sequence[Change]) -> tuple[str, Parameters]:
        states: list[Job] = [change.state for change in changes]
        if all(_is_just_claimed(change.before, change.state) for change in changes):
            return UPDATE_CLAIMED_JOBS, self._claimed(states)
        return self.update, self.update_parameters(states)

    def insert_parameters(self, states: Sequence[Job]) -> Parameters:
        return {**self.update_parameters(states), **self._created(states)}

    def _created(self, states: Sequence[Job]) -> Parameters:
        used = {self.side_row(job) for job in states}
        return {
            "ids": arrays.uuids([job.id for job in states]),
            "run_at": arrays.timestamps([job.run_at for job in states]),
            "entered": arrays.bigints([job.entered for job in states]),
            "used_queues": arrays.texts([queue for queue, _ in used]),
            "used_types": arrays.texts([type_ for _, type_ in used]),
            "numbers": arrays.bigints([job.number for job in states]),
            "created": arrays.timestamps([job.created_at for job in states]),
            "lease_seconds": arrays.doubles([job.lease_seconds for job in states]),
            "priorities": arrays.smallints([job.priority for job in states]),
            "attempts_max": arrays.smallints([job.attempts_max for job in states]),
            "queues": arrays.texts([job.queue for job in states]),
            "types": arrays.texts([job.type for job in states]),
            "subjects": arrays.texts([job.subject for job in states]),
            "keys": arrays.texts([job.unique_key for job in states]),
            "scopes": arrays.texts([job.unique_scope for job in states]),
            "partitions": arrays.texts([job.partition for job in states]),
            "payloads": arrays.byteas([bytes(job.payload) for job in states]),
            "skips": arrays.booleans([job.skips for job in states]),
            "operations": arrays.uuids([job.operation_id for job in states]),
        }

    @staticmethod
    def _claimed(states: Sequence[Job]) -> Parameters:
        return {
            "ids": arrays.uuids([job.id for job in states]),
            "versions": arrays.bigints([job.version for job in states]),
            "attempts": arrays.smallints([job.attempts for job in states]),
            **_claim_columns([job.claim for job in states]),
        }

    def update_parameters(self, states: Sequence[Job]) -> Parameters:
        claims = [job.claim for job in states]
        return {
            "ids": arrays.uuids([job.id for job in states]),
            "versions": arrays.bigints([job.version for job in states]),
            "updated": arrays.timestamps([job.updated_at for job in states]),
            "run_at": arrays.timestamps([job.run_at for job in states]),
            "lives": arrays.integers([job.life for job in states]),
            "failures": arrays.integers([job.failures for job in states]),
            "crashes": arrays.integers([job.crashes for job in states]),
            "interruptions": arrays.integers([job.interruptions for job in states]),
            "attempts": arrays.smallints([job.attempts for job in states]),
            "statuses": arrays.texts([job.status for job in states]),
            "errors": arrays.texts([job.error for job in states]),
            "entered": arrays.bigints([job.entered for job in states]),
            **_claim_columns(claims),
        }


def _is_just_claimed(before: Job, after: Job) -> bool:
    is_next = after.version == before.version + 1
    return is_next and before.claim is None and after.claim is not None


def _is_one(among: JobSelector) -> bool:
    return len(among.queues) == 1 and among.types is not None and len(among.types) == 1


def _claim_columns(claims: Sequence[JobClaim | None]) -> dict[str, Any]:
    return {
        "claims": arrays.uuids([None if claim is None else claim.id for claim in claims]),
        "workers": arrays.texts([None if claim is None else claim.worker for claim in claims]),
        "started": arrays.timestamps(
            [None if claim is None else claim.started_at for claim in claims]
        ),
        "until": arrays.timestamps([None if claim is None else claim.until for claim in claims]),
    }


def load_jobs(rows: Iterable[TupleRow]) -> list[Job]:
    load = LiveJobs().load
    return [load(row) for row in rows]
