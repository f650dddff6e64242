"""Heartbeats: extend the leases of a worker's jobs. They write rows and no events.

Rows are locked in the order of every batch, so a heartbeat and the expiry of the same lease are
serialised: one of them is refused.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

from msgspec import Struct

from daybook.eventlog.postgres.binary_arrays import doubles, uuids
from daybook.eventlog.postgres.key_lookup import equals_by_key_lookup
from daybook.eventlog.postgres.pipeline import Connection

# IS NOT DISTINCT FROM: with `=` the planner would read the index of all leased jobs.
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
# Index of leased jobs.
FIND_CLAIMED = "SELECT id FROM jobs WHERE claim_id = %(claim)s"


class LeaseExtension(Struct, frozen=True, gc=False):
    job_id: UUID
    claim_id: UUID
    lease_seconds: float | None = None  # None: the job's own


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
    """Returns the extended leases; claims that were lost, or outside `queues`, are left out."""
    given = {
        "ids": uuids([beat.job_id for beat in beats]),
        "claims": uuids([beat.claim_id for beat in beats]),
        "seconds": doubles([beat.lease_seconds for beat in beats]),
        "queues": None if queues is None else [*queues],
    }
    rows = await connection.execute(EXTEND_LEASES, given, binary=True)
    return [Extended(*row) for row in await rows.fetchall()]


async def extend_claim(
    connection: Connection,
    claim_id: UUID,
    lease_seconds: float | None,
    *,
    queues: Collection[str] | None = None,
) -> Extended | None:
    """Extends the lease of a claim without its job id; returns None if the claim was lost."""
    rows = await connection.execute(FIND_CLAIMED, {"claim": claim_id})
    beats = [LeaseExtension(job_id, claim_id, lease_seconds) for (job_id,) in await rows.fetchall()]
    extended = await extend_leases(connection, beats, queues=queues) if beats else []
    return extended[0] if extended else None
