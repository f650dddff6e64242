"""The commands of the workshop: what can be done with jobs and their queues.

Jobs come and go by the thousand, so a command is about many at once. Each of them is decided by
itself: what is refused for one stops no other.
"""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import TypeVar
from uuid import UUID, uuid5

from msgspec import UNSET, Raw, Struct, UnsetType, json

from domain import job as jobs
from domain.desk import Desk, Reads
from domain.errors import (
    ClaimLostError,
    JobNotDeadError,
    LeaseHeldError,
    NotFoundError,
    Refusal,
)
from domain.event import Decider, Event
from domain.job import JOB, NULL, Backoff, FailureReason, Job, JobStatus, UniqueScope
from domain.queue import QUEUE, Lanes, Limits, Queue, Rate, queue_id

T = TypeVar("T")

JOB_NUMBERS = "job_numbers"
PRIORITY_USUAL = 5
ATTEMPTS_MAX = 3
LEASE_SECONDS = 90.0
BACKOFF = Backoff()

_UNIQUE_KEYS = UUID("b1c7d2f4-7f0e-5a3c-8e0b-25f1c9a4d7e2")
_FOLLOW_UPS = UUID("5d9e1b7a-3c44-5f0a-b6c8-91e2f7a0d356")


class NewJob(Struct, frozen=True, kw_only=True, gc=False):
    job_id: UUID
    queue: str
    """Empty in a follow-up that goes into the queue of the job before it."""

    type: str
    payload: Raw = NULL
    priority: int = PRIORITY_USUAL
    attempts_max: int = ATTEMPTS_MAX
    lease_seconds: float = LEASE_SECONDS
    run_at: datetime | None = None
    subject: str | None = None
    unique_key: str | None = None
    unique_scope: UniqueScope | None = None
    partition: str | None = None
    is_fresh: bool = False
    """Whether nobody else can have used its unique key, so that nobody needs to look."""

    operation_id: UUID | None = None
    """What brings it in, if that was accepted before: then it has that one's place in its lane."""


class Enqueued(Struct, frozen=True, gc=False):
    job: Job
    is_new: bool
    """False when the unique key stands for a job already."""


class Selector(Struct, frozen=True, gc=False):
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


class Result(Struct, frozen=True, kw_only=True, gc=False):
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


class Settled(Struct, frozen=True, gc=False):
    """What one of many was told."""

    job_id: UUID
    answer: Job | Refusal


def unique_id(queue: str, type_: str, key: str) -> UUID:
    """A unique key stands for one job, so the job's id follows from it: the log itself, in which
    an id begins once, keeps a second from being made."""
    return uuid5(_UNIQUE_KEYS, json.encode((queue, type_, key)).decode())


def follow_up_id(job: Job, place: int) -> UUID:
    return uuid5(_FOLLOW_UPS, f"{job.effect_key}-{place}")


class CreateJobs(Struct, frozen=True, gc=False):
    new: Sequence[NewJob]

    @property
    def reads(self) -> Reads:
        keyed = tuple((JOB, one.job_id) for one in self.new if _may_be_known(one))
        seen = _queues_of(self.new)
        return Reads(names=keyed, seen=seen, draws=((JOB_NUMBERS, len(self.new)),), can_wait=True)

    def decide(self, desk: Desk) -> list[Enqueued]:
        return [create_job(desk, one) for one in self.new]


class ClaimJobs(Struct, frozen=True, kw_only=True, gc=False):
    """A worker takes the most urgent jobs it can do."""

    selector: Selector
    worker: str
    limit: int
    claim_id: UUID
    """Of the first; the others count on from it."""

    lease_seconds: float | None = None

    @property
    def reads(self) -> Reads:
        return Reads(ready=JOB, ready_count=self.limit, among=self.selector)

    def decide(self, desk: Desk) -> list[Job]:
        claimed: list[Job] = []
        while len(claimed) < self.limit:
            job = desk.take_ready(JOB, self.selector)
            if job is None:
                break
            event = jobs.claim(
                job,
                claim_id=UUID(int=self.claim_id.int + len(claimed)),
                worker=self.worker,
                lease_seconds=self.lease_seconds,
                now=desk.now,
            )
            claimed.append(desk.record(JOB, job.id, event))
        return claimed


class FinishJobs(Struct, frozen=True, kw_only=True, gc=False):
    results: Sequence[Result]
    jitter: float
    """Which part of the backoff is rested, from 0 to 1."""

    backoff: Backoff = BACKOFF

    @property
    def reads(self) -> Reads:
        names = tuple([(JOB, one.job_id) for one in self.results])
        follow_ups = [new for one in self.results for new in one.then]
        if not follow_ups:
            return Reads(names=names)
        # Which queue it is that is not named shows only once the job before it is there.
        unnamed = any(new.partition is not None and not new.queue for new in follow_ups)
        return Reads(
            names=names,
            seen=_queues_of(follow_ups),
            seen_all=(QUEUE,) if unnamed else (),
            draws=((JOB_NUMBERS, len(follow_ups)),),
        )

    def decide(self, desk: Desk) -> list[Settled]:
        settled: list[Settled] = []
        for result in self.results:
            try:
                settled.append(Settled(result.job_id, self._finish(desk, result)))
            except Refusal as refusal:
                settled.append(Settled(result.job_id, refusal))
        return settled

    def _finish(self, desk: Desk, result: Result) -> Job:
        job = _job(desk, result.job_id)
        if result.worker not in (None, job.lease and job.lease.worker):
            raise ClaimLostError("job", job.id, result.claim_id)
        if result.outcome is Outcome.DONE:
            event = jobs.complete(
                job,
                claim_id=result.claim_id,
                result=result.result,
                follow_ups_count=len(result.then),
                now=desk.now,
            )
            job = desk.record(JOB, job.id, event)
            for place, new in enumerate(result.then):
                _create(desk, new, follow_up_id(job, place), new.queue or job.queue)
            return job
        return _record(desk, job, self._not_done(desk, job, result))

    def _not_done(self, desk: Desk, job: Job, result: Result) -> Sequence[Event]:
        claim_id, now = result.claim_id, desk.now
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
    def reads(self) -> Reads:
        return self.finish.reads

    def decide(self, desk: Desk) -> Job:
        (settled,) = self.finish.decide(desk)
        if isinstance(settled.answer, Refusal):
            raise settled.answer
        return settled.answer


class ExpireLease(Struct, frozen=True, kw_only=True, gc=False):
    """The worker has not been heard of until its lease was over."""

    job_id: UUID
    claim_id: UUID
    jitter: float
    backoff: Backoff = BACKOFF

    @property
    def reads(self) -> Reads:
        return Reads(names=((JOB, self.job_id),))

    def decide(self, desk: Desk) -> Job:
        job = _job(desk, self.job_id)
        lease = jobs.held_by(job, self.claim_id)
        if desk.now < lease.until:
            raise LeaseHeldError(job.id)
        failed = jobs.fail(
            job,
            claim_id=self.claim_id,
            error=f"the lease of worker {lease.worker} expired",
            reason=FailureReason.LEASE_EXPIRED,
            retryable=True,
            rest_seconds=self.backoff.seconds(job.failures + job.crashes + 1, self.jitter),
            now=desk.now,
        )
        return _record(desk, job, failed)


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
    def reads(self) -> Reads:
        return Reads(names=tuple([(JOB, job_id) for job_id in self.job_ids]))

    def decide(self, desk: Desk) -> list[Settled]:
        times: Sequence[datetime | None] = self.run_at or [None] * len(self.job_ids)
        settled: list[Settled] = []
        for job_id, run_at in zip(self.job_ids, times, strict=True):
            try:
                settled.append(Settled(job_id, self._retry(desk, job_id, run_at)))
            except Refusal as refusal:
                settled.append(Settled(job_id, refusal))
        return settled

    def _retry(self, desk: Desk, job_id: UUID, run_at: datetime | None) -> Job:
        job = _job(desk, job_id)
        if job.status is not JobStatus.DEAD:
            raise JobNotDeadError(job.id, job.status)
        requeued = jobs.requeue(job, run_at=run_at, because=self.because, now=desk.now)
        return desk.record(JOB, job_id, requeued)


class RetryJob(Struct, frozen=True, gc=False):
    job_id: UUID
    because: str | None = None

    @property
    def reads(self) -> Reads:
        return Reads(names=((JOB, self.job_id),))

    def decide(self, desk: Desk) -> Job:
        job = _job(desk, self.job_id)
        requeued = jobs.requeue(job, because=self.because, now=desk.now)
        return desk.record(JOB, job.id, requeued)


class CancelJob(Struct, frozen=True, gc=False):
    job_id: UUID
    because: str | None = None

    @property
    def reads(self) -> Reads:
        return Reads(names=((JOB, self.job_id),))

    def decide(self, desk: Desk) -> Job:
        job = _job(desk, self.job_id)
        cancelled = jobs.cancel(job, because=self.because, now=desk.now)
        return desk.record(JOB, job.id, cancelled)


class ConfigureQueue(Struct, frozen=True, kw_only=True, gc=False):
    """What is not set stays as it is."""

    name: str
    paused: bool | UnsetType = UNSET
    concurrency: int | UnsetType | None = UNSET
    rate: Rate | UnsetType | None = UNSET
    per_subject: Limits | UnsetType = UNSET
    lanes: Lanes | UnsetType = UNSET
    because: str | None = None

    @property
    def reads(self) -> Reads:
        return Reads(names=((QUEUE, queue_id(self.name)),))

    def decide(self, desk: Desk) -> Queue:
        queue = desk.get(QUEUE, queue_id(self.name))
        paused = queue.paused if queue else False
        limits, per_subject = (queue.limits, queue.per_subject) if queue else (Limits(), Limits())
        lanes = queue.lanes if queue else Lanes.BLOCK
        configured = Queue.Configured(
            at=desk.now,
            name=self.name,
            paused=_chosen(self.paused, paused),
            limits=Limits(
                _chosen(self.concurrency, limits.concurrency), _chosen(self.rate, limits.rate)
            ),
            per_subject=_chosen(self.per_subject, per_subject),
            lanes=_chosen(self.lanes, lanes),
            because=self.because,
        )
        return desk.record(QUEUE, queue_id(self.name), configured)


def _chosen(given: T | UnsetType, otherwise: T) -> T:
    return otherwise if isinstance(given, UnsetType) else given


def create_job(desk: Desk, new: NewJob) -> Enqueued:
    """Unless its unique key stands for one already."""
    if _may_be_known(new):
        existing = desk.get(JOB, new.job_id)
        if existing is not None and not _may_begin_anew(existing, new):
            return Enqueued(existing, is_new=False)
    return Enqueued(_create(desk, new, new.job_id, new.queue), is_new=True)


def _may_be_known(new: NewJob) -> bool:
    return new.unique_key is not None and not new.is_fresh


def _may_begin_anew(existing: Job, new: NewJob) -> bool:
    return new.unique_scope is UniqueScope.UNFINISHED and existing.is_over


def _queues_of(new: Sequence[NewJob]) -> tuple[tuple[Decider[Queue], UUID], ...]:
    """The queues that are named, and of which it matters what they say of their lanes."""
    names = {one.queue for one in new if one.partition is not None and one.queue}
    return tuple([(QUEUE, queue_id(name)) for name in names])


def _skips(desk: Desk, queue: str, partition: str | None) -> bool:
    if partition is None:
        return False
    settings = desk.get(QUEUE, queue_id(queue))
    return settings is not None and settings.lanes is Lanes.SKIP


def _create(desk: Desk, new: NewJob, job_id: UUID, queue: str) -> Job:
    created = Job.Created(
        at=desk.now,
        job_id=job_id,
        number=desk.draw(JOB_NUMBERS),
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
        skips=_skips(desk, queue, new.partition),
        operation_id=new.operation_id,
    )
    return desk.record(JOB, job_id, created)


def _job(desk: Desk, job_id: UUID) -> Job:
    job = desk.get(JOB, job_id)
    if job is None:
        raise NotFoundError("job", job_id)
    return job


def _record(desk: Desk, job: Job, events: Sequence[Event]) -> Job:
    for event in events:
        job = desk.record(JOB, job.id, event)
    return job
