"""Wire types of jobs and queues, for requests and responses."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from threading import Event, Lock
from typing import Any, Literal, TypedDict
from uuid import UUID

from msgspec import UNSET, Raw, Struct, UnsetType, field


class JobStatus(StrEnum):
    PENDING = "PENDING"
    PROCESSING = "PROCESSING"
    COMPLETED = "COMPLETED"
    DEAD = "DEAD"
    CANCELLED = "CANCELLED"


UniqueScope = Literal["forever", "unfinished"]
OnDead = Literal["return", "restart"]
Lanes = Literal["block", "skip"]
"""Whether a dead job blocks the jobs behind it in its lane."""

Outcome = Literal["done", "retry", "fail", "snooze", "release"]


class Wire(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """camelCase in JSON, snake_case in Python. Unknown members are ignored, so that a newer service
    does not break an older client."""


class Job(Wire, frozen=True, kw_only=True):
    id: UUID
    queue: str
    type: str
    status: JobStatus
    created_at: datetime
    priority: int = 5
    """From 1, the most urgent, to 10."""

    payload: Any = None
    subject: str | None = None
    """The entity that the job concerns, such as a booking."""

    unique_key: str | None = None
    unique_scope: UniqueScope | None = None
    partition: str | None = None
    tags: tuple[str, ...] = ()
    attempts: int = 0
    """Counted at each claim; released and snoozed attempts do not count."""

    attempts_max: int = 3
    failures: int = 0
    crashes: int = 0
    interruptions: int = 0
    life: int = 1
    """Incremented by each manual restart."""

    sent_effect_key: str = field(default="", name="effectKey")
    lease_seconds: float = 90.0
    run_at: datetime | None = None
    claim_id: UUID | None = None
    worker_id: str | None = None
    started_at: datetime | None = None
    lease_until: datetime | None = None
    result: Any = None
    error: str | None = None
    updated_at: datetime | None = None
    finished_at: datetime | None = None
    version: int = 0

    @property
    def effect_key(self) -> str:
        """The same for all attempts of one life. Send it as the Idempotency-Key of requests to
        other systems, so that a repeated attempt has one effect."""
        return self.sent_effect_key or f"{self.id}-{self.life}"


class Lost:
    """Like a `threading.Event`, which takes as long to create as the rest of a job. Most are never
    waited for, so the event is created by the first `wait`."""

    __slots__ = ("_event", "_is_set")
    _creation_lock = Lock()

    def __init__(self) -> None:
        self._is_set = False
        self._event: Event | None = None

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        with self._creation_lock:
            event = self._event
        if event is not None:
            event.set()

    def wait(self, timeout: float | None = None) -> bool:
        with self._creation_lock:
            event = self._event = self._event or Event()
        # From here on, `set` finds the event.
        return self._is_set or event.wait(timeout)


class Claim(Wire, frozen=True, kw_only=True):
    """A job id with the claim id, which every report of a worker carries."""

    id: UUID
    claim_id: UUID


class ClaimedJob(Job, frozen=True, kw_only=True):
    """A job leased to this worker."""

    # Redeclared without defaults: a claimed job always has them.
    claim_id: UUID
    lease_until: datetime
    lost: "Lost" = field(default_factory=Lost)
    """Set by the worker when the claim is lost. A handler in a thread should check it regularly
    and stop."""


class JobOptions(Wire, frozen=True, kw_only=True):
    """Omitted options get the service's defaults."""

    payload: Any = None
    priority: int | None = None
    attempts_max: int | None = None
    lease_seconds: float | None = None
    tags: Sequence[str] | None = None


class JobDescription(JobOptions, frozen=True, kw_only=True):
    type: str
    subject: str | None = None
    run_at: datetime | None = None
    partition: str | None = None


class NewJob(JobDescription, frozen=True, kw_only=True):
    queue: str
    unique_key: str | None = None
    """A second job of the same queue and type with this key returns the first one."""

    unique_scope: UniqueScope | None = None
    """"forever", or only while the first job is "unfinished"."""

    on_dead: OnDead | None = None
    """If the first job is dead: "return" it, or "restart" it with a new life."""


class EnqueueOptions(TypedDict, total=False):
    """The optional fields of `NewJob`, as keyword arguments. None is as good as omitted."""

    priority: int | None
    subject: str | None
    unique_key: str | None
    unique_scope: UniqueScope | None
    on_dead: OnDead | None
    attempts_max: int | None
    lease_seconds: float | None
    run_at: datetime | None
    partition: str | None
    tags: Sequence[str] | None


class JobFilter(TypedDict, total=False):
    """The filters of a list of jobs, as keyword arguments. None means any."""

    queue: str | None
    status: JobStatus | None
    type: str | None
    subject: str | None
    tag: str | None


class FollowUp(JobDescription, frozen=True, kw_only=True):
    """A job that the completion of another creates, in the same transaction and exactly once."""

    queue: str | None = None
    """By default the queue of the completed job."""


class Result(Wire, frozen=True, kw_only=True):
    """The outcome of one claim."""

    id: UUID
    claim_id: UUID
    outcome: Outcome
    result: Any = None
    error: str | None = None
    retry_after_seconds: float | None = None
    until: datetime | None = None
    then: Sequence[FollowUp] | Raw = ()


class Reported(Wire, frozen=True, kw_only=True):
    """The response to one result: the job's new status, or the code of the refusal."""

    id: UUID
    status: JobStatus | None = None
    code: str | None = None
    error: str | None = None


class Heartbeat(Claim, frozen=True, kw_only=True):
    lease_seconds: float | None = None
    """By default the job's own."""


class ExtendedClaim(Claim, frozen=True, kw_only=True):
    lease_until: datetime


class Heartbeats(Wire, frozen=True, kw_only=True):
    held: list[ExtendedClaim]
    lost: list[UUID]
    """Ids of lost claims."""


class Page(Wire, frozen=True, kw_only=True):
    jobs: list[Job]
    next_cursor: str | None = None


class Rate(Wire, frozen=True, kw_only=True):
    """At most `count` starts in `seconds`."""

    count: int
    seconds: float


class Limits(Wire, frozen=True, kw_only=True):
    concurrency: int | None = None
    rate: Rate | None = None


class QueueSettings(Wire, frozen=True, kw_only=True):
    """Unset members do not change; None removes a limit."""

    paused: bool | UnsetType = UNSET
    concurrency: int | UnsetType | None = UNSET
    rate: Rate | UnsetType | None = UNSET
    per_subject: Limits | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    lanes: Lanes | UnsetType = UNSET


class Queue(Wire, frozen=True, kw_only=True):
    name: str
    paused: bool = False
    concurrency: int | None = None
    rate: Rate | None = None
    per_subject: Limits | None = None
    lanes: Lanes = "block"
    pending: int = 0
    scheduled: int = 0
    behind: int = 0
    processing: int = 0
    dead: int = 0


class Redriven(Wire, frozen=True, kw_only=True):
    matched: int
    redriven: int
    more: bool = False
    next_cursor: str | None = None
    """The `cursor` of the next request, if there is more."""
