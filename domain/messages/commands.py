"""Commands of pushes: executed at once, or deferred as an operation and executed later."""

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import ClassVar
from uuid import UUID

from msgspec import Struct

from daybook.domain.backoff import Backoff
from daybook.domain.command import (
    CommandPriority,
    CountRelated,
    Lock,
    Needs,
    NextNumbers,
    Peek,
    UnitOfWork,
)
from daybook.domain.errors import LaneFullError, NotFoundError
from daybook.domain.jobs.create import CreatedJob, CreateJobs, copy_options, create_job, skips_dead
from daybook.domain.jobs.job import NewJob
from daybook.domain.jobs.lane import lane_id
from daybook.domain.jobs.queue import QUEUE, queue_id
from daybook.domain.messages import operation as operations
from daybook.domain.messages.operation import (
    ATTEMPTS_MAX,
    OPERATION,
    Message,
    Operation,
    OperationKind,
)

OPERATION_NUMBERS = "operation_numbers"
BACKOFF = Backoff(base_seconds=0.2, cap_seconds=60)
LANE_DEPTH_MAX = 1_000


class DeferReason(StrEnum):
    MAINTAINING_ORDER = "maintaining_order"
    SYSTEM_BUSY = "system_busy"


class Backlog(Struct, frozen=True, gc=False):
    """Pending operations, as far as this process knows."""

    oldest: int | None = None  # The lowest pending number
    per_second: float = 1.0  # Measured execution rate


class PushDeferred(Struct, frozen=True, gc=False):
    operation: Operation
    position: int  # Upper bound of the operations ahead of it
    wait_seconds: float
    because: DeferReason


class Push(Struct, frozen=True, kw_only=True, gc=False):
    """Adds messages to their lanes. Deferred if the service is busy, or if earlier deferred pushes
    wait for the same lanes."""

    new: Sequence[NewJob]
    operation_id: UUID
    is_busy: bool
    standing: Backlog
    attempts_max: int = ATTEMPTS_MAX
    lane_depth_max: int = LANE_DEPTH_MAX
    """Pushes are refused once this many are deferred for a lane."""

    priority: ClassVar = CommandPriority.NORMAL

    @property
    def needs(self) -> Needs:
        create = () if self.is_busy else CreateJobs(self.new).needs
        backlogs = CountRelated(OPERATION, [*self._lanes])
        return [*create, NextNumbers(OPERATION_NUMBERS, 1), backlogs]

    @property
    def _lanes(self) -> dict[UUID, tuple[str, str]]:
        lanes = {(one.queue, one.partition) for one in self.new if one.partition is not None}
        return {lane_id(*lane): lane for lane in lanes}

    def decide(self, work: UnitOfWork) -> list[CreatedJob] | PushDeferred:
        """Refuses before it defers: otherwise a busy lane would grow without limit."""
        depths = {lane: work.count_related(OPERATION, one) for one, lane in self._lanes.items()}
        self._refuse_full(depths)
        if self.is_busy:
            return self._defer(work, DeferReason.SYSTEM_BUSY)
        if any(depths.values()):
            return self._defer(work, DeferReason.MAINTAINING_ORDER)
        return CreateJobs(self.new).decide(work)

    def _refuse_full(self, depths: Mapping[tuple[str, str], int]) -> None:
        for lane, depth in depths.items():
            if depth >= self.lane_depth_max:
                wait_seconds = depth / self.standing.per_second
                raise LaneFullError(*lane, depth=depth, wait_seconds=wait_seconds)

    def _defer(self, work: UnitOfWork, because: DeferReason) -> PushDeferred:
        created = Operation.Created(
            at=work.now,
            operation_id=self.operation_id,
            number=work.next_number(OPERATION_NUMBERS),
            kind=OperationKind.PUSH,
            items=tuple([_message(one) for one in self.new]),
            attempts_max=self.attempts_max,
        )
        operation = work.record(OPERATION, self.operation_id, created)
        oldest = operation.number if self.standing.oldest is None else self.standing.oldest
        position = max(0, operation.number - oldest)
        wait_seconds = round((position + 1) / self.standing.per_second, 3)
        return PushDeferred(operation, position, wait_seconds, because)


class ExecuteOperation(Struct, frozen=True, kw_only=True, gc=False):
    """Creates the jobs of an operation and completes it in one transaction: a crash leaves nothing
    behind."""

    operation_id: UUID
    items: Sequence[Message]  # The operation's items, which never change

    priority: ClassVar = CommandPriority.LOW  # No caller waits for it directly.

    @property
    def needs(self) -> Needs:
        create = CreateJobs([item.new_job() for item in self.items])
        return [Lock(OPERATION, [self.operation_id]), *create.needs]

    def decide(self, work: UnitOfWork) -> Operation:
        operation = _operation(work, self.operation_id)
        operations.require_pending(operation)
        created = [create_job(work, _of_operation(item, operation)) for item in self.items]
        duplicates = tuple([index for index, one in enumerate(created) if not one.is_new])
        completed = operations.complete(operation, duplicates=duplicates, now=work.now)
        return work.record(OPERATION, operation.id, completed)


class FailOperation(Struct, frozen=True, kw_only=True, gc=False):
    """Retries the operation later, or gives it up."""

    operation_id: UUID
    queues: Collection[str]  # Of its items
    error: str
    jitter: float

    @property
    def needs(self) -> Needs:
        queues = [queue_id(name) for name in self.queues]
        return [Lock(OPERATION, [self.operation_id]), Peek(QUEUE, queues)]

    def decide(self, work: UnitOfWork) -> Operation:
        operation = _operation(work, self.operation_id)
        failed = operations.fail(
            operation,
            error=self.error,
            skipped=tuple([name for name in sorted(self.queues) if skips_dead(work, name)]),
            jitter=self.jitter,
            backoff=BACKOFF,
            now=work.now,
        )
        return work.record(OPERATION, operation.id, failed)


class RetryOperation(Struct, frozen=True, gc=False):
    operation_id: UUID
    because: str | None = None

    @property
    def needs(self) -> Needs:
        return [Lock(OPERATION, [self.operation_id]), NextNumbers(OPERATION_NUMBERS, 1)]

    def decide(self, work: UnitOfWork) -> Operation:
        operation, number = _operation(work, self.operation_id), work.next_number(OPERATION_NUMBERS)
        requeued = operations.retry(operation, number=number, because=self.because, now=work.now)
        return work.record(OPERATION, operation.id, requeued)


class CancelOperation(Struct, frozen=True, gc=False):
    """Drops the operation; its lanes continue."""

    operation_id: UUID
    because: str | None = None

    @property
    def needs(self) -> Needs:
        return [Lock(OPERATION, [self.operation_id])]

    def decide(self, work: UnitOfWork) -> Operation:
        operation = _operation(work, self.operation_id)
        cancelled = operations.cancel(operation, because=self.because, now=work.now)
        return work.record(OPERATION, operation.id, cancelled)


def _operation(work: UnitOfWork, operation_id: UUID) -> Operation:
    operation = work.get(OPERATION, operation_id)
    if operation is None:
        raise NotFoundError("operation", operation_id)
    return operation


def _of_operation(item: Message, operation: Operation) -> NewJob:
    """In a lane that skipped the operation, the message joins at the end."""
    return item.new_job(None if item.queue in operation.skipped else operation.id)


def _message(new: NewJob) -> Message:
    return copy_options(
        Message,
        new.options,
        job_id=new.job_id,
        partition=new.partition,
        unique_key=new.unique_key,
        is_fresh=new.is_fresh,
    )
