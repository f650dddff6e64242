"""Claims and heartbeats of workers: `POST /api/jobs/claim` (long poll) and `…/heartbeat`."""

from collections.abc import Sequence
from typing import Annotated, TypedDict
from uuid import UUID

from msgspec import Meta
from starlette.routing import Route
from uuid_utils.compat import uuid7

from daybook.api.endpoints.command import KEY_HEADER, Body, RequestContext, WriteEndpoint
from daybook.api.endpoints.long_poll import long_polls
from daybook.api.http.request_reader import BATCH_MAX, Id
from daybook.api.http.timestamps import Moment, moment
from daybook.api.jobs.requests import ClaimBody
from daybook.api.jobs.responses import BriefJob, JobJSON, brief_jobs, job_json
from daybook.api.keys.access import WORKER
from daybook.api.settings.limits import BATCH_BODY_BYTES_MAX, WAIT_SECONDS_MAX
from daybook.domain.errors import ClaimLostError
from daybook.domain.jobs.job import Job
from daybook.domain.jobs.work import ClaimJobs, JobSelector
from daybook.domain.values import LeaseSeconds, Name, Text
from daybook.projections.jobs.heartbeats import Extended, LeaseExtension, extend_leases

NAMES_MAX = 100

Names = Annotated[tuple[Name, ...], Meta(min_length=1, max_length=NAMES_MAX)]


class ClaimRequest(Body, frozen=True):
    queues: Names
    worker_id: Text
    types: Names | None = None
    limit: Annotated[int, Meta(ge=1, le=BATCH_MAX)] = 1
    lease_seconds: LeaseSeconds | None = None
    wait_seconds: Annotated[float, Meta(ge=0, le=WAIT_SECONDS_MAX)] = 0


class ClaimedJobs(TypedDict):
    jobs: list[JobJSON]


class BrieflyClaimedJobs(TypedDict):
    """The response to `Prefer: return=minimal`."""

    jobs: list[BriefJob]


def claim(request: ClaimRequest, context: RequestContext) -> ClaimJobs:
    """Claim the most urgent jobs of these queues; wait up to waitSeconds if none is ready."""
    for queue in request.queues:
        context.caller.must_reach(queue)
    types = None if request.types is None else tuple(sorted(set(request.types)))
    return ClaimJobs(
        selector=JobSelector(tuple(sorted(set(request.queues))), types),
        worker=request.worker_id,
        limit=request.limit,
        claim_id=uuid7(),
        lease_seconds=request.lease_seconds,
    )


def claimed_jobs_json(jobs: list[Job]) -> ClaimedJobs | BrieflyClaimedJobs:
    return {"jobs": [job_json(job) for job in jobs]}


def claimed_jobs_minimal_json(jobs: list[Job]) -> BrieflyClaimedJobs:
    return {"jobs": brief_jobs(jobs)}


class HeartbeatRequest(Body, frozen=True):
    id: Id
    claim_id: Id
    lease_seconds: LeaseSeconds | None = None


class HeartbeatsRequest(Body, frozen=True):
    claims: Annotated[list[HeartbeatRequest], Meta(min_length=1, max_length=BATCH_MAX)]


class ExtendedClaim(TypedDict):
    id: UUID
    claimId: UUID
    leaseUntil: Moment


class BeatsAnswer(TypedDict):
    held: list[ExtendedClaim]
    lost: list[UUID]


class BeatAnswer(TypedDict):
    leaseUntil: Moment


async def extend_claims(body: HeartbeatsRequest, context: RequestContext) -> BeatsAnswer:
    """Extend the leases of these claims."""
    beats = [
        LeaseExtension(UUID(one.id), UUID(one.claim_id), one.lease_seconds) for one in body.claims
    ]
    extended = await _extend(context, beats)
    ids = {one.claim_id for one in extended}
    return {
        "held": [
            {"id": one.job_id, "claimId": one.claim_id, "leaseUntil": moment(one.until)}
            for one in extended
        ],
        "lost": [beat.claim_id for beat in beats if beat.claim_id not in ids],
    }


async def extend_one_claim(body: ClaimBody, context: RequestContext) -> BeatAnswer:
    """Extend the lease of this claim."""
    beat = LeaseExtension(context.id, UUID(body.claim_id))
    extended = await _extend(context, [beat])
    if not extended:
        raise ClaimLostError("job", beat.job_id, beat.claim_id)
    return {"leaseUntil": moment(extended[0].until)}


async def _extend(context: RequestContext, beats: Sequence[LeaseExtension]) -> Sequence[Extended]:
    queues = context.caller.bounds.queues
    return await context.service.execute_outside_log(
        lambda connection: extend_leases(connection, beats, queues=queues)
    )


CLAIM = WriteEndpoint(
    "POST",
    "/api/jobs/claim",
    scope=WORKER,
    command=claim,
    shape=claimed_jobs_json,
    minimal=claimed_jobs_minimal_json,
    # No correlation header: a job keeps the correlation of its creation.
    headers=KEY_HEADER,
    submits=long_polls(lambda claim: claim.request.wait_seconds),
)
HEARTBEATS = WriteEndpoint(
    "POST",
    "/api/jobs/heartbeat",
    scope=WORKER,
    answer=extend_claims,
    headers={},
    body_bytes_max=BATCH_BODY_BYTES_MAX,
)
HEARTBEAT = WriteEndpoint(
    "POST", "/api/jobs/{id}/heartbeat", scope=WORKER, answer=extend_one_claim, headers={}
)

routes: list[Route] = [CLAIM.route, HEARTBEATS.route, HEARTBEAT.route]
