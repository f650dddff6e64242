"""A job: a unit of work that a worker processes under one claim at a time.

An attempt counts from the claim, so a job that kills its workers runs out of attempts like one that
fails. A release (worker shutdown) or a snooze gives the attempt back.
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, ClassVar, cast
from uuid import UUID

from msgspec import Meta, Raw, Struct, field, to_builtins
from msgspec.structs import replace

from daybook.domain.claim import Claim, require_claim
from daybook.domain.errors import BadValueError, JobNotDeadError, JobOverError
from daybook.domain.event import Decider, Event, EventWithReason, State, add_seconds, events_of
from daybook.domain.values import Attempts, LeaseSeconds, Name, Priority, check_instant

NULL = Raw(b"null")
Tags = Annotated[tuple[Name, ...], Meta(max_length=20, extra_json_schema={"uniqueItems": True})]


class JobStatus(StrEnum):
    PENDING = "PENDING"
    PROCESSING = "PROCESSING"
    COMPLETED = "COMPLETED"
    DEAD = "DEAD"
    CANCELLED = "CANCELLED"


# Module constants: an enum member lookup takes five times as long as a global.
_COMPLETED, _CANCELLED = JobStatus.COMPLETED, JobStatus.CANCELLED


class UniqueScope(StrEnum):
    """How long a unique key identifies one job."""

    FOREVER = "forever"
    UNFINISHED = "unfinished"


class OnDead(StrEnum):
    """Policy for a dead job whose unique key is enqueued again."""

    RETURN = "return"  # Returns the dead job unchanged
    RESTART = "restart"  # Restarts the job, as a retry does


class FailureReason(StrEnum):
    ERROR = "error"  # Reported by the worker
    LEASE_EXPIRED = "lease_expired"
    """The worker did not report before the lease expired: it crashed or hangs."""


class JobOptions(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Options of a new job, with their defaults as class attributes.

    Each entry point declares the options that it offers as fields and keeps the other defaults. A
    new option of all entry points is a field here and in `BoundedOptions`, with a default. Stored
    JSON omits it where it has the default, so events and rows of older versions keep their form.
    """

    payload = NULL
    priority = 5
    attempts_max = 3
    lease_seconds = 90.0
    run_at = cast("datetime | None", None)
    subject = cast("str | None", None)
    unique_scope = UniqueScope.FOREVER
    on_dead = OnDead.RETURN
    tags: tuple[str, ...] = ()


class BoundedOptions(
    JobOptions, frozen=True, kw_only=True, gc=False, rename="camel", forbid_unknown_fields=True
):
    """Options from outside the service, within bounds and under their names in JSON. Decoding and
    `convert` raise a ValidationError otherwise."""

    # A factory, because a default would be omitted from the fingerprint of an idempotent request.
    payload: Raw = field(default_factory=lambda: NULL)
    priority: Priority = JobOptions.priority
    attempts_max: Attempts = JobOptions.attempts_max
    lease_seconds: LeaseSeconds = JobOptions.lease_seconds
    tags: Tags = ()

    def __post_init__(self) -> None:
        check_instant(self.run_at)
        if self.tags and len({*self.tags}) < len(self.tags):
            raise BadValueError("The tags of a job are distinct")


class NewJob(Struct, frozen=True, gc=False):
    job_id: UUID
    queue: str
    type: str
    options: JobOptions
    partition: str | None = None
    unique_key: str | None = None
    is_fresh: bool = False  # The unique key cannot exist yet, so the lookup is skipped
    operation_id: UUID | None = None
    """The deferred push that creates the job; the job takes its position in the lane."""


class JobClaim(Claim, frozen=True, gc=False):
    worker: str


class Job(State, frozen=True, gc=False):
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
    life: int = 1  # Restart counter: 1, plus one for each retry by hand
    failures: int = 0
    crashes: int = 0
    interruptions: int = 0
    run_at: datetime | None = None  # Not claimable before; None if claimable at once
    claim: JobClaim | None = None
    subject: str | None = None
    unique_key: str | None = None
    unique_scope: UniqueScope | None = None
    partition: str | None = None  # The lane within the queue: its jobs run one after another
    skips: bool = False  # Dead-job policy of its lane: true lets the lane continue, false blocks it
    entered: int | None = None  # The version at which the job entered its lane; None outside
    operation_id: UUID | None = None  # The deferred push whose lane position the job has
    tags: tuple[str, ...] = ()
    error: str | None = None
    result: Raw = NULL

    class Created(Event, frozen=True, kw_only=True, gc=False, omit_defaults=True):
        topic: ClassVar[str] = "job.created"
        status_after: ClassVar[JobStatus] = JobStatus.PENDING
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
        tags: tuple[str, ...] = ()

    class Claimed(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "job.claimed"
        status_after: ClassVar[JobStatus] = JobStatus.PROCESSING
        claim_id: UUID
        worker: str
        lease_until: datetime
        attempt: int

    class Completed(Event, frozen=True, kw_only=True, gc=False, omit_defaults=True):
        topic: ClassVar[str] = "job.completed"
        status_after: ClassVar[JobStatus] = JobStatus.COMPLETED
        claim_id: UUID
        result: Raw = NULL
        follow_ups_count: int = 0

    class Failed(Event, frozen=True, kw_only=True, gc=False, omit_defaults=True):
        topic: ClassVar[str] = "job.failed"
        status_after: ClassVar[JobStatus] = JobStatus.PENDING
        claim_id: UUID
        error: str
        reason: FailureReason
        retryable: bool
        retry_at: datetime | None  # Time of the next attempt; None if there is none
        lease_seconds: float | None = None
        """Length of the expired lease since its claim or last heartbeat; None if it did not expire
        or was not measured."""

    class Released(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "job.released"
        status_after: ClassVar[JobStatus] = JobStatus.PENDING
        claim_id: UUID

    class Snoozed(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "job.snoozed"
        status_after: ClassVar[JobStatus] = JobStatus.PENDING
        claim_id: UUID
        until: datetime

    class Rescheduled(Event, frozen=True, kw_only=True, gc=False):
        """Restarts the backoff after the clock went back."""

        topic: ClassVar[str] = "job.rescheduled"
        status_after: ClassVar[JobStatus] = JobStatus.PENDING
        run_at: datetime

    class Requeued(EventWithReason, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "job.requeued"
        status_after: ClassVar[JobStatus] = JobStatus.PENDING
        run_at: datetime | None = None

    class MovedToDLQ(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "job.moved_to_dlq"
        status_after: ClassVar[JobStatus] = JobStatus.DEAD
        reason: str

    class Cancelled(EventWithReason, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "job.cancelled"
        status_after: ClassVar[JobStatus] = JobStatus.CANCELLED

    @property
    def effect_key(self) -> str:
        """Idempotency key for a handler's side effects: the same for all attempts of one life."""
        # Ten times as fast as `str(UUID)`.
        return f"{to_builtins(self.id)}-{self.life}"

    @property
    def is_over(self) -> bool:
        return _is_over(self)

    @property
    def finished_at(self) -> datetime | None:
        """The time of the last event of a completed, cancelled or dead job."""
        return self.updated_at if self.is_over or self.status is JobStatus.DEAD else None


def _is_over(job: Job) -> bool:
    return job.status is _COMPLETED or job.status is _CANCELLED


def create(new: NewJob, *, number: int, skips: bool, now: datetime) -> Job.Created:
    options, key = new.options, new.unique_key
    return Job.Created(
        at=now,
        job_id=new.job_id,
        number=number,
        queue=new.queue,
        type=new.type,
        payload=options.payload,
        priority=options.priority,
        attempts_max=options.attempts_max,
        lease_seconds=options.lease_seconds,
        run_at=options.run_at,
        subject=options.subject,
        unique_key=key,
        unique_scope=None if key is None else options.unique_scope,
        partition=new.partition,
        skips=skips,
        operation_id=new.operation_id,
        tags=options.tags,
    )


def urgency(job: Job) -> tuple[int, int]:
    """The sort key in which workers claim ready jobs: the lowest priority first, then by number."""
    return job.priority, job.number


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
    require_claim("job", job, claim_id)
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
    retry_delay_seconds: float,
    lease_seconds: float | None = None,
    now: datetime,
) -> list[Event]:
    """Retries after a backoff, or moves to the dead letters if not retryable or out of attempts."""
    require_claim("job", job, claim_id)
    has_retry = retryable and job.attempts < job.attempts_max
    failed = Job.Failed(
        at=now,
        claim_id=claim_id,
        error=error,
        reason=reason,
        retryable=retryable,
        retry_at=add_seconds(now, retry_delay_seconds) if has_retry else None,
        lease_seconds=lease_seconds,
    )
    if has_retry:
        return [failed]
    return [failed, Job.MovedToDLQ(at=now, reason=_dead_reason(job, reason, retryable))]


def _dead_reason(job: Job, reason: FailureReason, retryable: bool) -> str:
    if not retryable:
        return "not retryable"
    crashes = job.crashes + (reason is FailureReason.LEASE_EXPIRED)
    if crashes >= job.attempts_max:
        return f"crash loop: its worker was lost {crashes} times"
    return "attempts exhausted"


def release(job: Job, *, claim_id: UUID, now: datetime) -> Job.Released:
    require_claim("job", job, claim_id)
    return Job.Released(at=now, claim_id=claim_id)


def snooze(job: Job, *, claim_id: UUID, until: datetime, now: datetime) -> Job.Snoozed:
    require_claim("job", job, claim_id)
    return Job.Snoozed(at=now, claim_id=claim_id, until=until)


def requeue(
    job: Job, *, run_at: datetime | None = None, because: str | None = None, now: datetime
) -> Job.Requeued:
    if job.status is not JobStatus.DEAD and job.status is not JobStatus.CANCELLED:
        raise JobNotDeadError(job.id, job.status)
    return Job.Requeued(at=now, run_at=run_at, because=because)


def cancel(job: Job, *, because: str | None = None, now: datetime) -> Job.Cancelled:
    """Allowed during a claim as well: later reports of that worker are refused."""
    if job.is_over:
        raise JobOverError(job.id, job.status)
    return Job.Cancelled(at=now, because=because)


def _apply_created(job: Job | None, event: Job.Created) -> Job:
    """A unique key that is used again starts a new life of the same job."""
    version = 1 if job is None else job.version + 1
    # Positional arguments: keywords take twice as long for this many fields.
    return Job(
        event.job_id,
        version,
        event.number,
        event.queue,
        event.type,
        event.priority,
        event.payload,
        event.status_after,
        0,
        event.attempts_max,
        event.lease_seconds,
        event.at,
        event.at,
        1 if job is None else job.life + 1,
        0,
        0,
        0,
        event.run_at,
        None,
        event.subject,
        event.unique_key,
        event.unique_scope,
        event.partition,
        event.skips,
        None if event.partition is None else version,
        event.operation_id,
        event.tags,
    )


def evolve(job: Job | None, event: Event) -> Job:  # noqa: C901 (one case for each event)
    if isinstance(event, Job.Created):
        return _apply_created(job, event)
    assert job is not None, f"{event} is the first event of a job"
    match event:
        # Frequent events use `replace` directly: `after`, which packs keywords, takes twice as
        # long.
        case Job.Claimed():
            return replace(
                job,
                version=job.version + 1,
                updated_at=event.at,
                status=event.status_after,
                claim=JobClaim(event.claim_id, event.at, event.lease_until, event.worker),
                attempts=event.attempt,
                run_at=None,
            )
        case Job.Completed():
            return replace(
                job,
                version=job.version + 1,
                updated_at=event.at,
                status=event.status_after,
                claim=None,
                result=event.result,
                error=None,
                entered=None,
                operation_id=None,
            )
        case Job.Failed():
            return _apply_failed(job, event)
        case Job.Released():
            return _return_attempt(job, event, interruptions=job.interruptions + 1)
        case Job.Snoozed():
            return _return_attempt(job, event, run_at=event.until)
        case Job.Rescheduled():
            return job.after(event, run_at=event.run_at)
        case Job.MovedToDLQ():
            return job.after(
                event,
                run_at=None,
                entered=None if job.skips else job.entered,
                operation_id=None if job.skips else job.operation_id,
            )
        case Job.Requeued():
            return _apply_requeued(job, event)
        case Job.Cancelled():
            return job.after(
                event,
                claim=None,
                run_at=None,
                entered=None,
                operation_id=None,
            )
    raise AssertionError(f"unknown job event {event}")


def _apply_failed(job: Job, event: Job.Failed) -> Job:
    crashed = event.reason is FailureReason.LEASE_EXPIRED
    return job.after(
        event,
        claim=None,
        run_at=event.retry_at,
        error=event.error,
        crashes=job.crashes + crashed,
        failures=job.failures + (not crashed),
    )


def _return_attempt(job: Job, event: Event, **changes: Any) -> Job:
    """Back to pending without counting the attempt."""
    return job.after(event, claim=None, attempts=job.attempts - 1, **changes)


def _apply_requeued(job: Job, event: Job.Requeued) -> Job:
    """A job outside its lane re-enters at the end; one that blocked the lane keeps its position."""
    is_outside = job.partition is not None and job.entered is None
    return job.after(
        event,
        life=job.life + 1,
        attempts=0,
        failures=0,
        crashes=0,
        interruptions=0,
        run_at=event.run_at,
        error=None,
        result=NULL,
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
