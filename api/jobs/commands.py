"""What can be done with jobs over HTTP, other than claiming and reading them."""

import random
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, ClassVar, NotRequired, TypedDict
from uuid import UUID

import orjson
from msgspec import Raw, Struct, ValidationError
from msgspec.json import Decoder
from starlette.routing import Route
from uuid_utils.compat import uuid7

from daybook.api.endpoints.command import (
    CommandEndpoint,
    Preference,
    RequestContext,
    WithReason,
    prefers_minimal,
    stored_problem,
)
from daybook.api.http.problems import problem_of, reason_of
from daybook.api.http.request_reader import unprocessable
from daybook.api.jobs.requests import (
    ClaimBody,
    FollowUp,
    JobCompletion,
    JobFailure,
    JobResultBody,
    NewJobBody,
    NewJobs,
    Results,
    SnoozeBody,
    check_payload_size,
)
from daybook.api.jobs.responses import JobJSON, job_json
from daybook.api.keys.access import ADMIN, CLIENT, WORKER, Caller
from daybook.api.limits.queue_depth import EnqueueEndpoint
from daybook.api.settings.limits import BATCH_BODY_BYTES_MAX
from daybook.domain.command import Needs, UnitOfWork
from daybook.domain.errors import Refusal
from daybook.domain.ids import id_of
from daybook.domain.jobs.create import CreatedJob, CreateJobs, NewJob, unique_id
from daybook.domain.jobs.job import Job, JobStatus
from daybook.domain.jobs.manage import CancelJob, RetryJob
from daybook.domain.jobs.work import FinishJob, FinishJobs, JobOutcome, JobResult, Outcome
from daybook.eventlog.origin import StoredResponse

# Looked up once: they are compared with every job that is told of.
_COMPLETED = JobStatus.COMPLETED
_DONE = Outcome.DONE


class JobAnswer(TypedDict):
    job: JobJSON


class JobsAnswer(TypedDict):
    jobs: list[JobJSON]


class IdsAnswer(TypedDict):
    ids: list[UUID]


class JobResultJSON(TypedDict):
    """How the job stands now; or, when that was refused, why."""

    id: UUID
    status: NotRequired[JobStatus]
    code: NotRequired[str]
    error: NotRequired[str]


class ResultsAnswer(TypedDict):
    results: list[JobResultJSON]


class PlacedResultJSON(JobResultJSON):
    """With its place among the results that were told, from 0."""

    place: int


class BriefResultsAnswer(TypedDict):
    """The answer to `Prefer: return=minimal`: how many are completed, and how all others stand."""

    completed: int
    results: list[PlacedResultJSON]


class Enqueue(Struct, frozen=True, gc=False):
    """Creates jobs, and remembers in which words the answer is wanted."""

    create: CreateJobs
    answer: str

    @property
    def new(self) -> Sequence[NewJob]:
        return self.create.new

    @property
    def needs(self) -> Needs:
        return self.create.needs

    def decide(self, work: UnitOfWork) -> tuple[str, list[CreatedJob]]:
        return self.answer, self.create.decide(work)


def create(new: NewJobs, context: RequestContext) -> Enqueue:
    """Create a job, or up to 1,000 as {jobs: […]}, all or none."""
    for queue in {one.queue for one in new.jobs}:
        context.caller.must_reach(queue)
    first = uuid7().int
    created = [_new_job(one, id_of(first + place)) for place, one in enumerate(new.jobs)]
    return Enqueue(CreateJobs(created), new.answer)


def complete(body: JobCompletion, context: RequestContext) -> FinishJob:
    """The job is done."""
    done = JobResult(
        job_id=context.id,
        claim_id=UUID(body.claim_id),
        outcome=Outcome.DONE,
        result=check_payload_size(body.result),
        then=_follow_ups(body.then, context.caller),
    )
    return _finish(done)


def fail(body: JobFailure, context: RequestContext) -> FinishJob:
    """The job failed: it is tried again later, or is dead."""
    failed = JobResult(
        job_id=context.id,
        claim_id=UUID(body.claim_id),
        outcome=Outcome.RETRY if body.retryable else Outcome.FAIL,
        error=body.error,
        rest_seconds=body.retry_after_seconds,
    )
    return _finish(failed)


def snooze(body: SnoozeBody, context: RequestContext) -> FinishJob:
    """The job is to be looked at later; the attempt does not count."""
    later = JobResult(
        job_id=context.id, claim_id=UUID(body.claim_id), outcome=Outcome.SNOOZE, until=body.until
    )
    return _finish(later)


def release(body: ClaimBody, context: RequestContext) -> FinishJob:
    """The worker gives the job back; the attempt does not count."""
    given_back = JobResult(job_id=context.id, claim_id=UUID(body.claim_id), outcome=Outcome.RELEASE)
    return _finish(given_back)


def report(body: Results, context: RequestContext) -> FinishJobs:
    """What became of up to 1,000 claims; each is decided by itself."""
    return FinishJobs(
        results=[_result(one, context.caller) for one in body.results], jitter=_jitter()
    )


def cancel(asked: WithReason, context: RequestContext) -> CancelJob:
    """The job is not wanted any more."""
    return CancelJob(context.id, asked.reason)


def retry(asked: WithReason, context: RequestContext) -> RetryJob:
    """A dead or cancelled job begins a new life."""
    return RetryJob(context.id, asked.reason)


def one_job(job: Job) -> JobAnswer:
    return {"job": job_json(job)}


def enqueued(outcome: tuple[str, list[CreatedJob]]) -> JobAnswer | JobsAnswer | IdsAnswer:
    answer, jobs = outcome
    if answer == "ids":
        return {"ids": [one.job.id for one in jobs]}
    if answer == "job":
        return {"job": job_json(jobs[0].job)}
    return {"jobs": [job_json(one.job) for one in jobs]}


class CreateEndpoint(EnqueueEndpoint[NewJobs, tuple[str, list[CreatedJob]]]):
    """Takes one job or many, and answers 200 when there was nothing to create."""

    headers: ClassVar[Mapping[str, Any]] = {**EnqueueEndpoint.headers, "Prefer": Preference}
    also = (HTTPStatus.OK,)

    _one = Decoder(NewJobBody)
    _members = Decoder(dict[str, Raw])
    _begins_with_jobs = re.compile(rb'\s*\{\s*"jobs"\s*:').match

    def read(self, context: RequestContext, body: bytes) -> NewJobs:
        if self._begins_with_jobs(body) or (b'"jobs"' in body and self._has_jobs(body)):
            many = super().read(context, body)
            return NewJobs(many.jobs, "ids" if prefers_minimal(context) else "jobs")
        return NewJobs([self.read_as(context, body, self._one)], "job")

    def _has_jobs(self, body: bytes) -> bool:
        try:
            return "jobs" in self._members.decode(body)
        except (ValidationError, ValueError):
            return True

    def render(self, outcome: tuple[str, list[CreatedJob]] | Refusal) -> StoredResponse:
        if isinstance(outcome, Refusal):
            return stored_problem(problem_of(outcome))
        is_new = any(one.is_new for one in outcome[1])
        status = HTTPStatus.CREATED if is_new else HTTPStatus.OK
        return StoredResponse(status, orjson.dumps(enqueued(outcome)))


class ReportEndpoint(CommandEndpoint[Results, list[JobOutcome]]):
    headers: ClassVar[Mapping[str, Any]] = {**CommandEndpoint.headers, "Prefer": Preference}


def reported(outcomes: list[JobOutcome]) -> ResultsAnswer | BriefResultsAnswer:
    return {"results": [told(outcome) for outcome in outcomes]}


def briefly_reported(outcomes: list[JobOutcome]) -> BriefResultsAnswer:
    others: list[PlacedResultJSON] = [
        {"place": place, **told(outcome)}
        for place, outcome in enumerate(outcomes)
        if not (isinstance(outcome.answer, Job) and outcome.answer.status is _COMPLETED)
    ]
    return {"completed": len(outcomes) - len(others), "results": others}


def told(settled: JobOutcome) -> JobResultJSON:
    answer = settled.answer
    if isinstance(answer, Job):
        return {"id": answer.id, "status": answer.status}
    code, sentence = reason_of(answer)
    return {"id": settled.job_id, "code": code, "error": sentence}


def _new_job(body: NewJobBody, job_id: UUID) -> NewJob:
    """The ids of those that come together count on from the first: so they are in order, and made
    in half the time."""
    key = body.unique_key
    return NewJob(
        job_id=job_id if key is None else unique_id(body.queue, body.type, key),
        queue=body.queue,
        type=body.type,
        payload=check_payload_size(body.payload),
        priority=body.priority,
        attempts_max=body.attempts_max,
        lease_seconds=body.lease_seconds,
        run_at=body.run_at,
        subject=body.subject,
        unique_key=key,
        unique_scope=None if key is None else body.unique_scope,
        on_dead=body.on_dead,
        partition=body.partition,
    )


def _follow_ups(bodies: Sequence[FollowUp], caller: Caller) -> tuple[NewJob, ...]:
    for body in bodies:
        if body.queue is not None:
            caller.must_reach(body.queue)
    return tuple(
        NewJob(
            job_id=uuid7(),
            queue=body.queue or "",
            type=body.type,
            payload=check_payload_size(body.payload),
            priority=body.priority,
            attempts_max=body.attempts_max,
            lease_seconds=body.lease_seconds,
            run_at=body.run_at,
            subject=body.subject,
            partition=body.partition,
        )
        for body in bodies
    )


def _result(body: JobResultBody, caller: Caller) -> JobResult:
    if body.outcome is _DONE and not body.then:
        # As most are: what is not said of them is not asked.
        result = check_payload_size(body.result)
        return JobResult(job_id=body.id, claim_id=body.claim_id, outcome=_DONE, result=result)
    if body.outcome is Outcome.SNOOZE and body.until is None:
        raise unprocessable("schema", "The body does not fit: a snooze says until when.")
    if body.then and body.outcome is not _DONE:
        raise unprocessable("schema", "The body does not fit: only what is done has follow-ups.")
    return JobResult(
        job_id=body.id,
        claim_id=body.claim_id,
        outcome=body.outcome,
        result=check_payload_size(body.result),
        error=body.error,
        rest_seconds=body.retry_after_seconds,
        until=body.until,
        then=_follow_ups(body.then, caller),
    )


def _finish(result: JobResult) -> FinishJob:
    return FinishJob(FinishJobs(results=[result], jitter=_jitter()))


def _jitter() -> float:
    return random.random()  # noqa: S311 (spreads retries)


CREATE = CreateEndpoint(
    "POST",
    "/api/jobs",
    takes=NewJobs,
    scope=CLIENT | WORKER,
    command=create,
    shape=enqueued,
    status=HTTPStatus.CREATED,
    body_bytes_max=BATCH_BODY_BYTES_MAX,
)
REPORT, BRIEF_REPORT = (
    ReportEndpoint(
        "POST",
        "/api/jobs/results",
        takes=Results,
        scope=WORKER,
        command=report,
        shape=shape,
        body_bytes_max=BATCH_BODY_BYTES_MAX,
    )
    for shape in (reported, briefly_reported)
)
REPORT.minimal_variant = BRIEF_REPORT
COMPLETE = CommandEndpoint(
    "POST",
    "/api/jobs/{id}/complete",
    takes=JobCompletion,
    scope=WORKER,
    command=complete,
    shape=one_job,
)
FAIL = CommandEndpoint(
    "POST", "/api/jobs/{id}/fail", takes=JobFailure, scope=WORKER, command=fail, shape=one_job
)
SNOOZE = CommandEndpoint(
    "POST", "/api/jobs/{id}/snooze", takes=SnoozeBody, scope=WORKER, command=snooze, shape=one_job
)
RELEASE = CommandEndpoint(
    "POST", "/api/jobs/{id}/release", takes=ClaimBody, scope=WORKER, command=release, shape=one_job
)
CANCEL = CommandEndpoint(
    "POST", "/api/jobs/{id}/cancel", takes=WithReason, scope=CLIENT, command=cancel, shape=one_job
)
RETRY = CommandEndpoint(
    "POST", "/api/jobs/{id}/retry", takes=WithReason, scope=ADMIN, command=retry, shape=one_job
)

routes: list[Route] = [
    write.route for write in (CREATE, REPORT, COMPLETE, FAIL, SNOOZE, RELEASE, CANCEL, RETRY)
]
