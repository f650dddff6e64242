"""A job: work that somebody asks for and a worker does, under one claim at a time.

An attempt is counted when a worker takes the job, so a job that kills its workers comes to an end
like one that fails. What ends an attempt without being the job's doing (a worker that shuts down,
a job that asks to be looked at later) gives it back.
"""

from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar, Self
from uuid import UUID

from msgspec import Raw, Struct, to_builtins
from msgspec.structs import replace

from daybook.domain.errors import ClaimLostError, JobNotDeadError, JobOverError
from daybook.domain.event import Decider, Event, EventWithReason, add_seconds, events_of

NULL = Raw(b"null")


class JobStatus(StrEnum):
    PENDING = "PENDING"
    PROCESSING = "PROCESSING"
    COMPLETED = "COMPLETED"
    DEAD = "DEAD"
    CANCELLED = "CANCELLED"


# Python looks a member of an enumeration up anew each time: five times as long as a name.
_PENDING, _PROCESSING = JobStatus.PENDING, JobStatus.PROCESSING
_COMPLETED, _CANCELLED = JobStatus.COMPLETED, JobStatus.CANCELLED


class UniqueScope(StrEnum):
    """For how long a unique key stands for one job."""

    FOREVER = "forever"
    UNFINISHED = "unfinished"


class OnDead(StrEnum):
    """The policy for a dead job whose unique key is used again."""

    RETURN = "return"
    """It stays dead, and is the answer."""

    RESTART = "restart"
    """It begins a new life, as if it had been retried."""


class FailureReason(StrEnum):
    ERROR = "error"
    """The worker said so."""

    LEASE_EXPIRED = "lease_expired"
    """The worker said nothing until its lease was over: it crashed, or as good as."""


class Backoff(Struct, frozen=True, gc=False):
    """How long a job rests after its nth failure: any time up to base · 2ⁿ⁻¹, at most the cap.
    The whole range is used, so that jobs which failed together do not come back together."""

    base_seconds: float = 0.2
    cap_seconds: float = 300.0

    def seconds(self, failures_count: int, jitter: float) -> float:
        # A job that fails often enough would take 2ⁿ out of what a number can hold.
        doublings = min(failures_count - 1, 32)
        return jitter * min(self.base_seconds * 2.0**doublings, self.cap_seconds)


class Lease(Struct, frozen=True, gc=False):
    """A worker's hold on a job. Its id is the fence: what names an older one is stale."""

    claim_id: UUID
    worker: str
    started_at: datetime
    until: datetime


class Job(Struct, frozen=True, gc=False):
    id: UUID
    version: int
    number: int
    queue: str
    type: str
    priority: int
    payload: Raw
    status: JobStatus
    attempts: int
    attempts_max: int
    lease_seconds: float
    created_at: datetime
    updated_at: datetime
    life: int = 1
    """Starts at 1; every time it is started over by hand is a new one."""

    failures: int = 0
    crashes: int = 0
    interruptions: int = 0
    run_at: datetime | None = None
    """Not to be taken before; None when it can be taken at once."""

    lease: Lease | None = None
    subject: str | None = None
    unique_key: str | None = None
    unique_scope: UniqueScope | None = None
    partition: str | None = None
    """Its lane in the queue: what is in one lane is done one after another."""

    skips: bool = False
    """What its death means to the lane: the next one's turn, or that all wait."""

    entered: int | None = None
    """The version with which it took its place in the lane; None while it is in none."""

    operation_id: UUID | None = None
    """Whose place in the lane it has, if it was brought in by what had been accepted before."""

    error: str | None = None
    result: Raw = NULL
    finished_at: datetime | None = None

    class Created(Event, frozen=True, kw_only=True, gc=False, omit_defaults=True):
        topic: ClassVar[str] = "job.created"
        job_id: UUID
        number: int
        queue: str
        type: str
        payload: Raw
        priority: int
        attempts_max: int
        lease_seconds: float
        run_at: datetime | None = None
        subject: str | None = None
        unique_key: str | None = None
        unique_scope: UniqueScope | None = None
        partition: str | None = None
        skips: bool = False
        operation_id: UUID | None = None

    class Claimed(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "job.claimed"
        claim_id: UUID
        worker: str
        lease_until: datetime
        attempt: int

    class Completed(Event, frozen=True, kw_only=True, gc=False, omit_defaults=True):
        topic: ClassVar[str] = "job.completed"
        claim_id: UUID
        result: Raw = NULL
        follow_ups_count: int = 0
        """How many jobs it created."""

    class Failed(Event, frozen=True, kw_only=True, gc=False, omit_defaults=True):
        topic: ClassVar[str] = "job.failed"
        claim_id: UUID
        error: str
        reason: FailureReason
        retryable: bool
        retry_at: datetime | None
        """When it may be tried again; None when it is not."""

        lease_seconds: float | None = None
        """The length of the lease that expired, from when it was given or last extended; None when
        it did not expire, or was not measured."""

    class Released(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "job.released"
        claim_id: UUID

    class Snoozed(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "job.snoozed"
        claim_id: UUID
        until: datetime

    class Rescheduled(Event, frozen=True, kw_only=True, gc=False):
        """Its rest was measured by a clock that has gone back since."""

        topic: ClassVar[str] = "job.rescheduled"
        run_at: datetime

    class Requeued(EventWithReason, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "job.requeued"
        run_at: datetime | None = None

    class MovedToDLQ(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "job.moved_to_dlq"
        reason: str

    class Cancelled(EventWithReason, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "job.cancelled"

    def after(self, event: Event, **changes: Any) -> Self:
        return replace(self, version=self.version + 1, updated_at=event.at, **changes)

    @property
    def effect_key(self) -> str:
        """What handlers send along with their effects: all attempts of one life share it, so
        that whoever gets it twice can tell."""
        # Ten times as fast as `str` of a UUID, which is written in Python.
        return f"{to_builtins(self.id)}-{self.life}"

    @property
    def is_over(self) -> bool:
        return _is_over(self)


def _is_over(job: Job) -> bool:
    return job.status is _COMPLETED or job.status is _CANCELLED


def claim(
    job: Job, *, claim_id: UUID, worker: str, lease_seconds: float | None, now: datetime
) -> Job.Claimed:
    seconds = job.lease_seconds if lease_seconds is None else lease_seconds
    return Job.Claimed(
        at=now,
        claim_id=claim_id,
        worker=worker,
        lease_until=add_seconds(now, seconds),
        attempt=job.attempts + 1,
    )


def complete(
    job: Job, *, claim_id: UUID, result: Raw, follow_ups_count: int = 0, now: datetime
) -> Job.Completed:
    require_claim(job, claim_id)
    return Job.Completed(
        at=now, claim_id=claim_id, result=result, follow_ups_count=follow_ups_count
    )


def fail(
    job: Job,
    *,
    claim_id: UUID,
    error: str,
    reason: FailureReason = FailureReason.ERROR,
    retryable: bool,
    rest_seconds: float,
    lease_seconds: float | None = None,
    now: datetime,
) -> list[Event]:
    """Back for another attempt after a rest; among the dead when it may not or can no longer."""
    require_claim(job, claim_id)
    again = retryable and job.attempts < job.attempts_max
    failed = Job.Failed(
        at=now,
        claim_id=claim_id,
        error=error,
        reason=reason,
        retryable=retryable,
        retry_at=add_seconds(now, rest_seconds) if again else None,
        lease_seconds=lease_seconds,
    )
    if again:
        return [failed]
    return [failed, Job.MovedToDLQ(at=now, reason=_verdict(job, reason, retryable))]


def _verdict(job: Job, reason: FailureReason, retryable: bool) -> str:
    if not retryable:
        return "not retryable"
    crashes = job.crashes + (reason is FailureReason.LEASE_EXPIRED)
    if crashes >= job.attempts_max:
        return f"crash loop: its worker was lost {crashes} times"
    return "attempts exhausted"


def release(job: Job, *, claim_id: UUID, now: datetime) -> Job.Released:
    require_claim(job, claim_id)
    return Job.Released(at=now, claim_id=claim_id)


def snooze(job: Job, *, claim_id: UUID, until: datetime, now: datetime) -> Job.Snoozed:
    require_claim(job, claim_id)
    return Job.Snoozed(at=now, claim_id=claim_id, until=until)


def requeue(
    job: Job, *, run_at: datetime | None = None, because: str | None = None, now: datetime
) -> Job.Requeued:
    if job.status is not JobStatus.DEAD and job.status is not JobStatus.CANCELLED:
        raise JobNotDeadError(job.id, job.status)
    return Job.Requeued(at=now, run_at=run_at, because=because)


def cancel(job: Job, *, because: str | None = None, now: datetime) -> Job.Cancelled:
    """Also while a worker has it: whatever that one says later is refused."""
    if job.is_over:
        raise JobOverError(job.id, job.status)
    return Job.Cancelled(at=now, because=because)


def require_claim(job: Job, claim_id: UUID) -> Lease:
    lease = job.lease
    # UUIDs themselves are compared by a function written in Python.
    if lease is None or lease.claim_id.int != claim_id.int:
        raise ClaimLostError("job", job.id, claim_id)
    return lease


def _created(job: Job | None, event: Job.Created) -> Job:
    """A unique key stands for one job: when it is used again, that job begins a new life."""
    version = 1 if job is None else job.version + 1
    # By their places: by their names, of which there are so many, takes twice as long.
    # fmt: off
    return Job(
        event.job_id, version, event.number, event.queue, event.type, event.priority,
        event.payload, _PENDING, 0, event.attempts_max, event.lease_seconds, event.at, event.at,
        1 if job is None else job.life + 1, 0, 0, 0, event.run_at, None, event.subject,
        event.unique_key, event.unique_scope, event.partition, event.skips,
        None if event.partition is None else version, event.operation_id,
    )
    # fmt: on


def evolve(job: Job | None, event: Event) -> Job:  # noqa: C901 (one case for each event)
    if isinstance(event, Job.Created):
        return _created(job, event)
    assert job is not None, f"{event} is the first event of a job"
    match event:
        # These happen to every job; `after`, which packs its arguments, takes twice as long.
        case Job.Claimed():
            return replace(
                job,
                version=job.version + 1,
                updated_at=event.at,
                status=_PROCESSING,
                lease=Lease(event.claim_id, event.worker, event.at, event.lease_until),
                attempts=event.attempt,
                run_at=None,
            )
        case Job.Completed():
            return replace(
                job,
                version=job.version + 1,
                updated_at=event.at,
                status=_COMPLETED,
                lease=None,
                result=event.result,
                error=None,
                finished_at=event.at,
                entered=None,
                operation_id=None,
            )
        case Job.Failed():
            return _failed(job, event)
        case Job.Released():
            return _given_back(job, event, interruptions=job.interruptions + 1)
        case Job.Snoozed():
            return _given_back(job, event, run_at=event.until)
        case Job.Rescheduled():
            return job.after(event, run_at=event.run_at)
        case Job.MovedToDLQ():
            return job.after(
                event,
                status=JobStatus.DEAD,
                run_at=None,
                finished_at=event.at,
                entered=None if job.skips else job.entered,
                operation_id=None if job.skips else job.operation_id,
            )
        case Job.Requeued():
            return _requeued(job, event)
        case Job.Cancelled():
            return job.after(
                event,
                status=JobStatus.CANCELLED,
                lease=None,
                run_at=None,
                finished_at=event.at,
                entered=None,
                operation_id=None,
            )
    raise AssertionError(f"a job does not know {event}")


def _failed(job: Job, event: Job.Failed) -> Job:
    crashed = event.reason is FailureReason.LEASE_EXPIRED
    return job.after(
        event,
        status=JobStatus.PENDING,
        lease=None,
        run_at=event.retry_at,
        error=event.error,
        crashes=job.crashes + crashed,
        failures=job.failures + (not crashed),
    )


def _given_back(job: Job, event: Event, **changes: Any) -> Job:
    """The attempt did not count."""
    return job.after(
        event, status=JobStatus.PENDING, lease=None, attempts=job.attempts - 1, **changes
    )


def _requeued(job: Job, event: Job.Requeued) -> Job:
    """One that had left its lane goes to the end of it; one that held it up keeps its place."""
    is_outside = job.partition is not None and job.entered is None
    return job.after(
        event,
        status=JobStatus.PENDING,
        life=job.life + 1,
        attempts=0,
        failures=0,
        crashes=0,
        interruptions=0,
        run_at=event.run_at,
        error=None,
        result=NULL,
        finished_at=None,
        entered=job.version + 1 if is_outside else job.entered,
        operation_id=None if is_outside else job.operation_id,
    )


JOB: Decider[Job] = Decider(
    name="job",
    state=Job,
    events=events_of(Job),
    evolve=evolve,
    finished=_is_over,
)
