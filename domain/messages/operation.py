"""An operation: a push that was accepted under load and is executed later.

One event stores the whole request. The operation keeps its position in its lanes: messages it
creates later precede all messages that arrived after it.
"""

from datetime import datetime
from enum import StrEnum
from typing import ClassVar
from uuid import UUID

from msgspec import Raw, field

from daybook.domain.backoff import Backoff
from daybook.domain.errors import OperationNotFailedError, OperationOverError
from daybook.domain.event import Decider, Event, State, add_seconds, events_of
from daybook.domain.jobs.job import JobOptions, NewJob, OnDead
from daybook.domain.jobs.lane import lane_id
from daybook.domain.messages.message import MESSAGE_TYPE

ATTEMPTS_MAX = 3


class OperationKind(StrEnum):
    PUSH = "PUSH"


class OperationStatus(StrEnum):
    """Execution is one transaction, so there is no "running"."""

    PENDING = "pending"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Message(JobOptions, frozen=True, kw_only=True, gc=False):
    """A job of a lane. Stored in events as decided: only later fields have a default; without
    bounds, because events of older versions must load."""

    job_id: UUID
    queue: str
    partition: str
    unique_key: str
    payload: Raw
    priority: int
    attempts_max: int
    lease_seconds: float
    run_at: datetime | None
    is_fresh: bool
    # A factory, because a default would be omitted from stored events and rows.
    on_dead: OnDead = field(default_factory=lambda: OnDead.RETURN)

    def new_job(self, operation_id: UUID | None = None) -> NewJob:
        return NewJob(
            self.job_id,
            self.queue,
            MESSAGE_TYPE,
            self,
            self.partition,
            self.unique_key,
            self.is_fresh,
            operation_id,
        )


class Operation(State, frozen=True, kw_only=True, gc=False):
    number: int
    kind: OperationKind
    items: tuple[Message, ...]
    status: OperationStatus
    created_at: datetime
    updated_at: datetime
    attempts_max: int = ATTEMPTS_MAX
    failures: int = 0
    error: str | None = None
    failed_at: datetime | None = None  # Time of the last failure
    run_at: datetime | None = None  # Time of the next attempt after a failure
    duplicates: tuple[int, ...] = ()  # Indexes of items that existed already
    skipped: tuple[str, ...] = ()
    """Queues whose lanes continued without it: its position there is lost."""

    class Created(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "operation.created"
        operation_id: UUID
        number: int
        kind: OperationKind
        items: tuple[Message, ...]
        attempts_max: int = ATTEMPTS_MAX

    class Failed(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "operation.failed"
        error: str
        retry_at: datetime
        attempt: int | None = None

    class GivenUp(Event, frozen=True, kw_only=True, gc=False):
        """Failed for the last time; an operator retries or cancels it."""

        topic: ClassVar[str] = "operation.given_up"
        error: str
        attempt: int
        skipped: tuple[str, ...]

    class Requeued(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "operation.requeued"
        number: int
        because: str | None = None

    class Cancelled(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "operation.cancelled"
        because: str | None = None

    class Completed(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "operation.completed"
        duplicates: tuple[int, ...] = ()

    @property
    def is_over(self) -> bool:
        return self.status in (OperationStatus.COMPLETED, OperationStatus.CANCELLED)

    @property
    def queues(self) -> set[str]:
        return {item.queue for item in self.items}

    @property
    def lanes(self) -> set[tuple[str, str]]:
        """Lanes in which it has a position."""
        if self.is_over:
            return set()
        return {
            (item.queue, item.partition) for item in self.items if item.queue not in self.skipped
        }


def complete(
    operation: Operation, *, duplicates: tuple[int, ...], now: datetime
) -> Operation.Completed:
    require_pending(operation)
    return Operation.Completed(at=now, duplicates=duplicates)


def fail(
    operation: Operation,
    *,
    error: str,
    skipped: tuple[str, ...],
    jitter: float,
    backoff: Backoff,
    now: datetime,
) -> Operation.Failed | Operation.GivenUp:
    """Retries after a backoff, or gives up. On giving up, the lanes of `skipped` queues continue;
    the others wait until an operator retries or cancels the operation."""
    require_pending(operation)
    attempt = operation.failures + 1
    if attempt >= operation.attempts_max:
        return Operation.GivenUp(at=now, error=error, attempt=attempt, skipped=skipped)
    retry_at = add_seconds(now, backoff.seconds(attempt, jitter))
    return Operation.Failed(at=now, error=error, retry_at=retry_at, attempt=attempt)


def retry(
    operation: Operation, *, number: int, because: str | None, now: datetime
) -> Operation.Requeued:
    """Restarts with a new number: numbers measure the backlog."""
    if operation.status is not OperationStatus.FAILED:
        raise OperationNotFailedError(operation.id, operation.status)
    return Operation.Requeued(at=now, number=number, because=because)


def cancel(operation: Operation, *, because: str | None, now: datetime) -> Operation.Cancelled:
    if operation.is_over:
        raise OperationOverError(operation.id, operation.status)
    return Operation.Cancelled(at=now, because=because)


def require_pending(operation: Operation) -> None:
    if operation.status is not OperationStatus.PENDING:
        raise OperationOverError(operation.id, operation.status)


def evolve(operation: Operation | None, event: Event) -> Operation:
    if isinstance(event, Operation.Created):
        return Operation(
            id=event.operation_id,
            version=1,
            number=event.number,
            kind=event.kind,
            items=event.items,
            attempts_max=event.attempts_max,
            status=OperationStatus.PENDING,
            created_at=event.at,
            updated_at=event.at,
        )
    assert operation is not None, f"{event} is the first event of an operation"
    match event:
        case Operation.Failed():
            return operation.after(
                event,
                failures=operation.failures + 1,
                error=event.error,
                failed_at=event.at,
                run_at=event.retry_at,
            )
        case Operation.GivenUp():
            return operation.after(
                event,
                status=OperationStatus.FAILED,
                failures=operation.failures + 1,
                error=event.error,
                failed_at=event.at,
                run_at=None,
                skipped=tuple(sorted({*operation.skipped, *event.skipped})),
            )
        case Operation.Requeued():
            return operation.after(
                event, status=OperationStatus.PENDING, number=event.number, failures=0
            )
        case Operation.Cancelled():
            return operation.after(event, status=OperationStatus.CANCELLED, run_at=None)
        case Operation.Completed():
            return operation.after(
                event,
                status=OperationStatus.COMPLETED,
                duplicates=event.duplicates,
                run_at=None,
                error=None,
                failed_at=None,
            )
    raise AssertionError(f"unknown operation event {event}")


OPERATION: Decider[Operation] = Decider(
    name="operation",
    state=Operation,
    events=events_of(Operation),
    evolve=evolve,
    finished=lambda operation: operation.is_over,
    related_ids=lambda operation: [lane_id(*lane) for lane in operation.lanes],
)
