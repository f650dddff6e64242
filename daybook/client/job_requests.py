"""What the service can be asked: one function for each request, and none of them sends it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from daybook.client.jobs import (
    Claim,
    ClaimedJob,
    FollowUp,
    Heartbeat,
    Heartbeats,
    Job,
    JobStatus,
    Lanes,
    Limits,
    NewJob,
    OnDead,
    Page,
    Queue,
    QueueSettings,
    Rate,
    Redriven,
    Reported,
    Result,
    UniqueScope,
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
# What is left out of an answer then is known here: what was sent, or what `Job` has as defaults.
BRIEFLY = {"Prefer": "return=minimal"}

T = TypeVar("T")
AnyClaim = Claim | ClaimedJob


def enqueue(
    queue: str,
    type: str,
    payload: Any = None,
    *,
    priority: int | None = None,
    subject: str | None = None,
    unique_key: str | None = None,
    unique_scope: UniqueScope | None = None,
    on_dead: OnDead | None = None,
    attempts_max: int | None = None,
    lease_seconds: float | None = None,
    run_at: datetime | None = None,
    partition: str | None = None,
) -> Request[Job]:
    """Make a job. If its unique key stands for one already, that one is the answer; if that is
    dead, `on_dead="restart"` starts it over."""
    job = NewJob(
        queue=queue,
        type=type,
        payload=payload,
        priority=priority,
        subject=subject,
        unique_key=unique_key,
        unique_scope=unique_scope,
        on_dead=on_dead,
        attempts_max=attempts_max,
        lease_seconds=lease_seconds,
        run_at=run_at,
        partition=partition,
    )
    return writing("/api/jobs", job, read_job)


def enqueue_many(jobs: Iterable[NewJob]) -> Request[list[Job]]:
    """Make up to 1,000 jobs, all or none."""
    return writing("/api/jobs", {"jobs": list(jobs)}, read_jobs)


def enqueue_ids(jobs: Iterable[NewJob]) -> Request[list[UUID]]:
    """The same, for those who need only the ids: the answer is a tenth of the size."""
    request = writing("/api/jobs", {"jobs": list(jobs)}, read_ids)
    return replace(request, headers=BRIEFLY)


def claim(
    queues: Sequence[str],
    *,
    worker_id: str,
    types: Sequence[str] | None = None,
    limit: int = 1,
    lease_seconds: float | None = None,
    wait_seconds: float = 0,
) -> Request[list[ClaimedJob]]:
    """Take the most urgent jobs, up to the limit; wait for one if there is none."""
    body = {
        "queues": queues,
        "types": types,
        "workerId": worker_id,
        "limit": limit,
        "leaseSeconds": lease_seconds,
        "waitSeconds": wait_seconds,
    }
    # It has no key, under which the service would have to keep every job a second time. When an
    # answer is lost, its jobs come back at the end of their leases.
    request = writing("/api/jobs/claim", given(body), read_claimed_jobs)
    seconds_max = ANSWER_SECONDS_MAX + wait_seconds
    return replace(request, needs_key=False, answer_seconds_max=seconds_max, headers=BRIEFLY)


def heartbeat(claim: AnyClaim) -> Request[datetime]:
    """Keep a claim for another lease; the answer says until when."""
    request = _report(claim, "heartbeat", {}, read_lease_until)
    return replace(request, needs_key=False)


def heartbeat_many(
    claims: Iterable[AnyClaim], *, lease_seconds: float | None = None
) -> Request[Heartbeats]:
    """Keep up to 1,000 claims; the answer says which of them are lost. Those that were made with
    a lease other than their job's say so again."""
    beats = [
        Heartbeat(id=one.id, claim_id=one.claim_id, lease_seconds=lease_seconds) for one in claims
    ]
    request = writing("/api/jobs/heartbeat", {"claims": beats}, read_heartbeats)
    return replace(request, needs_key=False)


def complete(claim: AnyClaim, result: Any = None, *, then: Sequence[FollowUp] = ()) -> Request[Job]:
    """The job is done. Its follow-ups are made in the same transaction."""
    return _report(claim, "complete", {"result": result, "then": then or None}, read_job)


def fail(
    claim: AnyClaim,
    error: str,
    *,
    retryable: bool = True,
    retry_after_seconds: float | None = None,
) -> Request[Job]:
    """The attempt has failed: the job is tried again, or is dead."""
    body = {"error": error, "retryable": retryable, "retryAfterSeconds": retry_after_seconds}
    return _report(claim, "fail", body, read_job)


def snooze(claim: AnyClaim, until: datetime) -> Request[Job]:
    """Not yet: the job is looked at again then, and the attempt does not count."""
    return _report(claim, "snooze", {"until": until}, read_job)


def release(claim: AnyClaim) -> Request[Job]:
    """Give the job back to its place; the attempt does not count."""
    return _report(claim, "release", {}, read_job)


def report(results: Iterable[Result]) -> Request[list[Reported]]:
    """The outcomes of up to 1,000 claims. Each is decided by itself, in the order given."""
    told = list(results)
    return report_encoded(
        [one.id for one in told], [encoded(one, f"The result of job {one.id}") for one in told]
    )


def report_encoded(ids: Sequence[UUID], results: Iterable[bytes]) -> Request[list[Reported]]:
    """Of these jobs, each with what became of it."""
    return Request(
        method="POST",
        path="/api/jobs/results",
        content=b'{"results":[' + b",".join(results) + b"]}",
        headers=BRIEFLY,
        read=reports_reader(ids),
        needs_key=True,
    )


def cancel(job_id: UUID | str, *, reason: str | None = None) -> Request[Job]:
    """Nobody is to do this job any more, nor to finish it."""
    return writing(f"/api/jobs/{segment(job_id)}/cancel", given({"reason": reason}), read_job)


def retry(job_id: UUID | str, *, reason: str | None = None) -> Request[Job]:
    """A dead or cancelled job begins a new life."""
    return writing(f"/api/jobs/{segment(job_id)}/retry", given({"reason": reason}), read_job)


def get(job_id: UUID | str) -> Request[Job]:
    return reading(f"/api/jobs/{segment(job_id)}", {}, read_job)


def history(job_id: UUID | str) -> Request[list[dict[str, Any]]]:
    """Everything that happened to a job, oldest first."""
    return reading(f"/api/jobs/{segment(job_id)}/history", {}, read_history)


def list_jobs(
    *,
    queue: str | None = None,
    status: JobStatus | None = None,
    type: str | None = None,
    subject: str | None = None,
    page_size: int = PAGE_SIZE,
) -> Request[Page]:
    """All jobs that fit, read page by page."""
    chosen = {"queue": queue, "status": status, "type": type, "subject": subject}
    return reading("/api/jobs", {**chosen, "limit": page_size}, read_page)


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
    """Dead letters begin a new life, so many in a second; a dry run only counts them. With the
    count of a dry run as `expected_count` the service refuses (`count_grown`) if there are more by
    now. One request goes on for a few seconds: `next_cursor`, sent as `cursor`, goes on."""
    chosen = given({"queue": queue, "type": type, "error": error})
    body = {
        "filter": chosen or None,
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
    """Pause a queue, resume it, limit it, or say whether a dead job blocks its lane or is skipped.
    What is not named stays as it is."""
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
    """All queues, with their settings and how many jobs stand where."""
    return reading("/api/queues", {}, read_queues)


def _report(
    claim: AnyClaim, deed: str, body: Mapping[str, Any], read: Callable[[bytes], T]
) -> Request[T]:
    full = {"claimId": claim.claim_id, **given(body)}
    return writing(f"/api/jobs/{segment(claim.id)}/{deed}", full, read)
