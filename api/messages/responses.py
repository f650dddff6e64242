"""Messages as they go over the wire: what pushers and consumers say, and what they are told."""

from typing import Annotated, Any, Literal, NotRequired, TypedDict
from uuid import UUID

import orjson
from msgspec import Meta, Raw, field

from daybook.api.endpoints.command import Body
from daybook.api.http.problems import reason_of
from daybook.api.http.request_reader import BATCH_MAX, Id
from daybook.api.http.timestamps import Moment, moment
from daybook.domain.jobs.create import ATTEMPTS_MAX, LEASE_SECONDS, PRIORITY_USUAL, CreatedJob
from daybook.domain.jobs.job import NULL, Job, JobStatus, OnDead
from daybook.domain.jobs.work import JobOutcome
from daybook.domain.messages.commands import DeferReason, PushDeferred
from daybook.domain.messages.message import partition_id, transaction_id
from daybook.domain.patterns import whole
from daybook.domain.values import (
    KEY_CHARACTERS_MAX,
    Attempts,
    Error,
    Instant,
    LeaseSeconds,
    Name,
    Priority,
    Text,
    check_instant,
)

# A partition is also a part of a path.
Partition = Annotated[
    str, Meta(min_length=1, max_length=KEY_CHARACTERS_MAX, pattern=whole("[^/]+"))
]


def _null() -> Raw:
    return NULL


class Item(Body, frozen=True):
    queue: Name
    payload: Raw = field(default_factory=_null)
    partition: Partition | None = None
    transaction_id: Text | None = None
    on_dead: OnDead = OnDead.RETURN
    """Policy for a dead message of this transaction id: leave it dead, or start it over as it is,
    with its own payload and a new life. Either way it is a `duplicate`."""

    priority: Priority = PRIORITY_USUAL
    attempts_max: Attempts = ATTEMPTS_MAX
    lease_seconds: LeaseSeconds = LEASE_SECONDS
    run_at: Instant | None = None
    trace_id: Text | None = None
    """Taken because clients of the protocol send it, and not kept: see the header traceparent."""

    def __post_init__(self) -> None:
        check_instant(self.run_at)


Items = Annotated[list[Item], Meta(min_length=1, max_length=BATCH_MAX)]


class Pushed(Body, frozen=True):
    items: Items


class Acknowledgment(Body, frozen=True):
    transaction_id: Text
    partition_id: Id
    lease_id: Id
    status: Literal["completed", "failed"]
    error: Error | None = ""
    consumer_group: Text | None = None
    """The group that popped it; a message that another group holds is refused."""


Acknowledgments = Annotated[list[Acknowledgment], Meta(min_length=1, max_length=BATCH_MAX)]


class Acknowledged(Body, frozen=True):
    acknowledgments: Acknowledgments
    consumer_group: Text | None = None
    """The group that popped them; a message that another group holds is refused."""


class Transaction(Body, frozen=True):
    acknowledgments: Acknowledgments
    items: Items
    consumer_group: Text | None = None
    required_leases: Annotated[list[Id], Meta(max_length=BATCH_MAX)] = field(default_factory=list)
    """Leases that must hold: each is that of one of the acknowledgments."""


class ReceiptJSON(TypedDict):
    """`duplicate` when the transaction id stands for a message already."""

    transactionId: str
    queue: str
    partition: str | None
    partitionId: UUID
    status: Literal["created", "duplicate"]


class PushAnswer(TypedDict):
    status: Literal["executed"]
    messages: list[ReceiptJSON]


class QueuedAnswer(TypedDict):
    """Accepted, and safe: it is carried out when those before it are. `estimatedWait` is in
    seconds."""

    status: Literal["queued"]
    operationId: UUID
    queuePosition: int
    estimatedWait: float
    reason: DeferReason


class MessageJSON(TypedDict):
    transactionId: str
    queue: str
    partition: str | None
    partitionId: UUID
    leaseId: UUID
    leaseUntil: Moment
    data: Any
    createdAt: Moment
    retryCount: int


class PopAnswer(TypedDict):
    messages: list[MessageJSON]


class AckJSON(TypedDict):
    """How the message stands now; or, when that was refused, why."""

    transactionId: str
    partitionId: UUID
    status: NotRequired[JobStatus]
    code: NotRequired[str]
    error: NotRequired[str]


class AcksAnswer(TypedDict):
    acknowledgments: list[AckJSON]


class TransactionAnswer(TypedDict):
    acknowledgments: list[AckJSON]
    messages: list[ReceiptJSON]


def receipt_json(enqueued: CreatedJob) -> ReceiptJSON:
    job = enqueued.job
    return {
        "transactionId": transaction_id(job),
        "queue": job.queue,
        "partition": job.partition,
        "partitionId": partition_id(job),
        "status": "created" if enqueued.is_new else "duplicate",
    }


def queued_json(queued: PushDeferred) -> QueuedAnswer:
    return {
        "status": "queued",
        "operationId": queued.operation.id,
        "queuePosition": queued.position,
        "estimatedWait": queued.wait_seconds,
        "reason": queued.because,
    }


def message_json(job: Job) -> MessageJSON:
    lease = job.lease
    assert lease is not None, "what was popped is held"
    return {
        "transactionId": transaction_id(job),
        "queue": job.queue,
        "partition": job.partition,
        "partitionId": partition_id(job),
        "leaseId": lease.claim_id,
        "leaseUntil": moment(lease.until),
        "data": orjson.Fragment(bytes(job.payload)),
        "createdAt": moment(job.created_at),
        "retryCount": job.failures + job.crashes,
    }


def ack_json(job: Job) -> AckJSON:
    return {
        "transactionId": transaction_id(job),
        "partitionId": partition_id(job),
        "status": job.status,
    }


def acks_json(asked: list[Acknowledgment], settled: list[JobOutcome]) -> list[AckJSON]:
    """In the order in which they were sent."""
    told: list[AckJSON] = []
    for ack, one in zip(asked, settled, strict=True):
        if isinstance(one.answer, Job):
            told.append(ack_json(one.answer))
            continue
        code, sentence = reason_of(one.answer)
        named: AckJSON = {
            "transactionId": ack.transaction_id,
            "partitionId": UUID(ack.partition_id),
        }
        told.append({**named, "code": code, "error": sentence})
    return told
