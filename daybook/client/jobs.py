"""Jobs and queues as they go over the wire: read from answers, and written into requests."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from threading import Event, Lock
from typing import Any, Literal
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
"""What a dead job means to those behind it in its lane."""

Outcome = Literal["done", "retry", "fail", "snooze", "release"]


class Wire(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """camelCase outside, snake_case here. What an answer has beyond this is passed over, so that
    a newer service does not break an older client."""


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
    """What it is about, such as a booking."""

    unique_key: str | None = None
    unique_scope: UniqueScope | None = None
    partition: str | None = None
    attempts: int = 0
    """Counted when a worker takes it; what was released or snoozed does not count."""

    attempts_max: int = 3
    failures: int = 0
    crashes: int = 0
    interruptions: int = 0
    life: int = 1
    """Every time it is started over by hand is a new one."""

    told_effect_key: str = field(default="", name="effectKey")

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
        """The same for all attempts of one life. Send it along with every effect elsewhere, as its
        Idempotency-Key, and an effect that is tried twice happens once."""
        return self.told_effect_key or f"{self.id}-{self.life}"


class Lost:
    """As a `threading.Event`, which takes as long to make as all the rest of a job: most are never
    waited for, so the one behind it is made for the first who waits."""

    __slots__ = ("_event", "_is_set")
    _making = Lock()

    def __init__(self) -> None:
        self._is_set = False
        self._event: Event | None = None

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        with self._making:
            event = self._event
        if event is not None:
            event.set()

    def wait(self, timeout: float | None = None) -> bool:
        with self._making:
            event = self._event = self._event or Event()
        # Whoever sets it from here on finds the event.
        return self._is_set or event.wait(timeout)


class Claim(Wire, frozen=True, kw_only=True):
    """What a worker names when it reports: the job, and by what right it speaks of it."""

    id: UUID
    claim_id: UUID


class ClaimedJob(Job, frozen=True, kw_only=True):
    """A job that is ours for the time of its lease."""

    # Given again without a default: here they are never missing.
    claim_id: UUID
    lease_until: datetime
    lost: "Lost" = field(default_factory=Lost)
    """Set by a worker as soon as it knows that the claim is no longer held. A handler that runs
    in a thread looks at it now and then, and stops."""


class JobOptions(Wire, frozen=True, kw_only=True):
    """What is not given is for the service to choose."""

    type: str
    payload: Any = None
    priority: int | None = None
    subject: str | None = None
    attempts_max: int | None = None
    lease_seconds: float | None = None
    run_at: datetime | None = None
    partition: str | None = None


class NewJob(JobOptions, frozen=True, kw_only=True):
    queue: str
    unique_key: str | None = None
    """A second job of the same queue and type with this key is not made: the first is given."""

    unique_scope: UniqueScope | None = None
    """For how long: "forever", or while the first is "unfinished"."""

    on_dead: OnDead | None = None
    """If the first is dead: "return" it as it is, or "restart" it with a new life."""


class FollowUp(JobOptions, frozen=True, kw_only=True):
    """A job that the completion of another creates, in the same transaction and exactly once."""

    queue: str | None = None
    """That of the job it follows, if none is given."""


class Result(Wire, frozen=True, kw_only=True):
    """What became of one claim."""

    id: UUID
    claim_id: UUID
    outcome: Outcome
    result: Any = None
    error: str | None = None
    retry_after_seconds: float | None = None
    until: datetime | None = None
    then: Sequence[FollowUp] | Raw = ()


class Reported(Wire, frozen=True, kw_only=True):
    """The answer to one result: the job's new status, or why it was refused."""

    id: UUID
    status: JobStatus | None = None
    code: str | None = None
    error: str | None = None


class Heartbeat(Claim, frozen=True, kw_only=True):
    lease_seconds: float | None = None
    """The job's own, if not given."""


class ExtendedClaim(Claim, frozen=True, kw_only=True):
    lease_until: datetime


class Heartbeats(Wire, frozen=True, kw_only=True):
    held: list[ExtendedClaim]
    lost: list[UUID]
    """The ids of claims that are no longer held."""


class Page(Wire, frozen=True, kw_only=True):
    jobs: list[Job]
    next_cursor: str | None = None


class Rate(Wire, frozen=True, kw_only=True):
    """At most so many starts in so many seconds."""

    count: int
    seconds: float


class Limits(Wire, frozen=True, kw_only=True):
    concurrency: int | None = None
    rate: Rate | None = None


class QueueSettings(Wire, frozen=True, kw_only=True):
    """What is not set stays as it is; None takes a limit away."""

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
    """Where the next request goes on, if there is more."""
