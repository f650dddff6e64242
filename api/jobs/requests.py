"""Request bodies of the job endpoints."""

from typing import Annotated, Literal
from uuid import UUID

from msgspec import Meta, Raw, field

from daybook.api.endpoints.command import Body
from daybook.api.http.request_reader import BATCH_MAX, Id, unprocessable
from daybook.api.settings.limits import KILOBYTE
from daybook.domain.jobs.create import ATTEMPTS_MAX, LEASE_SECONDS, PRIORITY_USUAL
from daybook.domain.jobs.job import NULL, OnDead, UniqueScope
from daybook.domain.jobs.work import Outcome
from daybook.domain.values import (
    PAYLOAD_BYTES_MAX,
    Attempts,
    Error,
    Instant,
    LeaseSeconds,
    Name,
    Priority,
    RestSeconds,
    Text,
    check_instant,
)

FOLLOW_UPS_MAX = 20


def null_payload() -> Raw:
    return NULL


class NewJobBody(Body, frozen=True):
    queue: Name
    type: Name
    payload: Raw = field(default_factory=null_payload)
    priority: Priority = PRIORITY_USUAL
    subject: Text | None = None
    unique_key: Text | None = None
    unique_scope: UniqueScope = UniqueScope.FOREVER
    on_dead: OnDead = OnDead.RETURN
    """Policy for a dead job of this unique key: return it, or retry it with its own payload."""

    attempts_max: Attempts = ATTEMPTS_MAX
    lease_seconds: LeaseSeconds = LEASE_SECONDS
    run_at: Instant | None = None
    partition: Text | None = None

    def __post_init__(self) -> None:
        check_instant(self.run_at)


class FollowUp(Body, frozen=True):
    """A job created by the completion of another, by default in the same queue."""

    type: Name
    queue: Name | None = None
    payload: Raw = field(default_factory=null_payload)
    priority: Priority = PRIORITY_USUAL
    subject: Text | None = None
    attempts_max: Attempts = ATTEMPTS_MAX
    lease_seconds: LeaseSeconds = LEASE_SECONDS
    run_at: Instant | None = None
    partition: Text | None = None

    def __post_init__(self) -> None:
        check_instant(self.run_at)


class NewJobs(Body, frozen=True):
    jobs: Annotated[list[NewJobBody], Meta(min_length=1, max_length=BATCH_MAX)]
    answer: Literal["job", "jobs", "ids"] = "jobs"
    """The form of the response; set by the endpoint, not by clients."""


FollowUps = Annotated[tuple[FollowUp, ...], Meta(max_length=FOLLOW_UPS_MAX)]


class JobCompletion(Body, frozen=True):
    claim_id: Id
    result: Raw = field(default_factory=null_payload)
    then: FollowUps = ()


class JobFailure(Body, frozen=True):
    claim_id: Id
    error: Error
    retryable: bool = True
    retry_after_seconds: RestSeconds | None = None


class SnoozeBody(Body, frozen=True):
    claim_id: Id
    until: Instant

    def __post_init__(self) -> None:
        check_instant(self.until)


class ClaimBody(Body, frozen=True):
    claim_id: Id


class JobResultBody(Body, frozen=True):
    # UUID, not Id: decoding batches of 1,000 results is twice as fast.
    id: UUID
    claim_id: UUID
    outcome: Outcome
    result: Raw = field(default_factory=null_payload)
    error: Error = ""
    retry_after_seconds: RestSeconds | None = None
    until: Instant | None = None
    then: FollowUps = ()

    def __post_init__(self) -> None:
        check_instant(self.until)


class Results(Body, frozen=True):
    results: Annotated[list[JobResultBody], Meta(min_length=1, max_length=BATCH_MAX)]


def check_payload_size(payload: Raw) -> Raw:
    if memoryview(payload).nbytes > PAYLOAD_BYTES_MAX:
        raise unprocessable(
            "payload_too_large",
            f"A payload or result must be at most {PAYLOAD_BYTES_MAX // KILOBYTE} KB: "
            "store it elsewhere and send a reference.",
        )
    return payload
