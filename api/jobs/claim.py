"""Workers come for jobs here, and say that they are still at them."""

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
    RawHeaders,
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
# Whoever was woken and got nothing is not woken again before this time has passed.
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
    """The answer to `Prefer: return=minimal`."""

    jobs: list[BriefJob]


def claim(wish: ClaimRequest, context: RequestContext) -> ClaimJobs:
    """Take the most urgent jobs of these queues, waiting for some if there are none."""
    for queue in wish.queues:
        context.caller.must_reach(queue)
    types = None if wish.types is None else tuple(sorted(set(wish.types)))
    return ClaimJobs(
        selector=JobSelector(tuple(sorted(set(wish.queues))), types),
        worker=wish.worker_id,
        limit=wish.limit,
        claim_id=uuid7(),
        lease_seconds=wish.lease_seconds,
    )


def claimed(jobs: list[Job]) -> ClaimedJobs | BrieflyClaimedJobs:
    return {"jobs": [job_json(job) for job in jobs]}


def briefly_claimed(jobs: list[Job]) -> BrieflyClaimedJobs:
    return {"jobs": brief_jobs(jobs)}


class ClaimRef(Struct, frozen=True, rename="camel"):
    id: UUID
    claim_id: UUID


class ClaimsTold(Struct, frozen=True):
    jobs: list[ClaimRef]


_CLAIMS = Decoder(ClaimsTold)


class LongPollEndpoint(CommandEndpoint[B, list[Job]]):
    """Looks, and if there is nothing waits and looks again, for as long as somebody listens."""

    # What a job belongs to was said when it was created.
    headers: ClassVar[Mapping[str, Any]] = {"Idempotency-Key": KeyText}

    empty: ClassVar[bytes]
    """What is answered when there is nothing."""

    @abstractmethod
    def take(self, context: RequestContext, wish: B) -> tuple[ClaimJobs, float]:
        """The claim, and how long to wait for something."""

    @abstractmethod
    def claims(self, body: bytes) -> Sequence[tuple[UUID, UUID]]:
        """The jobs of an answer, and the claim on each."""

    async def answer(
        self, context: RequestContext, body: bytes
    ) -> tuple[StoredResponse, RawHeaders]:
        wish = self.read(context, body)
        command, wait_seconds = self.take(context, wish)
        seconds_max = context.settings.wait_seconds_max
        if wait_seconds > seconds_max:
            sentence = f"The body does not fit: waitSeconds may be {seconds_max:g} at most."
            raise unprocessable("schema", sentence)
        key = self.key(context, wish)
        if not wait_seconds:
            return await self.submit(context, command, origin_of(context, key), key)
        listening = asyncio.create_task(_hung_up(context.receive))
        try:
            return await self._wait(context, command, key, wait_seconds, listening)
        finally:
            listening.cancel()

    async def _wait(
        self,
        context: RequestContext,
        command: ClaimJobs,
        key: IdempotencyKey | None,
        seconds: float,
        listening: "asyncio.Task[bool]",
    ) -> tuple[StoredResponse, RawHeaders]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        number = 0
        while True:
            context.require_valid_key()
            this = _numbered(key, number)
            answer, headers = await self.submit(context, command, origin_of(context, this), this)
            if answer.body != self.empty:
                if key is None and _is_gone(listening):
                    await _give_back(context, self.claims(answer.body))
                return answer, headers
            if number:
                await asyncio.sleep(EMPTY_CLAIM_PAUSE_SECONDS)
            left = deadline - loop.time()
            if left <= 0 or not await _is_woken(context, command, left, listening):
                return answer, headers
            number += 1


class ClaimEndpoint(LongPollEndpoint[ClaimRequest]):
    headers: ClassVar[Mapping[str, Any]] = {**LongPollEndpoint.headers, "Prefer": Preference}
    empty: ClassVar[bytes] = b'{"jobs":[]}'

    def take(self, context: RequestContext, wish: ClaimRequest) -> tuple[ClaimJobs, float]:
        return claim(wish, context), wish.wait_seconds

    def claims(self, body: bytes) -> Sequence[tuple[UUID, UUID]]:
        return [(one.id, one.claim_id) for one in _CLAIMS.decode(body).jobs]


async def _hung_up(receive: Receive) -> bool:
    """After a whole request, the next thing that a server tells is that the client is gone."""
    message = await receive()
    return bool(message["type"] == "http.disconnect")


def _is_gone(listening: "asyncio.Task[bool]") -> bool:
    return listening.done() and listening.result()


async def _is_woken(
    context: RequestContext, command: ClaimJobs, seconds: float, listening: "asyncio.Task[bool]"
) -> bool:
    """Whether there may be jobs, and the client still waits for them. Raises once the key is
    revoked or expired: a client without a valid key does not go on waiting."""
    job_waiters = context.service.job_waiters.wait(command.selector, command.limit, seconds)
    waiting = asyncio.create_task(job_waiters)
    unknown = asyncio.create_task(context.wait_until_key_revoked())
    # What has been heard already, and was not the end, is not listened to again.
    others = set() if listening.done() and not listening.result() else {listening}
    try:
        await asyncio.wait({waiting, unknown, *others}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        unknown.cancel()
        waiting.cancel()
    context.require_valid_key()
    is_rung = waiting.done() and not waiting.cancelled() and waiting.result()
    return is_rung and not _is_gone(listening)


async def _give_back(context: RequestContext, claims: Sequence[tuple[UUID, UUID]]) -> None:
    """Nobody is there to do what was claimed for them: it must not wait for a lease to end."""
    results = [
        JobResult(job_id=job_id, claim_id=claim_id, outcome=Outcome.RELEASE)
        for job_id, claim_id in claims
    ]
    await context.submit(FinishJobs(results=results, jitter=0), origin_of(context, None))


def _numbered(key: IdempotencyKey | None, number: int) -> IdempotencyKey | None:
    """One request may look several times; each look that found nothing keeps its answer, so a
    repetition comes to the look that found something."""
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
    summary = "Say that these claims are still being worked on: each gets another lease."

    async def answer(
        self, context: RequestContext, body: bytes
    ) -> tuple[StoredResponse, RawHeaders]:
        beats = [_heartbeat(beat, UUID(beat.id)) for beat in self.read(context, body).claims]
        extended = await context.service.write(
            lambda connection: extend_leases(connection, beats, queues=context.caller.bounds.queues)
        )
        answer = orjson.dumps(self.answers(beats, extended))
        return StoredResponse(self.status, answer), []

    @staticmethod
    def answers(beats: Sequence[LeaseExtension], extended: Sequence[Extended]) -> BeatsAnswer:
        held: list[ExtendedClaim] = [
            {"id": one.job_id, "claimId": one.claim_id, "leaseUntil": moment(one.until)}
            for one in extended
        ]
        kept = {one.claim_id for one in extended}
        return {"held": held, "lost": [b.claim_id for b in beats if b.claim_id not in kept]}


class HeartbeatEndpoint(WriteEndpoint[ClaimBody]):
    headers: ClassVar[Mapping[str, Any]] = {}
    summary = "Say that this claim is still being worked on."

    async def answer(
        self, context: RequestContext, body: bytes
    ) -> tuple[StoredResponse, RawHeaders]:
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
    ClaimEndpoint(
        "POST", "/api/jobs/claim", takes=ClaimRequest, scope=WORKER, command=claim, shape=shape
    )
    for shape in (claimed, briefly_claimed)
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
