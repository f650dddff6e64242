"""Settings of jobs that a schedule creates later."""

from uuid import UUID

from msgspec import Raw, Struct

from daybook.domain.jobs.create import NewJob


class JobTemplate(Struct, frozen=True, kw_only=True, gc=False):
    """Stored in events as decided, so no field has a default."""

    queue: str
    type: str
    payload: Raw
    priority: int
    attempts_max: int
    lease_seconds: float
    subject: str | None

    def job(self, job_id: UUID) -> NewJob:
        return NewJob(
            job_id=job_id,
            queue=self.queue,
            type=self.type,
            payload=self.payload,
            priority=self.priority,
            attempts_max=self.attempts_max,
            lease_seconds=self.lease_seconds,
            subject=self.subject,
        )
