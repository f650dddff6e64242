"""Options of new jobs, and their creation: one or many, at most once for each unique key."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, ClassVar, TypeVar, cast
from uuid import UUID, uuid5

from msgspec import Raw, Struct, field, json

from daybook.domain.command import CommandPriority, Lock, Needs, NextNumbers, Peek, UnitOfWork
from daybook.domain.jobs.job import JOB, NULL, Job, JobStatus, OnDead, UniqueScope, requeue
from daybook.domain.jobs.queue import QUEUE, DeadJobPolicy, queue_id
from daybook.domain.values import (
    Attempts,
    Instant,
    LeaseSeconds,
    Name,
    Priority,
    Text,
    check_instant,
    check_payload,
    check_text,
)

JOB_NUMBERS = "job_numbers"
RESTARTED_BECAUSE = "enqueued again under its unique key, with onDead: restart"

_UNIQUE_KEYS = UUID("b1c7d2f4-7f0e-5a3c-8e0b-25f1c9a4d7e2")
_FOLLOW_UPS = UUID("5d9e1b7a-3c44-5f0a-b6c8-91e2f7a0d356")


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


Options = TypeVar("Options", bound=JobOptions)


def copy_options(kind: type[Options], options: JobOptions, **own: Any) -> Options:
    """The options as another struct, which has fields of its own."""
    for name in kind.__struct_fields__:
        if name not in own:
            own[name] = getattr(options, name)
    return kind(**own)


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

    def __post_init__(self) -> None:
        check_instant(self.run_at)


class JobDescription(BoundedOptions, frozen=True, kw_only=True, gc=False):
    type: Name
    subject: Text | None = None
    run_at: Instant | None = None
    partition: Text | None = None


class FollowUp(JobDescription, frozen=True, kw_only=True, gc=False):
    """A job created by the completion of another, by default in the same queue."""

    queue: Name | None = None


class JobRequest(JobDescription, frozen=True, kw_only=True, gc=False):
    queue: Name
    unique_key: Text | None = None
    unique_scope: UniqueScope = UniqueScope.FOREVER
    on_dead: OnDead = OnDead.RETURN
    """Policy for a dead job of this unique key: return it, or retry it with its own payload."""

    def new_job(self, job_id: UUID) -> "NewJob":
        """The new job; a unique key replaces the given id by a derived one."""
        key = self.unique_key
        if key is not None:
            job_id = unique_id(self.queue, self.type, key)
        return NewJob(job_id, self.queue, self.type, self, self.partition, key)


class DirectJobRequest(JobRequest, frozen=True, kw_only=True, gc=False):
    """A request of `daybook.enqueue`, whose texts and payload no request reader has checked."""

    def __post_init__(self) -> None:
        check_instant(self.run_at)
        check_payload(self.payload)
        for text in (self.subject, self.unique_key, self.partition):
            check_text(text)


class JobTemplate(JobOptions, frozen=True, kw_only=True, gc=False):
    """A job that a schedule creates later. Stored in events as decided, so no field has a default;
    without bounds, because events of older versions must load."""

    queue: str
    type: str
    payload: Raw
    priority: int
    attempts_max: int
    lease_seconds: float
    subject: str | None


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


class CreatedJob(Struct, frozen=True, gc=False):
    job: Job
    is_new: bool  # False if a job with the unique key existed


def unique_id(queue: str, type_: str, key: str) -> UUID:
    """Derives the job id from its unique key. The log accepts one first event for an id, so a
    duplicate cannot be created."""
    return uuid5(_UNIQUE_KEYS, json.encode((queue, type_, key)).decode())


def follow_up_id(job: Job, index: int) -> UUID:
    return uuid5(_FOLLOW_UPS, f"{job.effect_key}-{index}")


class CreateJobs(Struct, frozen=True, gc=False):
    new: Sequence[NewJob]

    priority: ClassVar = CommandPriority.NORMAL

    @property
    def needs(self) -> Needs:
        keyed = [one.job_id for one in self.new if needs_lookup(one)]
        locks = [Lock(JOB, keyed)] if keyed else []
        return [*locks, *lane_queues(self.new), NextNumbers(JOB_NUMBERS, len(self.new))]

    def decide(self, work: UnitOfWork) -> list[CreatedJob]:
        return [create_job(work, one) for one in self.new]


def create_job(work: UnitOfWork, new: NewJob) -> CreatedJob:
    """Creates the job unless its unique key exists; restarts a dead one if `on_dead` says so."""
    if needs_lookup(new):
        existing, options = work.get(JOB, new.job_id), new.options
        if existing is not None and _is_restart(existing, options):
            run_at = options.run_at
            event = requeue(existing, run_at=run_at, because=RESTARTED_BECAUSE, now=work.now)
            return CreatedJob(work.record(JOB, existing.id, event), is_new=False)
        if existing is not None and not _is_key_free(existing, options):
            return CreatedJob(existing, is_new=False)
    return CreatedJob(record_creation(work, new), is_new=True)


def needs_lookup(new: NewJob) -> bool:
    return new.unique_key is not None and not new.is_fresh


def _is_restart(existing: Job, options: JobOptions) -> bool:
    return options.on_dead is OnDead.RESTART and existing.status is JobStatus.DEAD


def _is_key_free(existing: Job, options: JobOptions) -> bool:
    return options.unique_scope is UniqueScope.UNFINISHED and existing.is_over


def lane_queues(new: Iterable[NewJob | FollowUp]) -> list[Peek]:
    """The queues whose dead-job policy matters for the new jobs: those with a lane."""
    names = {one.queue for one in new if one.partition is not None and one.queue}
    return [Peek(QUEUE, [queue_id(name) for name in names])] if names else []


def skips_dead(work: UnitOfWork, queue: str) -> bool:
    settings = work.get(QUEUE, queue_id(queue))
    return settings is not None and settings.lanes is DeadJobPolicy.SKIP


def record_creation(work: UnitOfWork, new: NewJob) -> Job:
    options, key, partition = new.options, new.unique_key, new.partition
    created = Job.Created(
        at=work.now,
        job_id=new.job_id,
        number=work.next_number(JOB_NUMBERS),
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
        partition=partition,
        skips=partition is not None and skips_dead(work, new.queue),
        operation_id=new.operation_id,
    )
    return work.record(JOB, new.job_id, created)
