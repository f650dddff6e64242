"""Builders of the job and queue requests. None of them sends the request."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar, Unpack
from uuid import UUID

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from daybook.client.jobs import (
    Claim,
    ClaimedJob,
    EnqueueOptions,
    FollowUp,
    Heartbeat,
    Heartbeats,
    Job,
    JobFilter,
    Lanes,
    Limits,
    NewJob,
    Page,
    Queue,
    QueueSettings,
    Rate,
    Redriven,
    Reported,
    Result,
)
from daybook.client.request import (
    ANSWER_SECONDS_MAX,
    Request,
    encoded,
    given,
    reading,
    segment,
    writing,
)
from daybook.client.responses import (
    read_claimed_jobs,
    read_heartbeats,
    read_history,
    read_ids,
    read_job,
    read_jobs,
    read_lease_until,
    read_page,
    read_queue,
    read_queues,
    read_redriven,
    reports_reader,
)

PAGE_SIZE = 100
# The service then omits sent values and the defaults of `Job` from its responses.
MINIMAL = {"Prefer": "return=minimal"}

T = TypeVar("T")
AnyClaim = Claim | ClaimedJob


def enqueue(
    queue: str, type: str, payload: Any = None, **options: Unpack[EnqueueOptions]
) -> Request[Job]:
    """Create a job, or return the existing one with the same unique key. If that one is dead,
    `on_dead="restart"` restarts it."""
    job = NewJob(queue=queue, type=type, payload=payload, **options)
    return writing("/api/jobs", job, read_job)


def enqueue_many(jobs: Iterable[NewJob]) -> Request[list[Job]]:
    """Create up to 1,000 jobs, all or none."""
    return writing("/api/jobs", {"jobs": list(jobs)}, read_jobs)


def enqueue_ids(jobs: Iterable[NewJob]) -> Request[list[UUID]]:
    """Like `enqueue_many`, but returns ids only: the response is ten times smaller."""
    request = writing("/api/jobs", {"jobs": list(jobs)}, read_ids)
    return replace(request, headers=MINIMAL)


def claim(
    queues: Sequence[str],
    *,
    worker_id: str,
    types: Sequence[str] | None = None,
    limit: int = 1,
    lease_seconds: float | None = None,
    wait_seconds: float = 0,
) -> Request[list[ClaimedJob]]:
    """Claim the most urgent jobs, up to `limit`; wait up to `wait_seconds` if none is ready."""
    body = {
        "queues": queues,
        "types": types,
        "workerId": worker_id,
        "limit": limit,
        "leaseSeconds": lease_seconds,
        "waitSeconds": wait_seconds,
    }
    # No idempotency key: the service would have to store every claimed job a second time. Jobs of
    # a lost response return to the queue when their leases expire.
    request = writing("/api/jobs/claim", given(body), read_claimed_jobs)
    seconds_max = ANSWER_SECONDS_MAX + wait_seconds
    return replace(request, needs_key=False, answer_seconds_max=seconds_max, headers=MINIMAL)


def heartbeat(claim: AnyClaim) -> Request[datetime]:
    """Extend the lease of a claim; returns its new end."""
    request = _report(claim, "heartbeat", {}, read_lease_until)
    return replace(request, needs_key=False)


def heartbeat_many(
    claims: Iterable[AnyClaim], *, lease_seconds: float | None = None
) -> Request[Heartbeats]:
    """Extend the leases of up to 1,000 claims; the result lists lost claims. Repeat
    `lease_seconds` for claims that were made with it."""
    heartbeats = [
        Heartbeat(id=one.id, claim_id=one.claim_id, lease_seconds=lease_seconds) for one in claims
    ]
    request = writing("/api/jobs/heartbeat", {"claims": heartbeats}, read_heartbeats)
    return replace(request, needs_key=False)


def complete(claim: AnyClaim, result: Any = None, *, then: Sequence[FollowUp] = ()) -> Request[Job]:
    """Complete the job and create its follow-ups in the same transaction."""
    return _report(claim, "complete", {"result": result, "then": then or None}, read_job)


def fail(
    claim: AnyClaim,
    error: str,
    *,
    retryable: bool = True,
    retry_after_seconds: float | None = None,
) -> Request[Job]:
    """Fail the attempt: the job is retried, or is dead after its last attempt."""
    body = {"error": error, "retryable": retryable, "retryAfterSeconds": retry_after_seconds}
    return _report(claim, "fail", body, read_job)


def snooze(claim: AnyClaim, until: datetime) -> Request[Job]:
    """Postpone the job; the attempt does not count."""
    return _report(claim, "snooze", {"until": until}, read_job)


def release(claim: AnyClaim) -> Request[Job]:
    """Return the job to its queue position; the attempt does not count."""
    return _report(claim, "release", {}, read_job)


def report(results: Iterable[Result]) -> Request[list[Reported]]:
    """Report the outcomes of up to 1,000 claims. Each is accepted or refused by itself, in the
    order given."""
    listed = list(results)
    return report_encoded(
        [one.id for one in listed], [encoded(one, f"The result of job {one.id}") for one in listed]
    )


def report_encoded(ids: Sequence[UUID], results: Iterable[bytes]) -> Request[list[Reported]]:
    return Request(
        method="POST",
        path="/api/jobs/results",
        content=b'{"results":[' + b",".join(results) + b"]}",
        headers=MINIMAL,
        read=reports_reader(ids),
        needs_key=True,
    )


def cancel(job_id: UUID | str, *, reason: str | None = None) -> Request[Job]:
    """Cancel the job; a running claim on it is lost."""
    return writing(f"/api/jobs/{segment(job_id)}/cancel", given({"reason": reason}), read_job)


def retry(job_id: UUID | str, *, reason: str | None = None) -> Request[Job]:
    """Restart a dead or cancelled job with a new life."""
    return writing(f"/api/jobs/{segment(job_id)}/retry", given({"reason": reason}), read_job)


def get(job_id: UUID | str, *, wait_seconds: float = 0) -> Request[Job]:
    """Read a job; `wait_seconds`, up to 30, waits until it is finished."""
    parameters = {"waitSeconds": wait_seconds or None}
    request = reading(f"/api/jobs/{segment(job_id)}", parameters, read_job)
    return replace(request, answer_seconds_max=ANSWER_SECONDS_MAX + wait_seconds)


def history(job_id: UUID | str) -> Request[list[dict[str, Any]]]:
    """All events of a job, oldest first."""
    return reading(f"/api/jobs/{segment(job_id)}/history", {}, read_history)


def list_jobs(*, page_size: int = PAGE_SIZE, **filters: Unpack[JobFilter]) -> Request[Page]:
    """All matching jobs, read page by page."""
    return reading("/api/jobs", {**filters, "limit": page_size}, read_page)


def dlq(
    *, queue: str | None = None, type: str | None = None, page_size: int = PAGE_SIZE
) -> Request[Page]:
    """The dead letters, read page by page."""
    return reading("/api/dlq", {"queue": queue, "type": type, "limit": page_size}, read_page)


def redrive(
    *,
    queue: str | None = None,
    type: str | None = None,
    error: str | None = None,
    rate_per_second: float | None = None,
    dry_run: bool = False,
    reason: str | None = None,
    expected_count: int | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Request[Redriven]:
    """Restart dead letters at `rate_per_second`; a dry run only counts them. With the count of a
    dry run as `expected_count`, the service refuses (`count_grown`) if there are more by now. One
    request runs for a few seconds: send its `next_cursor` as `cursor` to continue."""
    filters = given({"queue": queue, "type": type, "error": error})
    body = {
        "filter": filters or None,
        "ratePerSecond": rate_per_second,
        "dryRun": dry_run,
        "reason": reason,
        "expectedCount": expected_count,
        "limit": limit,
        "cursor": cursor,
    }
    return writing("/api/dlq/redrive", given(body), read_redriven)


def set_queue(
    name: str,
    *,
    paused: bool | UnsetType = UNSET,
    concurrency: int | UnsetType | None = UNSET,
    rate: Rate | UnsetType | None = UNSET,
    per_subject: Limits | UnsetType = UNSET,
    lanes: Lanes | UnsetType = UNSET,
    reason: str | UnsetType = UNSET,
) -> Request[Queue]:
    """Pause, resume or limit a queue, or choose whether a dead job blocks its lane or is skipped.
    Omitted settings do not change."""
    settings = QueueSettings(
        paused=paused,
        concurrency=concurrency,
        rate=rate,
        per_subject=per_subject,
        lanes=lanes,
        reason=reason,
    )
    return replace(writing(f"/api/queues/{segment(name)}", settings, read_queue), method="PUT")


def queues() -> Request[list[Queue]]:
    """All queues with their settings and job counts by status."""
    return reading("/api/queues", {}, read_queues)


def _report(
    claim: AnyClaim, action: str, body: Mapping[str, Any], read: Callable[[bytes], T]
) -> Request[T]:
    full = {"claimId": claim.claim_id, **given(body)}
    return writing(f"/api/jobs/{segment(claim.id)}/{action}", full, read)
