"""An operation: a request that was accepted while the service was busy, and is carried out later.

It is one event for the whole request, whatever that asks for. Its place in the lanes it touches is
that of this event: what it brings in later stands there, before everything that came after it.
"""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, ClassVar, Self
from uuid import UUID

from msgspec import Raw, Struct
from msgspec.structs import replace

from domain.errors import OperationOverError
from domain.event import Decider, Event, events_of
from domain.job import Backoff


class OperationKind(StrEnum):
    PUSH = "PUSH"


class OperationStatus(StrEnum):
    PENDING = "pending"
    COMPLETED = "completed"


class Message(Struct, frozen=True, kw_only=True, gc=False):
    """Stored in events as it was decided, so nothing here has a default."""

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


class Operation(Struct, frozen=True, kw_only=True, gc=False):
    id: UUID
    version: int
    number: int
    kind: OperationKind
    items: tuple[Message, ...]
    status: OperationStatus
    created_at: datetime
    updated_at: datetime
    failures: int = 0
    error: str | None = None
    run_at: datetime | None = None
    """Not to be tried before, after a failure."""

    duplicates: tuple[int, ...] = ()
    """Places of the items that were there already."""

    class Created(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "operation.created"
        operation_id: UUID
        number: int
        kind: OperationKind
        items: tuple[Message, ...]

    class Failed(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "operation.failed"
        error: str
        retry_at: datetime

    class Completed(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "operation.completed"
        duplicates: tuple[int, ...] = ()

    def after(self, event: Event, **changes: Any) -> Self:
        return replace(self, version=self.version + 1, updated_at=event.at, **changes)

    @property
    def is_over(self) -> bool:
        return self.status is OperationStatus.COMPLETED

    @property
    def lanes(self) -> set[tuple[str, str]]:
        return {(item.queue, item.partition) for item in self.items}


def complete(
    operation: Operation, *, duplicates: tuple[int, ...], now: datetime
) -> Operation.Completed:
    refuse_over(operation)
    return Operation.Completed(at=now, duplicates=duplicates)


def fail(
    operation: Operation, *, error: str, jitter: float, backoff: Backoff, now: datetime
) -> Operation.Failed:
    """It is tried again for ever: what was accepted is carried out, and what stands behind it in
    its lanes waits for it."""
    refuse_over(operation)
    rest_seconds = backoff.seconds(operation.failures + 1, jitter)
    return Operation.Failed(at=now, error=error, retry_at=now + timedelta(seconds=rest_seconds))


def refuse_over(operation: Operation) -> None:
    if operation.is_over:
        raise OperationOverError(operation.id)


def evolve(operation: Operation | None, event: Event) -> Operation:
    if isinstance(event, Operation.Created):
        return Operation(
            id=event.operation_id,
            version=1,
            number=event.number,
            kind=event.kind,
            items=event.items,
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
                run_at=event.retry_at,
            )
        case Operation.Completed():
            return operation.after(
                event,
                status=OperationStatus.COMPLETED,
                duplicates=event.duplicates,
                run_at=None,
                error=None,
            )
    raise AssertionError(f"an operation does not know {event}")


OPERATION: Decider[Operation] = Decider(
    name="operation",
    state=Operation,
    events=events_of(Operation),
    evolve=evolve,
    finished=lambda operation: operation.is_over,
)
