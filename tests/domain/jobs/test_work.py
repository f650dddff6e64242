"""The ends of claims: leases that expire, and how long jobs rest after that."""

from datetime import timedelta
from uuid import UUID

import pytest
from msgspec.structs import replace

from daybook.domain.clock import Clock, RecordJump
from daybook.domain.errors import ClaimLostError, LeaseHeldError
from daybook.domain.jobs.job import FailureReason, Job, JobStatus
from daybook.domain.jobs.work import (
    BACKOFF,
    ExpireLease,
    FinishJobs,
    JobResult,
    Outcome,
    RescheduleRetry,
)
from tests.domain.jobs.test_job import FIRST, SECOND, claimed, failed, make_job
from tests.support.order_state_machine import NOON, PlainDesk


def desk_with(job: Job) -> PlainDesk:
    desk = PlainDesk()
    desk.states[job.id] = job
    return desk


def extended(job: Job, seconds: float) -> Job:
    """As a heartbeat leaves it, which is no event."""
    assert job.lease is not None
    until = job.lease.until + timedelta(seconds=seconds)
    return replace(job, lease=replace(job.lease, until=until))


def expiry(job: Job, claim_id: UUID = FIRST, **fields: object) -> ExpireLease:
    return ExpireLease(job_id=job.id, claim_id=claim_id, jitter=1, **fields)  # type: ignore[arg-type] # of any kind


def test_a_lease_that_a_heartbeat_extended_after_the_look_does_not_expire() -> None:  # S1-04
    looked_at = claimed(make_job())
    assert looked_at.lease is not None
    desk = desk_with(extended(looked_at, 30))
    desk.now = looked_at.lease.until + timedelta(seconds=1)
    for command in (
        expiry(looked_at),
        expiry(looked_at, lease_until=looked_at.lease.until, lease_seconds=30),
    ):
        with pytest.raises(LeaseHeldError):
            command.decide(desk)
    assert desk.log == []


def test_a_lease_that_was_measured_expires_whatever_the_clock_says() -> None:  # I-44
    job = claimed(make_job())
    assert job.lease is not None
    desk = desk_with(job)
    desk.now = NOON - timedelta(days=1)
    ended = expiry(job, lease_until=job.lease.until, lease_seconds=30).decide(desk)
    assert (ended.status, ended.crashes) == (JobStatus.PENDING, 1)


def test_a_claim_that_was_lost_before_its_lease_expired_is_left_alone() -> None:
    job = claimed(make_job(), SECOND)
    assert job.lease is not None
    with pytest.raises(ClaimLostError):
        expiry(job, FIRST, lease_until=job.lease.until).decide(desk_with(job))


@pytest.mark.parametrize("crashes", [0, 1, 2])
def test_the_rest_after_an_expiry_grows_with_failures_and_crashes(crashes: int) -> None:
    job = make_job(attempts_max=9)
    for _ in range(crashes):
        job = failed(claimed(job), FailureReason.LEASE_EXPIRED)
    job = claimed(failed(claimed(job)))
    assert job.lease is not None
    desk = desk_with(job)
    ended = expiry(job, lease_until=job.lease.until).decide(desk)
    assert ended.run_at is not None
    rested = (ended.run_at - desk.now).total_seconds()
    assert rested == BACKOFF.seconds(crashes + 2, 1) == 0.2 * 2 ** (crashes + 1)


@pytest.mark.parametrize("crashes", [0, 1, 2])
def test_the_rest_after_a_failure_grows_with_failures_and_crashes(crashes: int) -> None:
    job = make_job(attempts_max=9)
    for _ in range(crashes):
        job = failed(claimed(job), FailureReason.LEASE_EXPIRED)
    job = claimed(failed(claimed(job)))
    desk = desk_with(job)
    result = JobResult(job_id=job.id, claim_id=FIRST, outcome=Outcome.RETRY, error="boom")
    (settled,) = FinishJobs(results=[result], jitter=1).decide(desk)
    assert isinstance(settled.answer, Job)
    assert settled.answer.run_at is not None
    rested = (settled.answer.run_at - desk.now).total_seconds()
    assert rested == BACKOFF.seconds(crashes + 2, 1)


def test_a_retry_is_moved_only_as_it_was_seen() -> None:  # I-44
    job = failed(claimed(make_job()))
    desk = desk_with(job)
    desk.now = NOON - timedelta(days=1)
    moved = RescheduleRetry(job_id=job.id, version=job.version, rest_seconds=2).decide(desk)
    assert moved.run_at == desk.now + timedelta(seconds=2)
    RescheduleRetry(job_id=job.id, version=job.version, rest_seconds=5).decide(desk)
    assert desk.states[job.id] == moved
    assert len(desk.log) == 1


def test_a_jump_that_is_recorded_late_says_how_long_ago_it_happened() -> None:  # I-44
    desk = PlainDesk()
    desk.now = NOON + timedelta(seconds=2)
    RecordJump(seconds=60, within_seconds=0.5, noticed_at=NOON).decide(desk)
    ((_, jumped),) = desk.log
    assert isinstance(jumped, Clock.Jumped)
    assert (jumped.seconds, jumped.within_seconds) == (60, 2.5)
