"""When a job enters its lane and leaves it, and what an operation decides by itself."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec import Raw
from uuid_utils.compat import uuid7

from domain import operation as operations
from domain.errors import OperationOverError
from domain.event import Event
from domain.job import JOB, Backoff, Job
from domain.messages import message_id, message_key, transaction_id
from domain.operation import OPERATION, Message, Operation, OperationKind

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


def test_who_enters_anew_has_no_longer_the_place_of_what_brought_it_in() -> None:
    assert job_after(*DEAD, REQUEUED).operation_id is not None
    assert job_after(*DEAD, REQUEUED, skips=True).operation_id is None


def test_a_transaction_id_may_hold_anything_and_comes_back() -> None:
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


def test_an_operation_that_failed_rests_ever_longer_and_is_never_given_up() -> None:
    operation, backoff = make_operation(), Backoff(base_seconds=1, cap_seconds=10)
    rests = []
    for _ in range(6):
        failed = operations.fail(operation, error="boom", jitter=1, backoff=backoff, now=NOON)
        rests.append((failed.retry_at - NOON).total_seconds())
        operation = OPERATION.evolve(operation, failed)
    assert rests == [1, 2, 4, 8, 10, 10]
    assert (operation.failures, operation.error, operation.is_over) == (6, "boom", False)
    assert operation.run_at == NOON + timedelta(seconds=10)


def test_an_operation_is_carried_out_once() -> None:
    operation = make_operation()
    assert operation.lanes == {("mail", "a")}
    completed = operations.complete(operation, duplicates=(1,), now=NOON)
    operation = OPERATION.evolve(operation, completed)
    assert OPERATION.finished(operation)
    with pytest.raises(OperationOverError):
        operations.complete(operation, duplicates=(), now=NOON)
    with pytest.raises(OperationOverError):
        operations.fail(operation, error="x", jitter=1, backoff=Backoff(), now=NOON)
