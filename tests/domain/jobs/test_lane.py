"""Entering and leaving a lane, and the decisions of one operation."""

from datetime import UTC, datetime

import pytest
from msgspec import Raw
from msgspec.structs import replace
from uuid_utils.compat import uuid7

from daybook.domain.backoff import Backoff
from daybook.domain.errors import OperationNotFailedError, OperationOverError
from daybook.domain.event import Event
from daybook.domain.jobs.job import JOB, Job
from daybook.domain.messages import operation as operations
from daybook.domain.messages.message import message_id, message_key, transaction_id
from daybook.domain.messages.operation import (
    OPERATION,
    Message,
    Operation,
    OperationKind,
    OperationStatus,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
CLAIM = uuid7()


def job_after(*events: Event, skips: bool = False, partition: str | None = "a") -> Job:
    created = Job.Created(
        at=NOON,
        job_id=uuid7(),
        number=1,
        queue="mail",
        type="message",
        payload=Raw(b"{}"),
        priority=5,
        attempts_max=3,
        lease_seconds=90,
        partition=partition,
        unique_key=None if partition is None else message_key(partition, "t/1"),
        skips=skips,
        operation_id=uuid7(),
    )
    job = JOB.fold([created, *events])
    assert job is not None
    return job


DEAD = (
    Job.Claimed(at=NOON, claim_id=CLAIM, worker="w", lease_until=NOON, attempt=1),
    Job.MovedToDLQ(at=NOON, reason="not retryable"),
)
REQUEUED = Job.Requeued(at=NOON)


@pytest.mark.parametrize(
    ("job", "entered"),
    [
        (job_after(partition=None), None),
        (job_after(), 1),
        (job_after(*DEAD), 1),
        (job_after(*DEAD, REQUEUED), 1),
        (job_after(*DEAD, skips=True), None),
        (job_after(*DEAD, REQUEUED, skips=True), 4),
        (job_after(Job.Cancelled(at=NOON)), None),
        (job_after(Job.Cancelled(at=NOON), REQUEUED), 3),
        (job_after(DEAD[0], Job.Completed(at=NOON, claim_id=CLAIM)), None),
    ],
)
def test_a_job_is_in_its_lane_from_one_event_to_another(job: Job, entered: int | None) -> None:
    assert job.entered == entered


def test_a_job_that_enters_its_lane_again_loses_the_position_of_its_operation() -> None:
    assert job_after(*DEAD, REQUEUED).operation_id is not None
    assert job_after(*DEAD, REQUEUED, skips=True).operation_id is None


def test_any_transaction_id_round_trips() -> None:
    assert transaction_id(job_after()) == "t/1"
    lane = uuid7()
    assert message_id(lane, "t") == message_id(lane, "t") != message_id(uuid7(), "t")


def make_operation() -> Operation:
    item = Message(
        job_id=uuid7(),
        queue="mail",
        partition="a",
        unique_key="a/t",
        payload=Raw(b"1"),
        priority=5,
        attempts_max=3,
        lease_seconds=90,
        run_at=None,
        is_fresh=False,
    )
    created = Operation.Created(
        at=NOON, operation_id=uuid7(), number=1, kind=OperationKind.PUSH, items=(item, item)
    )
    return OPERATION.evolve(None, created)


def fail_once(operation: Operation, skipped: tuple[str, ...] = ()) -> Operation:
    backoff = Backoff(base_seconds=1, cap_seconds=10)
    failed = operations.fail(
        operation, error="boom", skipped=skipped, jitter=1, backoff=backoff, now=NOON
    )
    return OPERATION.evolve(operation, failed)


def given_up(skipped: tuple[str, ...] = ()) -> Operation:
    operation = make_operation()
    while operation.status is OperationStatus.PENDING:
        operation = fail_once(operation, skipped)
    return operation


def test_a_failing_operation_backs_off_until_it_is_given_up() -> None:
    # S3-13, S3-15, S3-29, D-61: so many attempts as were allowed when it was accepted, no more.
    operation = replace(make_operation(), attempts_max=7)
    rests = []
    for attempt in range(1, 7):
        operation = fail_once(operation)
        assert (operation.failures, operation.status) == (attempt, OperationStatus.PENDING)
        assert operation.run_at is not None
        rests.append((operation.run_at - NOON).total_seconds())
    assert rests == [1, 2, 4, 8, 10, 10]
    operation = fail_once(operation)
    assert (operation.failures, operation.status) == (7, OperationStatus.FAILED)
    assert (operation.error, operation.failed_at, operation.run_at) == ("boom", NOON, None)
    assert not OPERATION.finished(operation), "what was accepted is not lost"


def test_a_failed_operation_keeps_its_position_unless_its_queue_skips() -> None:
    # D-43
    assert given_up().lanes == {("mail", "a")}
    assert given_up(skipped=("mail",)).lanes == set()


def test_a_failed_operation_is_retried_or_cancelled_by_hand() -> None:
    retried = operations.retry(given_up(), number=9, because="repaired", now=NOON)
    operation = OPERATION.evolve(given_up(), retried)
    assert (operation.status, operation.failures) == (OperationStatus.PENDING, 0)
    assert operation.number == 9
    with pytest.raises(OperationNotFailedError):
        operations.retry(operation, number=10, because=None, now=NOON)
    cancelled = operations.cancel(operation, because=None, now=NOON)
    operation = OPERATION.evolve(operation, cancelled)
    assert OPERATION.finished(operation)
    assert operation.lanes == set()
    with pytest.raises(OperationOverError):
        operations.cancel(operation, because=None, now=NOON)


def test_a_late_result_of_a_failed_operation_is_refused() -> None:
    with pytest.raises(OperationOverError):
        operations.complete(given_up(), duplicates=(), now=NOON)
    with pytest.raises(OperationOverError):
        fail_once(given_up())


def test_an_operation_is_executed_once() -> None:
    operation = make_operation()
    assert operation.lanes == {("mail", "a")}
    completed = operations.complete(operation, duplicates=(1,), now=NOON)
    operation = OPERATION.evolve(operation, completed)
    assert OPERATION.finished(operation)
    with pytest.raises(OperationOverError):
        operations.complete(operation, duplicates=(), now=NOON)
    with pytest.raises(OperationOverError):
        fail_once(operation)
