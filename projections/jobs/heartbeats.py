"""Heartbeats: a worker that says it is still there keeps its jobs for another lease.

They are no events. Held in the order in which every batch holds jobs, so that a heartbeat and an
expiry of the same lease come one after the other: one of them is refused.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

from msgspec import Struct

from daybook.eventlog.postgres.binary_arrays import doubles, uuids
from daybook.eventlog.postgres.key_lookup import equals_by_key_lookup
from daybook.eventlog.postgres.pipeline import Connection

# IS NOT DISTINCT FROM: `=` would let the planner read all jobs that are held instead.
_IS_CLAIM = (
    equals_by_key_lookup("jobs.id", "{row}.id")
    + " AND jobs.claim_id IS NOT DISTINCT FROM {row}.claim_id"
)

EXTEND_LEASES = f"""
WITH told AS (
    SELECT * FROM unnest(%(ids)b::uuid[], %(claims)b::uuid[], %(seconds)b::float8[])
        AS told (id, claim_id, seconds)
), held AS MATERIALIZED (
    SELECT jobs.id, jobs.claim_id, told.seconds
    FROM told JOIN jobs ON {_IS_CLAIM.format(row="told")}
    WHERE %(queues)s::text[] IS NULL OR queue = ANY(%(queues)s::text[])
    ORDER BY told.id
    FOR UPDATE OF jobs
)
UPDATE jobs
SET lease_until = clock_timestamp()
                + coalesce(held.seconds, jobs.lease_seconds) * interval '1 second',
    heartbeat_claim_id = jobs.claim_id,
    heartbeat_seconds = coalesce(held.seconds, jobs.lease_seconds)
FROM held
WHERE {_IS_CLAIM.format(row="held")}
RETURNING jobs.id, jobs.claim_id, jobs.lease_until
"""


# Of the claims that hold something, which are as many as there are jobs being worked on.
FIND_CLAIMED = "SELECT id FROM jobs WHERE claim_id = %(claim)s"


class LeaseExtension(Struct, frozen=True, gc=False):
    job_id: UUID
    claim_id: UUID
    lease_seconds: float | None = None
    """The job's own lease when None."""


class Extended(Struct, frozen=True, gc=False):
    job_id: UUID
    claim_id: UUID
    until: datetime


async def extend_leases(
    connection: Connection,
    beats: Sequence[LeaseExtension],
    *,
    queues: Collection[str] | None = None,
) -> list[Extended]:
    """Those that still hold their jobs, until when they do; of certain queues only, if any are
    named."""
    told = {
        "ids": uuids([beat.job_id for beat in beats]),
        "claims": uuids([beat.claim_id for beat in beats]),
        "seconds": doubles([beat.lease_seconds for beat in beats]),
        "queues": None if queues is None else [*queues],
    }
    rows = await connection.execute(EXTEND_LEASES, told, binary=True)
    return [Extended(*row) for row in await rows.fetchall()]


async def extend_claim(
    connection: Connection,
    claim_id: UUID,
    lease_seconds: float | None,
    *,
    queues: Collection[str] | None = None,
) -> Extended | None:
    """By the claim alone; None when it holds nothing any more."""
    rows = await connection.execute(FIND_CLAIMED, {"claim": claim_id})
    beats = [LeaseExtension(job_id, claim_id, lease_seconds) for (job_id,) in await rows.fetchall()]
    extended = await extend_leases(connection, beats, queues=queues) if beats else []
    return extended[0] if extended else None
