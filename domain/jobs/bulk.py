"""One decision about many jobs: each is decided by itself, and each refusal is its own answer.

Whoever decides has seen every job in one status. A job that has moved on since is left as it is:
what waited is not taken from the worker that has it now.
"""

from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct

from daybook.domain.command import Needs, UnitOfWork
from daybook.domain.errors import JobStatusChangedError, NotFoundError, Refusal
from daybook.domain.event import Event
from daybook.domain.jobs import job as jobs
from daybook.domain.jobs.job import JOB, Job, JobStatus
from daybook.domain.jobs.work import JobOutcome


class ChangeJobs(Struct, frozen=True, kw_only=True, gc=False):
    job_ids: Sequence[UUID]
    seen: JobStatus
    because: str | None = None

    @property
    def needs(self) -> Needs:
        return Needs(lock=tuple([(JOB, job_id) for job_id in self.job_ids]))

    def decide(self, work: UnitOfWork) -> list[JobOutcome]:
        settled: list[JobOutcome] = []
        for job_id in self.job_ids:
            try:
                settled.append(JobOutcome(job_id, self._change(work, job_id)))
            except Refusal as refusal:
                settled.append(JobOutcome(job_id, refusal))
        return settled

    def _change(self, work: UnitOfWork, job_id: UUID) -> Job:
        job = work.get(JOB, job_id)
        if job is None:
            raise NotFoundError("job", job_id)
        if job.status is not self.seen:
            raise JobStatusChangedError(job_id, self.seen, job.status)
        return work.record(JOB, job_id, self.event(job, work))

    def event(self, job: Job, work: UnitOfWork) -> Event:
        raise NotImplementedError


class RestartJobs(ChangeJobs, frozen=True, kw_only=True, gc=False):
    """They begin a new life."""

    def event(self, job: Job, work: UnitOfWork) -> Job.Requeued:
        return jobs.requeue(job, because=self.because, now=work.now)


class CancelJobs(ChangeJobs, frozen=True, kw_only=True, gc=False):
    """They are not wanted any more."""

    def event(self, job: Job, work: UnitOfWork) -> Job.Cancelled:
        return jobs.cancel(job, because=self.because, now=work.now)
