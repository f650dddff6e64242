"""The commands of pushes: carried out at once, or accepted and carried out later."""

from collections.abc import Sequence
from enum import StrEnum
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from domain import operation as operations
from domain.desk import Desk, Reads
from domain.errors import NotFoundError
from domain.job import Backoff, UniqueScope
from domain.lane import lane_id
from domain.messages import MESSAGE_TYPE
from domain.operation import OPERATION, Message, Operation, OperationKind
from domain.workshop import CreateJobs, Enqueued, NewJob, create_job

OPERATION_NUMBERS = "operation_numbers"
BACKOFF = Backoff(base_seconds=0.2, cap_seconds=60)


class QueuedBecause(StrEnum):
    MAINTAINING_ORDER = "maintaining_order"
    SYSTEM_BUSY = "system_busy"


class Standing(Struct, frozen=True, gc=False):
    """How the accepted operations stand, as far as this process knows."""

    oldest: int | None = None
    """The smallest number that is still to be carried out."""

    per_second: float = 1.0
    """How many are carried out, as measured."""


class Queued(Struct, frozen=True, gc=False):
    operation: Operation
    position: int
    """How many are to be carried out before it, at most."""

    wait_seconds: float
    because: QueuedBecause


class Push(Struct, frozen=True, kw_only=True, gc=False):
    """Messages go into their lanes: at once, unless the service is busy or others that were
    accepted before them wait for the same lanes."""

    new: Sequence[NewJob]
    operation_id: UUID
    is_busy: bool
    standing: Standing

    @property
    def reads(self) -> Reads:
        number = (OPERATION_NUMBERS, 1)
        if self.is_busy:
            return Reads(draws=(number,), can_wait=True)
        create = CreateJobs(self.new).reads
        lanes = {lane_id(one.queue, _partition(one)) for one in self.new}
        tied = tuple([(OPERATION, lane) for lane in lanes])
        return replace(create, draws=(*create.draws, number), seen_tied=tied)

    def decide(self, desk: Desk) -> list[Enqueued] | Queued:
        if self.is_busy:
            return self._queue(desk, QueuedBecause.SYSTEM_BUSY)
        if any(desk.is_tied(OPERATION, lane) for _, lane in self.reads.seen_tied):
            return self._queue(desk, QueuedBecause.MAINTAINING_ORDER)
        return CreateJobs(self.new).decide(desk)

    def _queue(self, desk: Desk, because: QueuedBecause) -> Queued:
        created = Operation.Created(
            at=desk.now,
            operation_id=self.operation_id,
            number=desk.draw(OPERATION_NUMBERS),
            kind=OperationKind.PUSH,
            items=tuple([_message(one) for one in self.new]),
        )
        operation = desk.record(OPERATION, self.operation_id, created)
        oldest = operation.number if self.standing.oldest is None else self.standing.oldest
        position = max(0, operation.number - oldest)
        wait_seconds = round((position + 1) / self.standing.per_second, 3)
        return Queued(operation, position, wait_seconds, because)


class CarryOut(Struct, frozen=True, kw_only=True, gc=False):
    """What an operation asks for is done, and that is its end: in one transaction, so that whoever
    dies over it leaves nothing behind."""

    operation_id: UUID
    items: Sequence[Message]
    """The operation's own, which never change."""

    @property
    def reads(self) -> Reads:
        # What was accepted goes before what asks to be.
        create = CreateJobs(self._new).reads
        names = ((OPERATION, self.operation_id), *create.names)
        return replace(create, names=names, can_wait=False)

    @property
    def _new(self) -> list[NewJob]:
        return [_new_job(item, self.operation_id) for item in self.items]

    def decide(self, desk: Desk) -> Operation:
        operation = _operation(desk, self.operation_id)
        operations.refuse_over(operation)
        enqueued = [create_job(desk, one) for one in self._new]
        duplicates = tuple([place for place, one in enumerate(enqueued) if not one.is_new])
        completed = operations.complete(operation, duplicates=duplicates, now=desk.now)
        return desk.record(OPERATION, operation.id, completed)


class Postpone(Struct, frozen=True, kw_only=True, gc=False):
    """It could not be carried out, and is tried again later."""

    operation_id: UUID
    error: str
    jitter: float

    @property
    def reads(self) -> Reads:
        return Reads(names=((OPERATION, self.operation_id),))

    def decide(self, desk: Desk) -> Operation:
        operation = _operation(desk, self.operation_id)
        failed = operations.fail(
            operation, error=self.error, jitter=self.jitter, backoff=BACKOFF, now=desk.now
        )
        return desk.record(OPERATION, operation.id, failed)


def _operation(desk: Desk, operation_id: UUID) -> Operation:
    operation = desk.get(OPERATION, operation_id)
    if operation is None:
        raise NotFoundError("operation", operation_id)
    return operation


def _partition(new: NewJob) -> str:
    assert new.partition is not None, "a message has a partition"
    return new.partition


def _message(new: NewJob) -> Message:
    assert new.unique_key is not None, "a message has a transaction id"
    return Message(
        job_id=new.job_id,
        queue=new.queue,
        partition=_partition(new),
        unique_key=new.unique_key,
        payload=new.payload,
        priority=new.priority,
        attempts_max=new.attempts_max,
        lease_seconds=new.lease_seconds,
        run_at=new.run_at,
        is_fresh=new.is_fresh,
    )


def _new_job(item: Message, operation_id: UUID) -> NewJob:
    return NewJob(
        job_id=item.job_id,
        queue=item.queue,
        type=MESSAGE_TYPE,
        payload=item.payload,
        priority=item.priority,
        attempts_max=item.attempts_max,
        lease_seconds=item.lease_seconds,
        run_at=item.run_at,
        unique_key=item.unique_key,
        unique_scope=UniqueScope.FOREVER,
        partition=item.partition,
        is_fresh=item.is_fresh,
        operation_id=operation_id,
    )
