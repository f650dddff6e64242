"""Request bodies and JSON of messages."""

from typing import Annotated, Any, Literal, NotRequired, TypedDict
from uuid import UUID

import orjson
from msgspec import Meta, field

from daybook.api.endpoints.command import Body
from daybook.api.http.problems import reason_of
from daybook.api.http.request_reader import BATCH_MAX, Id
from daybook.api.http.timestamps import Moment, moment
from daybook.domain.jobs.create import CreatedJob
from daybook.domain.jobs.job import BoundedOptions, Job, JobStatus, OnDead
from daybook.domain.jobs.work import JobOutcome
from daybook.domain.messages.commands import DeferReason, PushDeferred
from daybook.domain.messages.message import partition_id, transaction_id
from daybook.domain.patterns import whole
from daybook.domain.values import KEY_CHARACTERS_MAX, Error, Instant, Name, Text

# No slash: a partition is also a path segment.
Partition = Annotated[
    str, Meta(min_length=1, max_length=KEY_CHARACTERS_MAX, pattern=whole("[^/]+"))
]


class Item(BoundedOptions, frozen=True):
    queue: Name
    partition: Partition | None = None
    transaction_id: Text | None = None
    on_dead: OnDead = OnDead.RETURN
    """Policy for a dead message of this transaction id: leave it dead, or retry it with its own
    payload. Either way the response is `duplicate`."""

    run_at: Instant | None = None
    trace_id: Text | None = None
    """Accepted for protocol compatibility and ignored; tracing uses the header traceparent."""


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
    """The group that popped it; a message leased to another group is refused."""


Acknowledgments = Annotated[list[Acknowledgment], Meta(min_length=1, max_length=BATCH_MAX)]


class Acknowledged(Body, frozen=True):
    acknowledgments: Acknowledgments
    consumer_group: Text | None = None
    """The group that popped them; a message leased to another group is refused."""


class Transaction(Body, frozen=True):
    acknowledgments: Acknowledgments
    items: Items
    consumer_group: Text | None = None
    required_leases: Annotated[list[Id], Meta(max_length=BATCH_MAX)] = field(default_factory=list)
    """Each must be the lease of one of the acknowledgments."""


class ReceiptJSON(TypedDict):
    """`duplicate` if the transaction id was pushed before."""

    transactionId: str
    queue: str
    partition: str | None
    partitionId: UUID
    status: Literal["created", "duplicate"]


class PushAnswer(TypedDict):
    status: Literal["executed"]
    messages: list[ReceiptJSON]


class QueuedAnswer(TypedDict):
    """Durably accepted; executed after the operations before it. `estimatedWait` is in seconds."""

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
    """The new status of the message, or the refusal's `code` and `error`."""

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


def receipt_json(created: CreatedJob) -> ReceiptJSON:
    job = created.job
    return {
        "transactionId": transaction_id(job),
        "queue": job.queue,
        "partition": job.partition,
        "partitionId": partition_id(job),
        "status": "created" if created.is_new else "duplicate",
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
    claim = job.claim
    assert claim is not None, "a popped message has a claim"
    return {
        "transactionId": transaction_id(job),
        "queue": job.queue,
        "partition": job.partition,
        "partitionId": partition_id(job),
        "leaseId": claim.id,
        "leaseUntil": moment(claim.until),
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


def acks_json(acknowledgments: list[Acknowledgment], outcomes: list[JobOutcome]) -> list[AckJSON]:
    rendered: list[AckJSON] = []
    for ack, outcome in zip(acknowledgments, outcomes, strict=True):
        if isinstance(outcome.answer, Job):
            rendered.append(ack_json(outcome.answer))
            continue
        code, sentence = reason_of(outcome.answer)
        named: AckJSON = {
            "transactionId": ack.transaction_id,
            "partitionId": UUID(ack.partition_id),
        }
        rendered.append({**named, "code": code, "error": sentence})
    return rendered
