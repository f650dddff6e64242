"""`jobs`: every job that is not over, in the order in which workers take them."""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, ClassVar
from uuid import UUID

from msgspec import Raw
from psycopg.rows import TupleRow

from daybook.domain.jobs.job import JOB, NULL, Job, JobStatus, Lease, UniqueScope
from daybook.domain.jobs.work import JobSelector
from daybook.domain.messages.operation import OPERATION
from daybook.eventlog.postgres.binary_arrays import (
    bigints,
    booleans,
    byteas,
    doubles,
    integers,
    smallints,
    texts,
    timestamps,
    unnested,
    uuids,
)
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
from daybook.projections.jobs.limited_claim_sql import HOLD_LIMITED, PICK_LIMITED, PICK_LIMITED_HEAD

SELECT_JOBS = f"SELECT {COLUMNS}\nFROM jobs\n"

HOLD_JOBS = f"{SELECT_JOBS} WHERE id = ANY(%(ids)b::uuid[]) ORDER BY id FOR UPDATE"

_INSERTED = unnested(
    "ids uuid, versions bigint, numbers bigint, created timestamptz, updated timestamptz, "
    "run_at timestamptz, started timestamptz, until timestamptz, claims uuid, "
    "lease_seconds float8, lives integer, failures integer, crashes integer, "
    "interruptions integer, priorities smallint, attempts smallint, attempts_max smallint, "
    "statuses text, queues text, types text, workers text, subjects text, keys text, scopes text, "
    "partitions text, errors text, payloads bytea, skips boolean, entered bigint, operations uuid"
)

_NEW = unnested(
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

# What enters a lane is behind until its place is known: see `projections/jobs/lanes.py`.
INSERT_JOBS = f"""{_NOTE_TYPES}
INSERT INTO jobs (id, version, number, created_at, updated_at, run_at, started_at, lease_until,
                  claim_id, lease_seconds, life, failures, crashes, interruptions, priority,
                  attempts, attempts_max, status, queue, type, worker, subject, unique_key,
                  unique_scope, partition, error, payload, skips, entered, operation_id, behind)
SELECT {_INSERTED},
    unnest(%(entered)b::bigint[]) IS NOT NULL
"""

# Those to which nothing has happened but that they were created: half of the columns go without
# saying, and half of the time with them.
INSERT_NEW_JOBS = f"""{_NOTE_TYPES}
INSERT INTO jobs (id, number, created_at, run_at, lease_seconds, priority, attempts_max, queue,
                  type, subject, unique_key, unique_scope, partition, payload, skips, entered,
                  operation_id, behind, updated_at, version, life, failures, crashes,
                  interruptions, attempts, status)
SELECT {_NEW},
    unnest(%(entered)b::bigint[]) IS NOT NULL, unnest(%(created)b::timestamptz[]),
    1, 1, 0, 0, 0, 0, 'PENDING'
"""

_UPDATED = unnested(
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

_CLAIMED = unnested(
    "ids uuid, versions bigint, started timestamptz, until timestamptz, claims uuid, "
    "attempts smallint, workers text"
)

# Those to which nothing has happened but that they were claimed.
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

# Checks cached jobs: they are right only as long as no other process has changed them. A version
# alone proves nothing after a failover, when another claim may have made the same one.
HOLD_KNOWN_JOBS = """
SELECT must_be_known(coalesce(
    array_agg(version) = %(versions)b::bigint[]
    AND array_agg(claim_id) = %(claims)b::uuid[], false))
FROM (
    SELECT version, claim_id FROM jobs WHERE id = ANY(%(ids)b::uuid[]) ORDER BY id FOR UPDATE
) AS held
"""
DELETE_KNOWN_JOBS = f"""
WITH gone AS ({DELETE_JOBS} AND claim_id = ANY(%(claims)b::uuid[]) RETURNING version)
SELECT must_be_known(count(*) = %(count)b::bigint AND sum(version) = %(versions)b::bigint)
FROM gone
"""

REMEMBERED_BYTES_MAX = 2_000

_STATUSES = {status.value: status for status in JobStatus}
_DEAD = JobStatus.DEAD
_SCOPES: dict[str | None, UniqueScope | None] = {None: None, **{s.value: s for s in UniqueScope}}


class LiveJobs(LiveTable[Job]):
    decider = JOB
    name = "jobs"
    select = SELECT_JOBS
    lock = HOLD_JOBS
    more_ready_exists = MORE_READY_EXISTS
    insert = INSERT_JOBS
    update = UPDATE_JOBS
    delete = DELETE_JOBS
    is_cached = True
    lock_if_version = HOLD_KNOWN_JOBS
    delete_if_version = DELETE_KNOWN_JOBS
    side_tables = ("job_types",)
    # Moved by heartbeats, as long as the claim holds.
    columns_outside_log: ClassVar[Parameters] = {
        "lease_until": "claim_id",
        "heartbeat_claim_id": "claim_id",
        "heartbeat_seconds": "claim_id",
    }

    def side_statements(self, changes: Changes) -> SideStatements:
        jobs = changes.get(JOB.name, ())
        of_lanes = lanes.around(jobs, changes.get(OPERATION.name, ()))
        return SideStatements(of_lanes.before, [*of_lanes.after, *finished_jobs.written_with(jobs)])

    def recompute_derived(self, states: Sequence[Job]) -> Statements:
        return lanes.recompute_derived(states)

    def recompute_all(self) -> Statements:
        return lanes.settle()

    def locks_before_pick(self, among: JobSelector) -> Statements:
        wanted = self.selection(among)
        return [(HOLD_LIMITED, {name: wanted[name] for name in ("any", "queues")})]

    def pick_statements(self, among: JobSelector, limit: int) -> Statements:
        wanted = {**self.selection(among), "limit": limit}
        if among.partition is None:
            return [(CLAIM_ONE_QUEUE_AND_TYPE if _is_one(among) else CLAIM_READY, wanted)]
        return [(CLAIM_LANE_HEAD, wanted)]

    def picks_after_locks(self, among: JobSelector, limit: int, ready: Sequence[Job]) -> Statements:
        wanted = {
            **self.selection(among),
            "limit": limit,
            "priorities": smallints([job.priority for job in ready]),
            "numbers": bigints([job.number for job in ready]),
        }
        return [(PICK_LIMITED if among.partition is None else PICK_LIMITED_HEAD, wanted)]

    def merge_picks(self, among: JobSelector, picked: Sequence[list[Job]]) -> list[Job]:  # noqa: ARG002 (base)
        ready, *limited = picked
        # One source is up to three walks, each in order: first jobs without a subject, then jobs
        # with one, then jobs that had to wait for their time.
        if limited or (ready and (ready[-1].run_at or ready[-1].subject) is not None):
            return sorted(chain(ready, *limited), key=lambda job: (job.priority, job.number))
        return ready

    def selection(self, among: JobSelector) -> Parameters:
        return {**selection([among]), "partition": among.partition or ""}

    def cacheable(self, changes: Iterable[Change]) -> list[Job]:
        """What a worker has in hand, since it will tell what became of it; unless it is large, or
        in a lane, where a row knows more than its events."""
        return [
            change.state
            for change in changes
            if change.state.lease is not None
            and change.state.partition is None
            and len(change.state.payload) <= REMEMBERED_BYTES_MAX
        ]

    def claim_id(self, state: Job) -> UUID:
        assert state.lease is not None, "only what a worker has in hand is remembered"
        return state.lease.claim_id

    def side_row(self, state: Job) -> tuple[str, str]:
        return state.queue, state.type

    def load(self, row: TupleRow) -> Job:
        # By their places, in the order of the fields: by their names, of which there are so many,
        # takes six times as long.
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
            None if claim_id is None else Lease(claim_id, worker, started_at, lease_until),
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
        """What is said of jobs when they are created."""
        used = {self.side_row(job) for job in states}
        return {
            "ids": uuids([job.id for job in states]),
            "run_at": timestamps([job.run_at for job in states]),
            "entered": bigints([job.entered for job in states]),
            "used_queues": texts([queue for queue, _ in used]),
            "used_types": texts([type_ for _, type_ in used]),
            "numbers": bigints([job.number for job in states]),
            "created": timestamps([job.created_at for job in states]),
            "lease_seconds": doubles([job.lease_seconds for job in states]),
            "priorities": smallints([job.priority for job in states]),
            "attempts_max": smallints([job.attempts_max for job in states]),
            "queues": texts([job.queue for job in states]),
            "types": texts([job.type for job in states]),
            "subjects": texts([job.subject for job in states]),
            "keys": texts([job.unique_key for job in states]),
            "scopes": texts([job.unique_scope for job in states]),
            "partitions": texts([job.partition for job in states]),
            "payloads": byteas([bytes(job.payload) for job in states]),
            "skips": booleans([job.skips for job in states]),
            "operations": uuids([job.operation_id for job in states]),
        }

    @staticmethod
    def _claimed(states: Sequence[Job]) -> Parameters:
        """What is said of jobs when they are claimed."""
        return {
            "ids": uuids([job.id for job in states]),
            "versions": bigints([job.version for job in states]),
            "attempts": smallints([job.attempts for job in states]),
            **_lease_columns([job.lease for job in states]),
        }

    def update_parameters(self, states: Sequence[Job]) -> Parameters:
        leases = [job.lease for job in states]
        return {
            "ids": uuids([job.id for job in states]),
            "versions": bigints([job.version for job in states]),
            "updated": timestamps([job.updated_at for job in states]),
            "run_at": timestamps([job.run_at for job in states]),
            "lives": integers([job.life for job in states]),
            "failures": integers([job.failures for job in states]),
            "crashes": integers([job.crashes for job in states]),
            "interruptions": integers([job.interruptions for job in states]),
            "attempts": smallints([job.attempts for job in states]),
            "statuses": texts([job.status for job in states]),
            "errors": texts([job.error for job in states]),
            "entered": bigints([job.entered for job in states]),
            **_lease_columns(leases),
        }


def _is_just_claimed(before: Job, after: Job) -> bool:
    is_next = after.version == before.version + 1
    return is_next and before.lease is None and after.lease is not None


def _is_one(among: JobSelector) -> bool:
    return len(among.queues) == 1 and among.types is not None and len(among.types) == 1


def _lease_columns(leases: Sequence[Lease | None]) -> dict[str, Any]:
    return {
        "claims": uuids([None if lease is None else lease.claim_id for lease in leases]),
        "workers": texts([None if lease is None else lease.worker for lease in leases]),
        "started": timestamps([None if lease is None else lease.started_at for lease in leases]),
        "until": timestamps([None if lease is None else lease.until for lease in leases]),
    }


def load_jobs(rows: Iterable[TupleRow]) -> list[Job]:
    load = LiveJobs().load
    return [load(row) for row in rows]
