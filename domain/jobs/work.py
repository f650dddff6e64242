"""The commands of the workshop: jobs are taken, and what became of them is told.

Jobs come and go by the thousand, so a command is about many at once. Each of them is decided by
itself: what is refused for one stops no other.
"""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from msgspec import Raw, Struct

from daybook.domain.command import Needs, UnitOfWork
from daybook.domain.errors import ClaimLostError, LeaseHeldError, NotFoundError, Refusal
from daybook.domain.event import Event, add_seconds
from daybook.domain.ids import id_of
from daybook.domain.jobs import job as jobs
from daybook.domain.jobs.create import (
    JOB_NUMBERS,
    NewJob,
    follow_up_id,
    lane_queues,
    record_creation,
)
from daybook.domain.jobs.job import JOB, NULL, Backoff, FailureReason, Job
from daybook.domain.jobs.queue import QUEUE

BACKOFF = Backoff()


class JobSelector(Struct, frozen=True, gc=False):
    """Which jobs a worker takes: of these queues, of these types; of any type when None."""

    queues: tuple[str, ...]
    types: tuple[str, ...] | None = None
    partition: str | None = None
    """Only of this lane; of all, and of none, when None."""


class Outcome(StrEnum):
    DONE = "done"
    RETRY = "retry"
    FAIL = "fail"
    SNOOZE = "snooze"
    RELEASE = "release"


class JobResult(Struct, frozen=True, kw_only=True, gc=False):
    """What became of one claim, in the worker's words."""

    job_id: UUID
    claim_id: UUID
    outcome: Outcome
    result: Raw = NULL
    error: str = ""
    rest_seconds: float | None = None
    """Before the next attempt; None for the usual backoff."""

    until: datetime | None = None
    then: tuple[NewJob, ...] = ()
    """Jobs that its completion creates. Their ids follow from it."""

    worker: str | None = None
    """Who is to hold the claim; whoever it is when None."""


class JobOutcome(Struct, frozen=True, gc=False):
    """What one of many was told."""

    job_id: UUID
    answer: Job | Refusal


class ClaimJobs(Struct, frozen=True, kw_only=True, gc=False):
    """A worker takes the most urgent jobs it can do."""

    selector: JobSelector
    worker: str
    limit: int
    claim_id: UUID
    """Of the first; the others count on from it."""

    lease_seconds: float | None = None

    @property
    def needs(self) -> Needs:
        return Needs(pick=JOB, pick_count=self.limit, pick_selector=self.selector)

    def decide(self, work: UnitOfWork) -> list[Job]:
        claimed: list[Job] = []
        first, now = self.claim_id.int, work.now
        for place, job in enumerate(work.pick(JOB, self.selector, limit=self.limit)):
            event = jobs.claim(
                job,
                claim_id=id_of(first + place),
                worker=self.worker,
                lease_seconds=self.lease_seconds,
                now=now,
            )
            claimed.append(work.record(JOB, job.id, event))
        return claimed


class FinishJobs(Struct, frozen=True, kw_only=True, gc=False):
    results: Sequence[JobResult]
    jitter: float
    """Which part of the backoff is rested, from 0 to 1."""

    backoff: Backoff = BACKOFF

    @property
    def needs(self) -> Needs:
        names = tuple([(JOB, one.job_id) for one in self.results])
        follow_ups = [new for one in self.results for new in one.then]
        if not follow_ups:
            return Needs(lock=names, may_use_cache=True)
        # Which queue it is that is not named shows only once the job before it is there.
        unnamed = any(new.partition is not None and not new.queue for new in follow_ups)
        return Needs(
            lock=names,
            may_use_cache=True,
            peek=lane_queues(follow_ups),
            peek_all=(QUEUE,) if unnamed else (),
            next_numbers=((JOB_NUMBERS, len(follow_ups)),),
        )

    def decide(self, work: UnitOfWork) -> list[JobOutcome]:
        settled: list[JobOutcome] = []
        for result in self.results:
            try:
                settled.append(JobOutcome(result.job_id, self._finish(work, result)))
            except Refusal as refusal:
                settled.append(JobOutcome(result.job_id, refusal))
        return settled

    def _finish(self, work: UnitOfWork, result: JobResult) -> Job:
        job = job_on(work, result.job_id)
        if result.worker not in (None, job.lease and job.lease.worker):
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
            for place, new in enumerate(result.then):
                record_creation(work, new, follow_up_id(job, place), new.queue or job.queue)
            return job
        return _record(work, job, self._not_done(work, job, result))

    def _not_done(self, work: UnitOfWork, job: Job, result: JobResult) -> Sequence[Event]:
        claim_id, now = result.claim_id, work.now
        if result.outcome is Outcome.RELEASE:
            return [jobs.release(job, claim_id=claim_id, now=now)]
        if result.outcome is Outcome.SNOOZE:
            assert result.until is not None
            return [jobs.snooze(job, claim_id=claim_id, until=result.until, now=now)]
        rest_seconds = result.rest_seconds
        if rest_seconds is None:
            rest_seconds = self.backoff.seconds(job.failures + job.crashes + 1, self.jitter)
        return jobs.fail(
            job,
            claim_id=claim_id,
            error=result.error,
            retryable=result.outcome is Outcome.RETRY,
            rest_seconds=rest_seconds,
            now=now,
        )


class FinishJob(Struct, frozen=True, gc=False):
    """A single one, whose refusal is the answer."""

    finish: FinishJobs

    @property
    def needs(self) -> Needs:
        return self.finish.needs

    def decide(self, work: UnitOfWork) -> Job:
        (settled,) = self.finish.decide(work)
        if isinstance(settled.answer, Refusal):
            raise settled.answer
        return settled.answer


class ExpireLease(Struct, frozen=True, kw_only=True, gc=False):
    """The worker has not been heard of until its lease was over."""

    job_id: UUID
    claim_id: UUID
    jitter: float
    backoff: Backoff = BACKOFF
    lease_until: datetime | None = None
    """The end of the lease whose time has elapsed, as the caller measured it; a lease with another
    end was extended since. None to compare its end with the clock."""

    lease_seconds: float | None = None
    """The length of that lease."""

    @property
    def needs(self) -> Needs:
        return Needs(lock=((JOB, self.job_id),))

    def decide(self, work: UnitOfWork) -> Job:
        job = job_on(work, self.job_id)
        lease = jobs.require_claim(job, self.claim_id)
        is_over = work.now >= lease.until
        if self.lease_until is not None:
            is_over = self.lease_until == lease.until
        if not is_over:
            raise LeaseHeldError(job.id)
        failed = jobs.fail(
            job,
            claim_id=self.claim_id,
            error=f"the lease of worker {lease.worker} expired",
            reason=FailureReason.LEASE_EXPIRED,
            retryable=True,
            rest_seconds=self.backoff.seconds(job.failures + job.crashes + 1, self.jitter),
            lease_seconds=self.lease_seconds,
            now=work.now,
        )
        return _record(work, job, failed)


class RescheduleRetry(Struct, frozen=True, kw_only=True, gc=False):
    """The clock went back: a job that rests after a failure rests as long from now, and not until
    the time that the clock before it had set."""

    job_id: UUID
    version: int
    """That the caller has seen; nothing is done to a job that has gone on since."""

    rest_seconds: float

    @property
    def needs(self) -> Needs:
        return Needs(lock=((JOB, self.job_id),))

    def decide(self, work: UnitOfWork) -> Job:
        job = job_on(work, self.job_id)
        if job.version != self.version or job.run_at is None:
            return job
        run_at = add_seconds(work.now, self.rest_seconds)
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
