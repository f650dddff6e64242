"""Requests for new jobs, and their creation: one or many, at most once for each unique key."""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, TypeVar
from uuid import UUID, uuid5

from msgspec import Raw, Struct, json

from daybook.domain.command import CommandPriority, Lock, Needs, NextNumbers, Peek, UnitOfWork
from daybook.domain.jobs.job import (
    JOB,
    BoundedOptions,
    Job,
    JobOptions,
    JobStatus,
    NewJob,
    OnDead,
    UniqueScope,
    create,
    requeue,
)
from daybook.domain.jobs.queue import QUEUE, DeadJobPolicy, queue_id
from daybook.domain.values import Instant, Name, Text, check_payload, check_text

JOB_NUMBERS = "job_numbers"
RESTARTED_BECAUSE = "enqueued again under its unique key, with onDead: restart"

_UNIQUE_KEYS = UUID("b1c7d2f4-7f0e-5a3c-8e0b-25f1c9a4d7e2")
_FOLLOW_UPS = UUID("5d9e1b7a-3c44-5f0a-b6c8-91e2f7a0d356")

Options = TypeVar("Options", bound=JobOptions)


def copy_options(kind: type[Options], options: JobOptions, **own: Any) -> Options:
    """The options as another struct, which has fields of its own."""
    for name in kind.__struct_fields__:
        if name not in own:
            own[name] = getattr(options, name)
    return kind(**own)


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

    def new_job(self, job_id: UUID) -> NewJob:
        """The new job; a unique key replaces the given id by a derived one."""
        key = self.unique_key
        if key is not None:
            job_id = unique_id(self.queue, self.type, key)
        return NewJob(job_id, self.queue, self.type, self, self.partition, key)


class DirectJobRequest(JobRequest, frozen=True, kw_only=True, gc=False):
    """A request of `daybook.enqueue`, whose texts and payload no request reader has checked."""

    def __post_init__(self) -> None:
        super().__post_init__()
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
    number = work.next_number(JOB_NUMBERS)
    skips = new.partition is not None and skips_dead(work, new.queue)
    return work.record(JOB, new.job_id, create(new, number=number, skips=skips, now=work.now))
