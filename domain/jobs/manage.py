"""The commands of whoever looks after the workshop: jobs tried again or called off, queues set."""

from collections.abc import Sequence
from datetime import datetime
from typing import TypeVar
from uuid import UUID

from msgspec import UNSET, Struct, UnsetType

from daybook.domain.command import Needs, UnitOfWork
from daybook.domain.errors import JobNotDeadError, Refusal
from daybook.domain.jobs import job as jobs
from daybook.domain.jobs.job import JOB, Job, JobStatus
from daybook.domain.jobs.queue import QUEUE, DeadJobPolicy, Limits, Queue, Rate, queue_id
from daybook.domain.jobs.work import JobOutcome, job_on

T = TypeVar("T")


class RetryJobs(Struct, frozen=True, kw_only=True, gc=False):
    """Dead jobs begin a new life; each refusal is its own answer.

    Whoever looked for them saw them dead. One that was cancelled since is not wanted any more, and
    stays as it is.
    """

    job_ids: Sequence[UUID]
    run_at: Sequence[datetime] = ()
    """When each of them may be taken; at once if there are none."""

    because: str | None = None

    @property
    def needs(self) -> Needs:
        return Needs(lock=tuple([(JOB, job_id) for job_id in self.job_ids]))

    def decide(self, work: UnitOfWork) -> list[JobOutcome]:
        times: Sequence[datetime | None] = self.run_at or [None] * len(self.job_ids)
        settled: list[JobOutcome] = []
        for job_id, run_at in zip(self.job_ids, times, strict=True):
            try:
                settled.append(JobOutcome(job_id, self._retry(work, job_id, run_at)))
            except Refusal as refusal:
                settled.append(JobOutcome(job_id, refusal))
        return settled

    def _retry(self, work: UnitOfWork, job_id: UUID, run_at: datetime | None) -> Job:
        job = job_on(work, job_id)
        if job.status is not JobStatus.DEAD:
            raise JobNotDeadError(job.id, job.status)
        requeued = jobs.requeue(job, run_at=run_at, because=self.because, now=work.now)
        return work.record(JOB, job_id, requeued)


class RetryJob(Struct, frozen=True, gc=False):
    job_id: UUID
    because: str | None = None

    @property
    def needs(self) -> Needs:
        return Needs(lock=((JOB, self.job_id),))

    def decide(self, work: UnitOfWork) -> Job:
        job = job_on(work, self.job_id)
        requeued = jobs.requeue(job, because=self.because, now=work.now)
        return work.record(JOB, job.id, requeued)


class CancelJob(Struct, frozen=True, gc=False):
    job_id: UUID
    because: str | None = None

    @property
    def needs(self) -> Needs:
        return Needs(lock=((JOB, self.job_id),))

    def decide(self, work: UnitOfWork) -> Job:
        job = job_on(work, self.job_id)
        cancelled = jobs.cancel(job, because=self.because, now=work.now)
        return work.record(JOB, job.id, cancelled)


class ConfigureQueue(Struct, frozen=True, kw_only=True, gc=False):
    """What is not set stays as it is."""

    name: str
    paused: bool | UnsetType = UNSET
    concurrency: int | UnsetType | None = UNSET
    rate: Rate | UnsetType | None = UNSET
    per_subject: Limits | UnsetType = UNSET
    lanes: DeadJobPolicy | UnsetType = UNSET
    because: str | None = None

    @property
    def needs(self) -> Needs:
        return Needs(lock=((QUEUE, queue_id(self.name)),))

    def decide(self, work: UnitOfWork) -> Queue:
        queue = work.get(QUEUE, queue_id(self.name))
        paused = queue.paused if queue else False
        limits, per_subject = (queue.limits, queue.per_subject) if queue else (Limits(), Limits())
        lanes = queue.lanes if queue else DeadJobPolicy.BLOCK
        configured = Queue.Configured(
            at=work.now,
            name=self.name,
            paused=_chosen(self.paused, paused),
            limits=Limits(
                _chosen(self.concurrency, limits.concurrency), _chosen(self.rate, limits.rate)
            ),
            per_subject=_chosen(self.per_subject, per_subject),
            lanes=_chosen(self.lanes, lanes),
            because=self.because,
        )
        return work.record(QUEUE, queue_id(self.name), configured)


def _chosen(given: T | UnsetType, otherwise: T) -> T:
    return otherwise if isinstance(given, UnsetType) else given
