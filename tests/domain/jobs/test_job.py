"""Decisions of one job."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from msgspec import Raw
from uuid_utils.compat import uuid7

from daybook.domain.backoff import Backoff
from daybook.domain.errors import ClaimLostError, JobNotDeadError, JobOverError
from daybook.domain.event import Event
from daybook.domain.jobs.job import (
    JOB,
    NULL,
    FailureReason,
    Job,
    JobStatus,
    cancel,
    claim,
    complete,
    fail,
    release,
    requeue,
    snooze,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
FIRST, SECOND = uuid7(), uuid7()


def make_job(attempts_max: int = 3) -> Job:
    created = Job.Created(
        at=NOON,
        job_id=uuid7(),
        number=1,
        queue="email",
        type="send",
        payload=Raw(b"{}"),
        priority=5,
        attempts_max=attempts_max,
        lease_seconds=90,
    )
    return JOB.evolve(None, created)


def after(job: Job, *events: Event) -> Job:
    for event in events:
        job = JOB.evolve(job, event)
    return job


def claimed(job: Job, claim_id: UUID = FIRST) -> Job:
    event = claim(job, claim_id=claim_id, worker="w", lease_seconds=None, now=NOON)
    return after(job, event)


def failed(job: Job, reason: FailureReason = FailureReason.ERROR, *, retryable: bool = True) -> Job:
    assert job.claim is not None
    events = fail(
        job,
        claim_id=job.claim.id,
        error="boom",
        reason=reason,
        retryable=retryable,
        retry_delay_seconds=1,
        now=NOON,
    )
    return after(job, *events)


def test_an_attempt_is_counted_when_a_worker_takes_the_job() -> None:
    # S4-18
    job = claimed(make_job())
    assert (job.status, job.attempts) == (JobStatus.PROCESSING, 1)
    assert job.claim is not None
    assert job.claim.until == NOON + timedelta(seconds=90)


def test_a_completed_job_is_over_with_its_result() -> None:
    job = claimed(make_job())
    done = after(job, complete(job, claim_id=FIRST, result=Raw(b"7"), now=NOON))
    assert (done.status, bytes(done.result), done.claim) == (JobStatus.COMPLETED, b"7", None)
    assert JOB.finished(done)


def test_a_failed_job_is_retried_after_a_backoff_until_its_attempts_are_used_up() -> None:
    # S1-06, S1-08, S1-29, S4-09, S4-23
    job = make_job(attempts_max=3)
    for attempt in (1, 2):
        job = failed(claimed(job))
        assert (job.status, job.attempts) == (JobStatus.PENDING, attempt)
        assert job.run_at == NOON + timedelta(seconds=1)
    dead = failed(claimed(job))
    assert (dead.status, dead.attempts, dead.failures) == (JobStatus.DEAD, 3, 3)
    assert (dead.error, dead.run_at) == ("boom", None)


def test_a_failure_that_is_not_retryable_is_dead_at_once() -> None:
    # S4-29
    dead = failed(claimed(make_job()), retryable=False)
    assert (dead.status, dead.attempts) == (JobStatus.DEAD, 1)


def test_crashes_are_counted_separately_and_a_crash_loop_is_named() -> None:
    # D-22
    job = make_job(attempts_max=2)
    job = failed(claimed(job), FailureReason.LEASE_EXPIRED)
    assert (job.crashes, job.failures) == (1, 0)
    events = fail(
        claimed(job),
        claim_id=FIRST,
        error="the lease expired",
        reason=FailureReason.LEASE_EXPIRED,
        retryable=True,
        retry_delay_seconds=1,
        now=NOON,
    )
    assert isinstance(events[-1], Job.MovedToDLQ)
    assert events[-1].reason == "crash loop: its worker was lost 2 times"


def test_a_release_and_a_snooze_give_the_attempt_back() -> None:
    # D-73
    job = claimed(make_job())
    released = after(job, release(job, claim_id=FIRST, now=NOON))
    assert (released.status, released.attempts, released.interruptions) == (
        JobStatus.PENDING,
        0,
        1,
    )
    later = NOON + timedelta(hours=1)
    snoozed = after(job, snooze(job, claim_id=FIRST, until=later, now=NOON))
    assert (snoozed.attempts, snoozed.run_at, snoozed.interruptions) == (0, later, 0)


@pytest.mark.parametrize(
    "say",
    [
        lambda job: complete(job, claim_id=FIRST, result=NULL, now=NOON),
        lambda job: fail(
            job, claim_id=FIRST, error="", retryable=True, retry_delay_seconds=0, now=NOON
        ),
        lambda job: release(job, claim_id=FIRST, now=NOON),
        lambda job: snooze(job, claim_id=FIRST, until=NOON, now=NOON),
    ],
)
def test_a_report_under_a_lost_claim_is_refused(say: Callable[[Job], object]) -> None:
    # D-21
    job = failed(claimed(make_job()))
    with pytest.raises(ClaimLostError):
        say(job)
    with pytest.raises(ClaimLostError):
        say(claimed(job, SECOND))


def test_a_dead_job_begins_a_new_life_with_its_own_effect_key() -> None:
    # S4-24
    dead = failed(claimed(make_job(attempts_max=1)))
    again = after(dead, requeue(dead, now=NOON))
    assert (again.status, again.life, again.attempts, again.error) == (
        JobStatus.PENDING,
        2,
        0,
        None,
    )
    assert again.effect_key != dead.effect_key
    with pytest.raises(JobNotDeadError):
        requeue(again, now=NOON)


def test_all_attempts_of_one_life_share_the_effect_key() -> None:
    # S1-10, S1-18
    job = make_job()
    assert failed(claimed(job)).effect_key == claimed(failed(claimed(job))).effect_key


def test_a_claimed_job_can_be_cancelled() -> None:
    job = claimed(make_job())
    cancelled = after(job, cancel(job, now=NOON))
    assert (cancelled.status, cancelled.claim) == (JobStatus.CANCELLED, None)
    with pytest.raises(ClaimLostError):
        complete(cancelled, claim_id=FIRST, result=NULL, now=NOON)
    with pytest.raises(JobOverError):
        cancel(cancelled, now=NOON)


def test_a_completed_job_is_not_cancelled() -> None:
    job = claimed(make_job())
    completed = after(job, complete(job, claim_id=FIRST, result=NULL, now=NOON))
    with pytest.raises(JobOverError):
        cancel(completed, now=NOON)


def test_the_backoff_doubles_uses_the_whole_range_and_has_a_cap() -> None:
    # S1-22, S1-23, D-26, D-69
    backoff = Backoff()
    assert [backoff.seconds(n, 1.0) for n in (1, 2, 3)] == [0.2, 0.4, 0.8]
    assert backoff.seconds(3, 0.25) == 0.2
    assert backoff.seconds(3, 0.0) == 0.0
    assert backoff.seconds(1000, 1.0) == 300.0
