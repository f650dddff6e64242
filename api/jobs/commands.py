"""Commands on jobs: create, report results, cancel, retry."""

import random
import re
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from typing import ClassVar, NotRequired, TypedDict
from uuid import UUID

from msgspec import Raw, Struct, ValidationError
from msgspec.json import Decoder
from starlette.routing import Route
from uuid_utils.compat import uuid7

from daybook.api.endpoints.command import (
    COMMAND_HEADERS,
    PREFER_HEADER,
    RequestContext,
    WithReason,
    WriteEndpoint,
)
from daybook.api.http.problems import reason_of
from daybook.api.http.request_reader import unprocessable
from daybook.api.jobs.requests import (
    ClaimBody,
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
from daybook.api.limits.queue_depth import enqueues
from daybook.api.settings.limits import BATCH_BODY_BYTES_MAX
from daybook.domain.command import Needs, UnitOfWork
from daybook.domain.ids import id_of, key_of
from daybook.domain.jobs.create import CreatedJob, CreateJobs, FollowUp
from daybook.domain.jobs.job import Job, JobStatus, NewJob
from daybook.domain.jobs.manage import CancelJob, RetryJob
from daybook.domain.jobs.work import FinishJob, FinishJobs, JobOutcome, JobResult, Outcome

# Module constants: enum attribute lookup is slow, and each reported job compares with these.
_COMPLETED = JobStatus.COMPLETED
_DONE = Outcome.DONE

_ONE = Decoder(NewJobBody)
_MANY = Decoder(NewJobs)
_MEMBERS = Decoder(dict[str, Raw])
_begins_with_jobs = re.compile(rb'\s*\{\s*"jobs"\s*:').match


class JobAnswer(TypedDict):
    job: JobJSON


class JobsAnswer(TypedDict):
    jobs: list[JobJSON]


class IdsAnswer(TypedDict):
    ids: list[UUID]


class JobResultJSON(TypedDict):
    """The new status of the job, or the refusal's `code` and `error`."""

    id: UUID
    status: NotRequired[JobStatus]
    code: NotRequired[str]
    error: NotRequired[str]


class ResultsAnswer(TypedDict):
    results: list[JobResultJSON]


class PlacedResultJSON(JobResultJSON):
    """`place` is the index in the request's results, from 0."""

    place: int


class BriefResultsAnswer(TypedDict):
    """The response to `Prefer: return=minimal`: the number of completed jobs, and all others."""

    completed: int
    results: list[PlacedResultJSON]


class Enqueue(Struct, frozen=True, gc=False):
    """Creates jobs and carries the requested form of the response (job, jobs or ids)."""

    create: CreateJobs
    answer: str

    @property
    def new(self) -> Sequence[NewJob]:
        return self.create.new

    priority: ClassVar = CreateJobs.priority

    @property
    def needs(self) -> Needs:
        return self.create.needs

    def decide(self, work: UnitOfWork) -> tuple[str, list[CreatedJob]]:
        return self.answer, self.create.decide(work)


def create(body: NewJobs, context: RequestContext) -> Enqueue:
    """Create a job, or up to 1,000 as {jobs: […]}, all or none."""
    for queue in {job.queue for job in body.jobs}:
        context.caller.must_reach(queue)
    for job in body.jobs:
        check_payload_size(job.payload)
    first = key_of(uuid7())
    # Consecutive ids keep the jobs of a batch in order, and take half the time of random ones.
    new = [job.new_job(id_of(first + index)) for index, job in enumerate(body.jobs)]
    return Enqueue(CreateJobs(new), body.answer)


def complete(body: JobCompletion, context: RequestContext) -> FinishJob:
    """Complete a job, optionally with follow-up jobs."""
    done = JobResult(
        job_id=context.id,
        claim_id=UUID(body.claim_id),
        outcome=Outcome.DONE,
        result=check_payload_size(body.result),
        then=_follow_ups(body.then, context.caller),
    )
    return _finish(done)


def fail(body: JobFailure, context: RequestContext) -> FinishJob:
    """Report a failed attempt: the job is retried later, or dead."""
    failed = JobResult(
        job_id=context.id,
        claim_id=UUID(body.claim_id),
        outcome=Outcome.RETRY if body.retryable else Outcome.FAIL,
        error=body.error,
        retry_delay_seconds=body.retry_after_seconds,
    )
    return _finish(failed)


def snooze(body: SnoozeBody, context: RequestContext) -> FinishJob:
    """Snooze a job until a time; the attempt does not count."""
    snoozed = JobResult(
        job_id=context.id, claim_id=UUID(body.claim_id), outcome=Outcome.SNOOZE, until=body.until
    )
    return _finish(snoozed)


def release(body: ClaimBody, context: RequestContext) -> FinishJob:
    """Release a claimed job; the attempt does not count."""
    released = JobResult(job_id=context.id, claim_id=UUID(body.claim_id), outcome=Outcome.RELEASE)
    return _finish(released)


def report(body: Results, context: RequestContext) -> FinishJobs:
    """Report the results of up to 1,000 claims; each is decided independently."""
    return FinishJobs(
        results=[_result(one, context.caller) for one in body.results], jitter=_jitter()
    )


def cancel(body: WithReason, context: RequestContext) -> CancelJob:
    """Cancel a job."""
    return CancelJob(context.id, body.reason)


def retry(body: WithReason, context: RequestContext) -> RetryJob:
    """Retry a dead or cancelled job with all its attempts."""
    return RetryJob(context.id, body.reason)


def one_job_json(job: Job) -> JobAnswer:
    return {"job": job_json(job)}


def created_jobs_json(outcome: tuple[str, list[CreatedJob]]) -> JobAnswer | JobsAnswer | IdsAnswer:
    answer, jobs = outcome
    if answer == "ids":
        return {"ids": [one.job.id for one in jobs]}
    if answer == "job":
        return {"job": job_json(jobs[0].job)}
    return {"jobs": [job_json(one.job) for one in jobs]}


def read_new_jobs(context: RequestContext) -> NewJobs:
    """One job, or a batch."""
    body = context.body
    if _begins_with_jobs(body) or (b'"jobs"' in body and _has_jobs(body)):
        many = context.read_json(_MANY)
        return NewJobs(many.jobs, "ids" if context.prefers_minimal else "jobs")
    return NewJobs([context.read_json(_ONE)], "job")


def _has_jobs(body: bytes) -> bool:
    try:
        return "jobs" in _MEMBERS.decode(body)
    except (ValidationError, ValueError):
        return True


def created_status(outcome: tuple[str, list[CreatedJob]]) -> HTTPStatus:
    """200 if all jobs existed already."""
    return HTTPStatus.CREATED if any(one.is_new for one in outcome[1]) else HTTPStatus.OK


def results_json(outcomes: list[JobOutcome]) -> ResultsAnswer | BriefResultsAnswer:
    return {"results": [job_outcome_json(outcome) for outcome in outcomes]}


def results_minimal_json(outcomes: list[JobOutcome]) -> BriefResultsAnswer:
    others: list[PlacedResultJSON] = [
        {"place": index, **job_outcome_json(outcome)}
        for index, outcome in enumerate(outcomes)
        if not (isinstance(outcome.answer, Job) and outcome.answer.status is _COMPLETED)
    ]
    return {"completed": len(outcomes) - len(others), "results": others}


def job_outcome_json(outcome: JobOutcome) -> JobResultJSON:
    answer = outcome.answer
    if isinstance(answer, Job):
        return {"id": answer.id, "status": answer.status}
    code, sentence = reason_of(answer)
    return {"id": outcome.job_id, "code": code, "error": sentence}


def _follow_ups(bodies: tuple[FollowUp, ...], caller: Caller) -> tuple[FollowUp, ...]:
    for body in bodies:
        if body.queue is not None:
            caller.must_reach(body.queue)
    for body in bodies:
        check_payload_size(body.payload)
    return bodies


def _result(body: JobResultBody, caller: Caller) -> JobResult:
    if body.outcome is _DONE and not body.then:
        # Fast path: most results carry no other member.
        result = check_payload_size(body.result)
        return JobResult(job_id=body.id, claim_id=body.claim_id, outcome=_DONE, result=result)
    if body.outcome is Outcome.SNOOZE and body.until is None:
        raise unprocessable("schema", "A result with outcome snooze must have until.")
    if body.then and body.outcome is not _DONE:
        raise unprocessable("schema", "Only a result with outcome done may have then.")
    return JobResult(
        job_id=body.id,
        claim_id=body.claim_id,
        outcome=body.outcome,
        result=check_payload_size(body.result),
        error=body.error,
        retry_delay_seconds=body.retry_after_seconds,
        until=body.until,
        then=_follow_ups(body.then, caller),
    )


def _finish(result: JobResult) -> FinishJob:
    return FinishJob(FinishJobs(results=[result], jitter=_jitter()))


def _jitter() -> float:
    return random.random()  # noqa: S311 (spreads retries)


CREATE = WriteEndpoint(
    "POST",
    "/api/jobs",
    scope=CLIENT | WORKER,
    command=create,
    shape=created_jobs_json,
    status=HTTPStatus.CREATED,
    status_of=created_status,
    also=(HTTPStatus.OK,),
    problems=(HTTPStatus.TOO_MANY_REQUESTS,),
    headers={**COMMAND_HEADERS, **PREFER_HEADER},
    body_bytes_max=BATCH_BODY_BYTES_MAX,
    reads=read_new_jobs,
    submits=enqueues,
)
REPORT = WriteEndpoint(
    "POST",
    "/api/jobs/results",
    scope=WORKER,
    command=report,
    shape=results_json,
    minimal=results_minimal_json,
    body_bytes_max=BATCH_BODY_BYTES_MAX,
)
on_one_job = partial(WriteEndpoint, "POST", shape=one_job_json)
COMPLETE = on_one_job("/api/jobs/{id}/complete", scope=WORKER, command=complete)
FAIL = on_one_job("/api/jobs/{id}/fail", scope=WORKER, command=fail)
SNOOZE = on_one_job("/api/jobs/{id}/snooze", scope=WORKER, command=snooze)
RELEASE = on_one_job("/api/jobs/{id}/release", scope=WORKER, command=release)
CANCEL = on_one_job("/api/jobs/{id}/cancel", scope=CLIENT, command=cancel)
RETRY = on_one_job("/api/jobs/{id}/retry", scope=ADMIN, command=retry)

routes: list[Route] = [
    write.route for write in (CREATE, REPORT, COMPLETE, FAIL, SNOOZE, RELEASE, CANCEL, RETRY)
]
