"""Creation of jobs, one or many, at most once for each unique key."""

from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar
from uuid import UUID, uuid5

from msgspec import Raw, Struct, json

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
PRIORITY_USUAL = 5
ATTEMPTS_MAX = 3
LEASE_SECONDS = 90.0

RESTARTED_BECAUSE = "enqueued again under its unique key, with onDead: restart"

_UNIQUE_KEYS = UUID("b1c7d2f4-7f0e-5a3c-8e0b-25f1c9a4d7e2")
_FOLLOW_UPS = UUID("5d9e1b7a-3c44-5f0a-b6c8-91e2f7a0d356")


class NewJob(Struct, frozen=True, kw_only=True, gc=False):
    job_id: UUID
    queue: str  # Empty in a follow-up that inherits the queue of its predecessor
    type: str
    payload: Raw = NULL
    priority: int = PRIORITY_USUAL
    attempts_max: int = ATTEMPTS_MAX
    lease_seconds: float = LEASE_SECONDS
    run_at: datetime | None = None
    subject: str | None = None
    unique_key: str | None = None
    unique_scope: UniqueScope | None = None
    on_dead: OnDead = OnDead.RETURN
    partition: str | None = None
    is_fresh: bool = False  # The unique key cannot exist yet, so the lookup is skipped
    operation_id: UUID | None = None
    """The deferred push that creates the job; the job takes its position in the lane."""


class JobValues(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A new job as callers describe it, within bounds. `convert` raises a ValidationError
    otherwise."""

    queue: Name
    type: Name
    payload: Raw
    priority: Priority = PRIORITY_USUAL
    attempts_max: Attempts = ATTEMPTS_MAX
    lease_seconds: LeaseSeconds = LEASE_SECONDS
    run_at: Instant | None = None
    subject: Text | None = None
    unique_key: Text | None = None
    unique_scope: UniqueScope = UniqueScope.FOREVER
    on_dead: OnDead = OnDead.RETURN
    partition: Text | None = None

    def __post_init__(self) -> None:
        check_instant(self.run_at)
        check_payload(self.payload)
        for text in (self.subject, self.unique_key, self.partition):
            check_text(text)

    def new_job(self, job_id: UUID) -> NewJob:
        """The new job; a unique key replaces the given id by a derived one."""
        key = self.unique_key
        return NewJob(
            job_id=job_id if key is None else unique_id(self.queue, self.type, key),
            queue=self.queue,
            type=self.type,
            payload=self.payload,
            priority=self.priority,
            attempts_max=self.attempts_max,
            lease_seconds=self.lease_seconds,
            run_at=self.run_at,
            subject=self.subject,
            unique_key=key,
            unique_scope=None if key is None else self.unique_scope,
            on_dead=self.on_dead,
            partition=self.partition,
        )


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
        existing = work.get(JOB, new.job_id)
        if existing is not None and _is_restart(existing, new):
            event = requeue(existing, run_at=new.run_at, because=RESTARTED_BECAUSE, now=work.now)
            return CreatedJob(work.record(JOB, existing.id, event), is_new=False)
        if existing is not None and not _is_key_free(existing, new):
            return CreatedJob(existing, is_new=False)
    return CreatedJob(record_creation(work, new, new.job_id, new.queue), is_new=True)


def needs_lookup(new: NewJob) -> bool:
    return new.unique_key is not None and not new.is_fresh


def _is_restart(existing: Job, new: NewJob) -> bool:
    return new.on_dead is OnDead.RESTART and existing.status is JobStatus.DEAD


def _is_key_free(existing: Job, new: NewJob) -> bool:
    return new.unique_scope is UniqueScope.UNFINISHED and existing.is_over


def lane_queues(new: Sequence[NewJob]) -> list[Peek]:
    """The queues whose dead-job policy matters for the new jobs: those with a lane."""
    names = {one.queue for one in new if one.partition is not None and one.queue}
    return [Peek(QUEUE, [queue_id(name) for name in names])] if names else []


def skips_dead(work: UnitOfWork, queue: str) -> bool:
    settings = work.get(QUEUE, queue_id(queue))
    return settings is not None and settings.lanes is DeadJobPolicy.SKIP


def record_creation(work: UnitOfWork, new: NewJob, job_id: UUID, queue: str) -> Job:
    created = Job.Created(
        at=work.now,
        job_id=job_id,
        number=work.next_number(JOB_NUMBERS),
        queue=queue,
        type=new.type,
        payload=new.payload,
        priority=new.priority,
        attempts_max=new.attempts_max,
        lease_seconds=new.lease_seconds,
        run_at=new.run_at,
        subject=new.subject,
        unique_key=new.unique_key,
        unique_scope=new.unique_scope,
        partition=new.partition,
        skips=new.partition is not None and skips_dead(work, queue),
        operation_id=new.operation_id,
    )
    return work.record(JOB, job_id, created)
