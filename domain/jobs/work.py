"""Commands of workers: claim jobs and report their results.

Commands are bulk: each job is decided by itself, and a refusal of one stops no other.
"""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from msgspec import Raw, Struct

from daybook.domain.backoff import Backoff
from daybook.domain.claim import require_claim
from daybook.domain.command import Lock, Need, Needs, NextNumbers, PeekAll, PickReady, UnitOfWork
from daybook.domain.errors import ClaimLostError, LeaseHeldError, NotFoundError, Refusal
from daybook.domain.event import Event, add_seconds
from daybook.domain.ids import id_of, key_of
from daybook.domain.jobs import job as jobs
from daybook.domain.jobs.create import (
    JOB_NUMBERS,
    FollowUp,
    follow_up_id,
    lane_queues,
    record_creation,
)
from daybook.domain.jobs.job import JOB, NULL, FailureReason, Job, NewJob
from daybook.domain.jobs.queue import QUEUE

BACKOFF = Backoff()


class JobSelector(Struct, frozen=True, gc=False):
    """Jobs that a worker claims: of these queues and these types (None for any type)."""

    queues: tuple[str, ...]
    types: tuple[str, ...] | None = None
    partition: str | None = None  # Only this lane; None for jobs of any lane or none


class Outcome(StrEnum):
    DONE = "done"
    RETRY = "retry"
    FAIL = "fail"
    SNOOZE = "snooze"
    RELEASE = "release"


class JobResult(Struct, frozen=True, kw_only=True, gc=False):
    """A worker's report on one claim."""

    job_id: UUID
    claim_id: UUID
    outcome: Outcome
    result: Raw = NULL
    error: str = ""
    retry_delay_seconds: float | None = None  # None for the default backoff
    until: datetime | None = None
    then: tuple[FollowUp, ...] = ()  # Their ids are derived from the completion
    worker: str | None = None  # The worker that must hold the claim; None for any


class JobOutcome(Struct, frozen=True, gc=False):
    """Outcome of one job of a bulk command."""

    job_id: UUID
    answer: Job | Refusal


class ClaimJobs(Struct, frozen=True, kw_only=True, gc=False):
    """Claims the most urgent jobs that match the selector."""

    selector: JobSelector
    worker: str
    limit: int
    claim_id: UUID  # Of the first job; further claim ids count up from it
    lease_seconds: float | None = None

    @property
    def needs(self) -> Needs:
        return [PickReady(JOB, self.selector, self.limit)]

    def decide(self, work: UnitOfWork) -> list[Job]:
        claimed: list[Job] = []
        first, now = key_of(self.claim_id), work.now
        for index, job in enumerate(work.pick(JOB, self.selector, limit=self.limit)):
            event = jobs.claim(
                job,
                claim_id=id_of(first + index),
                worker=self.worker,
                lease_seconds=self.lease_seconds,
                now=now,
            )
            claimed.append(work.record(JOB, job.id, event))
        return claimed


class FinishJobs(Struct, frozen=True, kw_only=True, gc=False):
    results: Sequence[JobResult]
    jitter: float  # Fraction of the backoff to wait, from 0 to 1
    backoff: Backoff = BACKOFF

    @property
    def needs(self) -> Needs:
        needs: list[Need] = [Lock(JOB, [one.job_id for one in self.results], may_use_cache=True)]
        follow_ups = [new for one in self.results for new in one.then]
        if follow_ups:
            needs += [*lane_queues(follow_ups), NextNumbers(JOB_NUMBERS, len(follow_ups))]
        # A follow-up without a queue inherits its predecessor's, which is not loaded yet.
        if any(new.partition is not None and not new.queue for new in follow_ups):
            needs.append(PeekAll(QUEUE))
        return needs

    def decide(self, work: UnitOfWork) -> list[JobOutcome]:
        outcomes: list[JobOutcome] = []
        for result in self.results:
            try:
                outcomes.append(JobOutcome(result.job_id, self._finish(work, result)))
            except Refusal as refusal:
                outcomes.append(JobOutcome(result.job_id, refusal))
        return outcomes

    def _finish(self, work: UnitOfWork, result: JobResult) -> Job:
        job = job_on(work, result.job_id)
        if result.worker not in (None, job.claim and job.claim.worker):
            raise ClaimLostError("job", job.id, result.claim_id)
        if result.outcome is Outcome.DONE:
            event = jobs.complete(
                job,
                claim_id=result.claim_id,
                result=result.result,
                follow_ups_count=len(result.then),
                now=work.now,
            )
            job = work.record(JOB, job.id, event)
            for index, one in enumerate(result.then):
                job_id, queue = follow_up_id(job, index), one.queue or job.queue
                record_creation(work, NewJob(job_id, queue, one.type, one, one.partition))
            return job
        return _record(work, job, self._unfinished_events(work, job, result))

    def _unfinished_events(self, work: UnitOfWork, job: Job, result: JobResult) -> Sequence[Event]:
        claim_id, now = result.claim_id, work.now
        if result.outcome is Outcome.RELEASE:
            return [jobs.release(job, claim_id=claim_id, now=now)]
        if result.outcome is Outcome.SNOOZE:
            assert result.until is not None
            return [jobs.snooze(job, claim_id=claim_id, until=result.until, now=now)]
        retry_delay_seconds = result.retry_delay_seconds
        if retry_delay_seconds is None:
            retry_delay_seconds = self.backoff.seconds(job.failures + job.crashes + 1, self.jitter)
        return jobs.fail(
            job,
            claim_id=claim_id,
            error=result.error,
            retryable=result.outcome is Outcome.RETRY,
            retry_delay_seconds=retry_delay_seconds,
            now=now,
        )


class FinishJob(Struct, frozen=True, gc=False):
    """Finishes a single job and raises its refusal."""

    finish: FinishJobs

    @property
    def needs(self) -> Needs:
        return self.finish.needs

    def decide(self, work: UnitOfWork) -> Job:
        (outcome,) = self.finish.decide(work)
        if isinstance(outcome.answer, Refusal):
            raise outcome.answer
        return outcome.answer


class JobCommand(Struct, frozen=True, gc=False):
    job_id: UUID

    @property
    def needs(self) -> Needs:
        return [Lock(JOB, [self.job_id])]


class ExpireLease(JobCommand, frozen=True, kw_only=True, gc=False):
    """Ends a claim whose lease expired without a heartbeat."""

    claim_id: UUID
    jitter: float
    backoff: Backoff = BACKOFF
    lease_until: datetime | None = None
    """End of the expired lease, as the caller measured elapsed time; a lease with another end was
    extended since. None compares the end with the clock."""

    lease_seconds: float | None = None

    def decide(self, work: UnitOfWork) -> Job:
        job = job_on(work, self.job_id)
        claim = require_claim("job", job, self.claim_id)
        is_over = work.now >= claim.until
        if self.lease_until is not None:
            is_over = self.lease_until == claim.until
        if not is_over:
            raise LeaseHeldError(job.id)
        failed = jobs.fail(
            job,
            claim_id=self.claim_id,
            error=f"the lease of worker {claim.worker} expired",
            reason=FailureReason.LEASE_EXPIRED,
            retryable=True,
            retry_delay_seconds=self.backoff.seconds(job.failures + job.crashes + 1, self.jitter),
            lease_seconds=self.lease_seconds,
            now=work.now,
        )
        return _record(work, job, failed)


class RescheduleRetry(JobCommand, frozen=True, kw_only=True, gc=False):
    """Restarts a backoff after the clock went back: it ends `retry_delay_seconds` from now."""

    version: int  # The version that the caller read; a job that has changed since is left alone
    retry_delay_seconds: float

    def decide(self, work: UnitOfWork) -> Job:
        job = job_on(work, self.job_id)
        if job.version != self.version or job.run_at is None:
            return job
        run_at = add_seconds(work.now, self.retry_delay_seconds)
        return work.record(JOB, job.id, Job.Rescheduled(at=work.now, run_at=run_at))


def job_on(work: UnitOfWork, job_id: UUID) -> Job:
    job = work.get(JOB, job_id)
    if job is None:
        raise NotFoundError("job", job_id)
    return job


def _record(work: UnitOfWork, job: Job, events: Sequence[Event]) -> Job:
    for event in events:
        job = work.record(JOB, job.id, event)
    return job
