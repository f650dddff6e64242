"""Lease expiry, and the backoff after it."""

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
from tests.support.order_state_machine import NOON, PlainUnitOfWork


def work_with(job: Job) -> PlainUnitOfWork:
    work = PlainUnitOfWork()
    work.states[job.id] = job
    return work


def extended(job: Job, seconds: float) -> Job:
    """The job after a heartbeat, which is not an event."""
    assert job.claim is not None
    until = job.claim.until + timedelta(seconds=seconds)
    return replace(job, claim=replace(job.claim, until=until))


def expiry(job: Job, claim_id: UUID = FIRST, **fields: object) -> ExpireLease:
    return ExpireLease(job_id=job.id, claim_id=claim_id, jitter=1, **fields)  # type: ignore[arg-type] # of any kind


def test_a_lease_that_was_extended_after_it_was_read_does_not_expire() -> None:  # S1-04
    looked_at = claimed(make_job())
    assert looked_at.claim is not None
    work = work_with(extended(looked_at, 30))
    work.now = looked_at.claim.until + timedelta(seconds=1)
    for command in (
        expiry(looked_at),
        expiry(looked_at, lease_until=looked_at.claim.until, lease_seconds=30),
    ):
        with pytest.raises(LeaseHeldError):
            command.decide(work)
    assert work.log == []


def test_a_lease_that_was_measured_expires_whatever_the_clock_says() -> None:  # I-44
    job = claimed(make_job())
    assert job.claim is not None
    work = work_with(job)
    work.now = NOON - timedelta(days=1)
    ended = expiry(job, lease_until=job.claim.until, lease_seconds=30).decide(work)
    assert (ended.status, ended.crashes) == (JobStatus.PENDING, 1)


def test_a_claim_that_was_lost_before_its_lease_expired_is_left_alone() -> None:
    job = claimed(make_job(), SECOND)
    assert job.claim is not None
    with pytest.raises(ClaimLostError):
        expiry(job, FIRST, lease_until=job.claim.until).decide(work_with(job))


@pytest.mark.parametrize("crashes", [0, 1, 2])
def test_the_backoff_after_an_expiry_grows_with_failures_and_crashes(crashes: int) -> None:
    job = make_job(attempts_max=9)
    for _ in range(crashes):
        job = failed(claimed(job), FailureReason.LEASE_EXPIRED)
    job = claimed(failed(claimed(job)))
    assert job.claim is not None
    work = work_with(job)
    ended = expiry(job, lease_until=job.claim.until).decide(work)
    assert ended.run_at is not None
    rested = (ended.run_at - work.now).total_seconds()
    assert rested == BACKOFF.seconds(crashes + 2, 1) == 0.2 * 2 ** (crashes + 1)


@pytest.mark.parametrize("crashes", [0, 1, 2])
def test_the_backoff_after_a_failure_grows_with_failures_and_crashes(crashes: int) -> None:
    job = make_job(attempts_max=9)
    for _ in range(crashes):
        job = failed(claimed(job), FailureReason.LEASE_EXPIRED)
    job = claimed(failed(claimed(job)))
    work = work_with(job)
    result = JobResult(job_id=job.id, claim_id=FIRST, outcome=Outcome.RETRY, error="boom")
    (outcome,) = FinishJobs(results=[result], jitter=1).decide(work)
    assert isinstance(outcome.answer, Job)
    assert outcome.answer.run_at is not None
    rested = (outcome.answer.run_at - work.now).total_seconds()
    assert rested == BACKOFF.seconds(crashes + 2, 1)


def test_a_retry_is_rescheduled_only_at_the_version_read() -> None:  # I-44
    job = failed(claimed(make_job()))
    work = work_with(job)
    work.now = NOON - timedelta(days=1)
    moved = RescheduleRetry(job_id=job.id, version=job.version, retry_delay_seconds=2).decide(work)
    assert moved.run_at == work.now + timedelta(seconds=2)
    RescheduleRetry(job_id=job.id, version=job.version, retry_delay_seconds=5).decide(work)
    assert work.states[job.id] == moved
    assert len(work.log) == 1


def test_a_jump_that_is_recorded_late_says_how_long_ago_it_happened() -> None:  # I-44
    work = PlainUnitOfWork()
    work.now = NOON + timedelta(seconds=2)
    RecordJump(seconds=60, within_seconds=0.5, noticed_at=NOON).decide(work)
    ((_, jumped),) = work.log
    assert isinstance(jumped, Clock.Jumped)
    assert (jumped.seconds, jumped.within_seconds) == (60, 2.5)
