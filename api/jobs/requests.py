"""Request bodies of the job endpoints."""

from typing import Annotated, Literal
from uuid import UUID

from msgspec import Meta, Raw, field

from daybook.api.endpoints.command import Body
from daybook.api.http.request_reader import BATCH_MAX, Id, unprocessable
from daybook.api.settings.limits import KILOBYTE
from daybook.domain.jobs.create import FollowUp, JobRequest
from daybook.domain.jobs.job import NULL
from daybook.domain.jobs.work import Outcome
from daybook.domain.values import PAYLOAD_BYTES_MAX, Error, Instant, RestSeconds, check_instant

FOLLOW_UPS_MAX = 20


# The name is that of the schema in the OpenAPI description.
class NewJobBody(JobRequest, frozen=True):
    pass


class NewJobs(Body, frozen=True):
    jobs: Annotated[list[NewJobBody], Meta(min_length=1, max_length=BATCH_MAX)]
    answer: Literal["job", "jobs", "ids"] = "jobs"
    """The form of the response; set by the endpoint, not by clients."""


FollowUps = Annotated[tuple[FollowUp, ...], Meta(max_length=FOLLOW_UPS_MAX)]


class JobCompletion(Body, frozen=True):
    claim_id: Id
    result: Raw = field(default_factory=lambda: NULL)
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
    result: Raw = field(default_factory=lambda: NULL)
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
