"""Commands of operators: retry and cancel jobs, one or many, and configure queues."""

from collections.abc import Sequence
from datetime import datetime
from typing import TypeVar
from uuid import UUID

from msgspec import UNSET, Struct, UnsetType

from daybook.domain.command import Lock, Needs, UnitOfWork
from daybook.domain.errors import JobStatusChangedError, Refusal
from daybook.domain.event import Event
from daybook.domain.jobs import job as jobs
from daybook.domain.jobs.job import JOB, Job, JobStatus
from daybook.domain.jobs.queue import QUEUE, DeadJobPolicy, Limits, Queue, Rate, queue_id
from daybook.domain.jobs.work import JobCommand, JobOutcome, job_on

T = TypeVar("T")


class ChangeJobs(Struct, frozen=True, kw_only=True, gc=False):
    """Decides each job by itself: a refusal is the outcome of one job and stops no other.

    A job whose status is no longer the one that the caller listed is left as it is, so that a
    pending job is not cancelled under the worker that has claimed it since.
    """

    job_ids: Sequence[UUID]
    expected_status: JobStatus
    because: str | None = None

    @property
    def needs(self) -> Needs:
        return [Lock(JOB, self.job_ids)]

    def decide(self, work: UnitOfWork) -> list[JobOutcome]:
        outcomes: list[JobOutcome] = []
        for index, job_id in enumerate(self.job_ids):
            try:
                outcomes.append(JobOutcome(job_id, self._change(work, job_id, index)))
            except Refusal as refusal:
                outcomes.append(JobOutcome(job_id, refusal))
        return outcomes

    def _change(self, work: UnitOfWork, job_id: UUID, index: int) -> Job:
        job = job_on(work, job_id)
        if job.status is not self.expected_status:
            raise JobStatusChangedError(job_id, self.expected_status, job.status)
        return work.record(JOB, job_id, self.event(job, index, work.now))

    def event(self, job: Job, index: int, now: datetime) -> Event:
        raise NotImplementedError


class RetryJobs(ChangeJobs, frozen=True, kw_only=True, gc=False):
    run_at: Sequence[datetime] = ()
    """The time from which each job may be claimed, by index; all at once if empty."""

    def event(self, job: Job, index: int, now: datetime) -> Job.Requeued:
        run_at = self.run_at[index] if self.run_at else None
        return jobs.requeue(job, run_at=run_at, because=self.because, now=now)


class CancelJobs(ChangeJobs, frozen=True, kw_only=True, gc=False):
    def event(self, job: Job, _index: int, now: datetime) -> Job.Cancelled:
        return jobs.cancel(job, because=self.because, now=now)


class RetryJob(JobCommand, frozen=True, gc=False):
    because: str | None = None

    def decide(self, work: UnitOfWork) -> Job:
        job = job_on(work, self.job_id)
        requeued = jobs.requeue(job, because=self.because, now=work.now)
        return work.record(JOB, job.id, requeued)


class CancelJob(JobCommand, frozen=True, gc=False):
    because: str | None = None

    def decide(self, work: UnitOfWork) -> Job:
        job = job_on(work, self.job_id)
        cancelled = jobs.cancel(job, because=self.because, now=work.now)
        return work.record(JOB, job.id, cancelled)


class ConfigureQueue(Struct, frozen=True, kw_only=True, gc=False):
    """Fields left unset do not change."""

    name: str
    paused: bool | UnsetType = UNSET
    concurrency: int | UnsetType | None = UNSET
    rate: Rate | UnsetType | None = UNSET
    per_subject: Limits | UnsetType = UNSET
    lanes: DeadJobPolicy | UnsetType = UNSET
    because: str | None = None

    @property
    def needs(self) -> Needs:
        return [Lock(QUEUE, [queue_id(self.name)])]

    def decide(self, work: UnitOfWork) -> Queue:
        queue = work.get(QUEUE, queue_id(self.name))
        paused = queue.paused if queue else False
        limits, per_subject = (queue.limits, queue.per_subject) if queue else (Limits(), Limits())
        lanes = queue.lanes if queue else DeadJobPolicy.BLOCK
        configured = Queue.Configured(
            at=work.now,
            name=self.name,
            paused=_value_or(self.paused, paused),
            limits=Limits(
                _value_or(self.concurrency, limits.concurrency), _value_or(self.rate, limits.rate)
            ),
            per_subject=_value_or(self.per_subject, per_subject),
            lanes=_value_or(self.lanes, lanes),
            because=self.because,
        )
        return work.record(QUEUE, queue_id(self.name), configured)


def _value_or(given: T | UnsetType, otherwise: T) -> T:
    return otherwise if isinstance(given, UnsetType) else given
