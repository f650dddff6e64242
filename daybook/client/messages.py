"""Wire types of messages in lanes, and builders of their requests.

A message is pushed into the lane of its queue and partition, popped under a lease, and
acknowledged. Each lane has at most one popped message at a time.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from msgspec.json import Decoder
from msgspec.structs import replace

from daybook.client.jobs import JobOptions, JobStatus, OnDead, Wire
from daybook.client.request import ANSWER_SECONDS_MAX, Request, given, reading, segment, writing
from daybook.errors import OperationFailed

MILLISECONDS = 1000


class NewMessage(JobOptions, frozen=True, kw_only=True):
    queue: str
    partition: str | None = None
    """The lane; messages without one share the default lane of their queue."""

    transaction_id: str | None = None
    """Deduplicates repeated pushes."""

    on_dead: OnDead | None = None
    """If the first message is dead, "restart" restarts it."""

    run_at: datetime | None = None


class Receipt(Wire, frozen=True, kw_only=True):
    """The lane of a pushed message; `duplicate` if its transaction id was known."""

    transaction_id: str
    queue: str
    partition: str
    partition_id: UUID
    status: Literal["created", "duplicate"]


class Pushed(Wire, frozen=True, kw_only=True):
    """`executed`: the messages are in their lanes. `queued`: the service was busy and has stored
    the push; its messages enter their lanes later, in the order of the pushes."""

    status: Literal["executed", "queued"]
    messages: tuple[Receipt, ...] = ()
    operation_id: UUID | None = None
    queue_position: int | None = None
    estimated_wait: float | None = None
    """In seconds."""

    reason: str | None = None


class Message(Wire, frozen=True, kw_only=True):
    """A popped message, leased to this consumer."""

    transaction_id: str
    queue: str
    partition: str
    partition_id: UUID
    lease_id: UUID
    lease_until: datetime
    created_at: datetime
    data: Any = None
    retry_count: int = 0


class Acknowledgment(Wire, frozen=True, kw_only=True):
    transaction_id: str
    partition_id: UUID
    lease_id: UUID
    status: Literal["completed", "failed"]
    error: str | None = None

    @classmethod
    def of(cls, message: Message, error: str | None = None) -> "Acknowledgment":
        """Completed, or failed if there is an error."""
        return cls(
            transaction_id=message.transaction_id,
            partition_id=message.partition_id,
            lease_id=message.lease_id,
            status="completed" if error is None else "failed",
            error=error,
        )


class Acknowledged(Wire, frozen=True, kw_only=True):
    """The message's new status, or the code of the refusal."""

    transaction_id: str
    partition_id: UUID
    status: JobStatus | None = None
    code: str | None = None
    error: str | None = None


class Transacted(Wire, frozen=True, kw_only=True):
    acknowledgments: tuple[Acknowledged, ...]
    messages: tuple[Receipt, ...]


class OperationResult(Wire, frozen=True, kw_only=True):
    messages: tuple[Receipt, ...] = ()


class Operation(Wire, frozen=True, kw_only=True):
    """A deferred push."""

    operation_id: UUID
    status: str
    created_at: datetime
    processed_at: datetime | None = None
    retry_count: int = 0
    attempts_max: int = 0
    error_message: str | None = None
    last_error_at: datetime | None = None
    result: OperationResult | None = None


class _Messages(Wire, frozen=True):
    messages: list[Message]


class _Acknowledgments(Wire, frozen=True):
    acknowledgments: list[Acknowledged]


class _Lease(Wire, frozen=True):
    lease_until: datetime


_POPPED = Decoder(_Messages)
_ACKNOWLEDGED = Decoder(_Acknowledgments)
_LEASE = Decoder(_Lease)


def push(messages: Iterable[NewMessage]) -> Request[Pushed]:
    return writing("/api/v1/push", {"items": [*messages]}, Decoder(Pushed).decode)


def pop(
    queue: str,
    partition: str | None = None,
    *,
    batch: int = 1,
    wait_seconds: float = 0,
    consumer_group: str | None = None,
) -> Request[list[Message]]:
    """Pop the next message of each lane, up to `batch`, or of one lane only."""
    lane = "" if partition is None else f"/partition/{segment(partition)}"
    parameters = {
        "batch": batch,
        "wait": "true" if wait_seconds else None,
        "timeout": round(wait_seconds * MILLISECONDS) if wait_seconds else None,
        "consumerGroup": consumer_group,
    }
    request = reading(
        f"/api/v1/pop/queue/{segment(queue)}{lane}",
        parameters,
        lambda content: _POPPED.decode(content).messages,
    )
    return replace(request, answer_seconds_max=ANSWER_SECONDS_MAX + wait_seconds)


def ack(message: Message, *, error: str | None = None) -> Request[Acknowledged]:
    """Acknowledge a message; with an error it counts as failed and is retried."""
    acknowledgment = Acknowledgment.of(message, error)
    return writing("/api/v1/ack", acknowledgment, Decoder(Acknowledged).decode)


def ack_many(
    acknowledgments: Iterable[Acknowledgment], *, consumer_group: str | None = None
) -> Request[list[Acknowledged]]:
    """Acknowledge up to 1,000 messages, each by itself, in the order given."""
    body = given({"acknowledgments": [*acknowledgments], "consumerGroup": consumer_group})
    return writing(
        "/api/v1/ack/batch", body, lambda content: _ACKNOWLEDGED.decode(content).acknowledgments
    )


def transact(
    acknowledgments: Iterable[Acknowledgment], messages: Iterable[NewMessage]
) -> Request[Transacted]:
    """Acknowledge and push messages in one transaction."""
    body = {"acknowledgments": [*acknowledgments], "items": [*messages]}
    return writing("/api/v1/transaction", body, Decoder(Transacted).decode)


def extend_lease(message: Message, *, seconds: float | None = None) -> Request[datetime]:
    """Extend the lease of a message; returns its new end."""
    request = writing(
        f"/api/v1/lease/{segment(message.lease_id)}/extend",
        given({"seconds": seconds}),
        lambda content: _LEASE.decode(content).lease_until,
    )
    return replace(request, needs_key=False)


def operation(operation_id: UUID | str, *, wait_seconds: float = 0) -> Request[Operation]:
    """Read a deferred push; `wait_seconds` waits for its execution."""
    parameters = {
        "wait": "true" if wait_seconds else None,
        "timeout": round(wait_seconds * MILLISECONDS) if wait_seconds else None,
    }
    path = f"/api/v1/operations/{segment(operation_id)}"
    request = reading(path, parameters, Decoder(Operation).decode)
    return replace(request, answer_seconds_max=ANSWER_SECONDS_MAX + wait_seconds)


def executed_push(pushed: Pushed, operation: Operation) -> Pushed | None:
    """Returns None before the execution; raises OperationFailed for a failed or cancelled one."""
    if operation.status in ("failed", "cancelled"):
        raise OperationFailed(operation.operation_id, operation.status, operation.error_message)
    if operation.result is None:
        return None
    return replace(pushed, status="executed", messages=operation.result.messages)
