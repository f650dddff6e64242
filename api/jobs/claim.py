"""Claims and heartbeats of workers: `POST /api/jobs/claim` (long poll) and `…/heartbeat`."""

import asyncio
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, TypedDict
from uuid import UUID

import orjson
from msgspec import Meta, Struct
from msgspec.json import Decoder
from msgspec.structs import replace
from starlette.routing import Route
from starlette.types import Receive
from uuid_utils.compat import uuid7

from daybook.api.endpoints.command import (
    B,
    Body,
    CommandEndpoint,
    Preference,
    Reply,
    RequestContext,
    WriteEndpoint,
    origin_of,
    stored_problem,
)
from daybook.api.http.problems import problem_of
from daybook.api.http.request_reader import BATCH_MAX, Id, KeyText, unprocessable
from daybook.api.http.timestamps import Moment, moment
from daybook.api.jobs.requests import ClaimBody
from daybook.api.jobs.responses import BriefJob, JobJSON, brief_jobs, job_json
from daybook.api.keys.access import WORKER
from daybook.api.settings.limits import BATCH_BODY_BYTES_MAX, WAIT_SECONDS_MAX
from daybook.domain.errors import ClaimLostError
from daybook.domain.jobs.job import Job
from daybook.domain.jobs.work import ClaimJobs, FinishJobs, JobResult, JobSelector, Outcome
from daybook.domain.values import LeaseSeconds, Name, Text
from daybook.eventlog.origin import StoredResponse
from daybook.eventlog.writing.idempotency import IdempotencyKey
from daybook.projections.jobs.heartbeats import Extended, LeaseExtension, extend_leases

NAMES_MAX = 100
# Pause after a wake-up that found no job, so that waiters do not spin.
EMPTY_CLAIM_PAUSE_SECONDS = 0.1

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


class ClaimRef(Struct, frozen=True, rename="camel"):
    id: UUID
    claim_id: UUID


class ClaimRefs(Struct, frozen=True):
    jobs: list[ClaimRef]


_CLAIMS = Decoder(ClaimRefs)


class LongPollEndpoint(CommandEndpoint[B, list[Job]]):
    """Submits the claim; while it finds nothing and the client is connected, waits and repeats."""

    # No correlation header: a job keeps the correlation of its creation.
    headers: ClassVar[Mapping[str, Any]] = {"Idempotency-Key": KeyText}

    empty: ClassVar[bytes]
    """The response body when no job is ready."""

    @abstractmethod
    def take(self, context: RequestContext, request: B) -> tuple[ClaimJobs, float]:
        """Returns the claim command and how many seconds to wait."""

    @abstractmethod
    def claims(self, body: bytes) -> Sequence[tuple[UUID, UUID]]:
        """Returns job id and claim id of each job in a response body."""

    async def answer(self, context: RequestContext, body: bytes) -> Reply:
        request = self.read(context, body)
        command, wait_seconds = self.take(context, request)
        seconds_max = context.settings.wait_seconds_max
        if wait_seconds > seconds_max:
            sentence = f"waitSeconds must be at most {seconds_max:g}."
            raise unprocessable("schema", sentence)
        key = self.key(context, request)
        if not wait_seconds:
            return await self.submit(context, command, origin_of(context, key), key)
        disconnect = asyncio.create_task(_client_disconnected(context.receive))
        try:
            return await self._wait(context, command, key, wait_seconds, disconnect)
        finally:
            disconnect.cancel()

    async def _wait(
        self,
        context: RequestContext,
        command: ClaimJobs,
        key: IdempotencyKey | None,
        seconds: float,
        disconnect: "asyncio.Task[bool]",
    ) -> Reply:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        number = 0
        while True:
            context.require_valid_key()
            numbered = _numbered_key(key, number)
            answer, headers = await self.submit(
                context, command, origin_of(context, numbered), numbered
            )
            if answer.body != self.empty:
                if key is None and _is_disconnected(disconnect):
                    await _release(context, self.claims(answer.body))
                return answer, headers
            if number:
                await asyncio.sleep(EMPTY_CLAIM_PAUSE_SECONDS)
            left = deadline - loop.time()
            if left <= 0 or not await _is_woken(context, command, left, disconnect):
                return answer, headers
            number += 1


class ClaimEndpoint(LongPollEndpoint[ClaimRequest]):
    headers: ClassVar[Mapping[str, Any]] = {**LongPollEndpoint.headers, "Prefer": Preference}
    empty: ClassVar[bytes] = b'{"jobs":[]}'

    def take(self, context: RequestContext, request: ClaimRequest) -> tuple[ClaimJobs, float]:
        return claim(request, context), request.wait_seconds

    def claims(self, body: bytes) -> Sequence[tuple[UUID, UUID]]:
        return [(one.id, one.claim_id) for one in _CLAIMS.decode(body).jobs]


async def _client_disconnected(receive: Receive) -> bool:
    """After the request body, the next ASGI message is the disconnect."""
    message = await receive()
    return bool(message["type"] == "http.disconnect")


def _is_disconnected(disconnect: "asyncio.Task[bool]") -> bool:
    return disconnect.done() and disconnect.result()


async def _is_woken(
    context: RequestContext, command: ClaimJobs, seconds: float, disconnect: "asyncio.Task[bool]"
) -> bool:
    """Whether jobs may be ready and the client is still connected. Raises once the API key is
    revoked or expired."""
    waiters = context.service.job_waiters
    waiting = asyncio.create_task(waiters.wait(command.selector, command.limit, seconds))
    revoked = asyncio.create_task(context.wait_until_key_revoked())
    # A message that was no disconnect ends the task; it is not awaited again.
    others = set() if disconnect.done() and not disconnect.result() else {disconnect}
    try:
        await asyncio.wait({waiting, revoked, *others}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        revoked.cancel()
        waiting.cancel()
    context.require_valid_key()
    is_notified = waiting.done() and not waiting.cancelled() and waiting.result()
    return is_notified and not _is_disconnected(disconnect)


async def _release(context: RequestContext, claims: Sequence[tuple[UUID, UUID]]) -> None:
    """Releases the claims of a disconnected client, so that jobs need not wait for their leases."""
    results = [
        JobResult(job_id=job_id, claim_id=claim_id, outcome=Outcome.RELEASE)
        for job_id, claim_id in claims
    ]
    await context.submit(FinishJobs(results=results, jitter=0), origin_of(context, None))


def _numbered_key(key: IdempotencyKey | None, number: int) -> IdempotencyKey | None:
    """A long poll submits several claims under numbered keys. Each empty claim stores its response,
    so a replayed request arrives at the claim that found jobs."""
    if key is None or number == 0:
        return key
    return replace(key, key=f"{key.key} {number}")


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


class HeartbeatsEndpoint(WriteEndpoint[HeartbeatsRequest]):
    headers: ClassVar[Mapping[str, Any]] = {}
    summary = "Extend the leases of these claims."

    async def answer(self, context: RequestContext, body: bytes) -> Reply:
        beats = [_heartbeat(beat, UUID(beat.id)) for beat in self.read(context, body).claims]
        extended = await context.service.write(
            lambda connection: extend_leases(connection, beats, queues=context.caller.bounds.queues)
        )
        answer = orjson.dumps(self.answers(beats, extended))
        return StoredResponse(self.status, answer), []

    @staticmethod
    def answers(beats: Sequence[LeaseExtension], extended: Sequence[Extended]) -> BeatsAnswer:
        extended_claims: list[ExtendedClaim] = [
            {"id": one.job_id, "claimId": one.claim_id, "leaseUntil": moment(one.until)}
            for one in extended
        ]
        ids = {one.claim_id for one in extended}
        lost = [beat.claim_id for beat in beats if beat.claim_id not in ids]
        return {"held": extended_claims, "lost": lost}


class HeartbeatEndpoint(WriteEndpoint[ClaimBody]):
    headers: ClassVar[Mapping[str, Any]] = {}
    summary = "Extend the lease of this claim."

    async def answer(self, context: RequestContext, body: bytes) -> Reply:
        beat = LeaseExtension(context.id, UUID(self.read(context, body).claim_id))
        extended = await context.service.write(
            lambda connection: extend_leases(
                connection, [beat], queues=context.caller.bounds.queues
            )
        )
        if not extended:
            return stored_problem(problem_of(ClaimLostError("job", beat.job_id, beat.claim_id))), []
        return StoredResponse(self.status, orjson.dumps(self.answers(extended[0]))), []

    @staticmethod
    def answers(extended: Extended) -> BeatAnswer:
        return {"leaseUntil": moment(extended.until)}


def _heartbeat(beat: HeartbeatRequest, job_id: UUID) -> LeaseExtension:
    return LeaseExtension(job_id, UUID(beat.claim_id), beat.lease_seconds)


CLAIM, BRIEF_CLAIM = (
    ClaimEndpoint("POST", "/api/jobs/claim", scope=WORKER, command=claim, shape=shape)
    for shape in (claimed_jobs_json, claimed_jobs_minimal_json)
)
CLAIM.minimal_variant = BRIEF_CLAIM
HEARTBEATS = HeartbeatsEndpoint(
    "POST",
    "/api/jobs/heartbeat",
    takes=HeartbeatsRequest,
    scope=WORKER,
    body_bytes_max=BATCH_BODY_BYTES_MAX,
)
HEARTBEAT = HeartbeatEndpoint("POST", "/api/jobs/{id}/heartbeat", takes=ClaimBody, scope=WORKER)

routes: list[Route] = [CLAIM.route, HEARTBEATS.route, HEARTBEAT.route]
