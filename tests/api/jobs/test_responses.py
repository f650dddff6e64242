"""The JSON of a job: every member has the value of its name, in both forms."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import orjson
import pytest
from msgspec import Raw, to_builtins
from msgspec.json import decode
from msgspec.structs import replace

from daybook.api.jobs.responses import JobJSON, brief_jobs, job_dict, job_json
from daybook.client.jobs import ClaimedJob
from daybook.domain.jobs.job import Job, JobClaim, JobStatus, UniqueScope

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
JOB = Job(
    id=UUID(int=1),
    version=2,
    number=3,
    queue="email",
    type="send",
    priority=4,
    payload=Raw('{"to": "ü"}'.encode()),
    status=JobStatus.DEAD,
    attempts=5,
    attempts_max=6,
    lease_seconds=7.5,
    created_at=NOON,
    updated_at=NOON + timedelta(seconds=1),
    life=8,
    failures=9,
    crashes=10,
    interruptions=11,
    run_at=NOON + timedelta(seconds=2),
    claim=JobClaim(
        UUID(int=2), NOON + timedelta(seconds=3), NOON + timedelta(seconds=4), "worker-1"
    ),
    subject="booking-1",
    unique_key="k",
    unique_scope=UniqueScope.FOREVER,
    partition="lane",
    tags=("vip", "eu"),
    error="no",
    result=Raw(b"[1]"),
)
TOLD = {
    "id": "00000000-0000-0000-0000-000000000001",
    "queue": "email",
    "type": "send",
    "status": "DEAD",
    "priority": 4,
    "payload": {"to": "ü"},
    "subject": "booking-1",
    "uniqueKey": "k",
    "uniqueScope": "forever",
    "partition": "lane",
    "tags": ["vip", "eu"],
    "attempts": 5,
    "attemptsMax": 6,
    "failures": 9,
    "crashes": 10,
    "interruptions": 11,
    "life": 8,
    "effectKey": "00000000-0000-0000-0000-000000000001-8",
    "leaseSeconds": 7.5,
    "runAt": "2026-01-01T12:00:02.000Z",
    "claimId": "00000000-0000-0000-0000-000000000002",
    "workerId": "worker-1",
    "startedAt": "2026-01-01T12:00:03.000Z",
    "leaseUntil": "2026-01-01T12:00:04.000Z",
    "result": [1],
    "error": "no",
    "createdAt": "2026-01-01T12:00:00.000Z",
    "updatedAt": "2026-01-01T12:00:01.000Z",
    "finishedAt": "2026-01-01T12:00:01.000Z",
    "version": 2,
}


def test_every_member_has_the_value_of_its_name() -> None:
    assert job_dict(JOB) == TOLD
    assert [*TOLD] == [*JobJSON.__annotations__]


def test_an_encoded_job_can_be_embedded() -> None:
    assert orjson.loads(orjson.dumps({"jobs": [job_json(JOB)] * 2})) == {"jobs": [TOLD, TOLD]}


# As most jobs are: everything that can be left out is.
USUAL = Job(
    id=UUID(int=1),
    version=2,
    number=3,
    queue="email",
    type="send",
    priority=5,
    payload=Raw(b"null"),
    status=JobStatus.PROCESSING,
    attempts=1,
    attempts_max=3,
    lease_seconds=90.0,
    created_at=NOON,
    updated_at=NOON,
    claim=JOB.claim,
)


@pytest.mark.parametrize("job", [replace(JOB, status=JobStatus.PROCESSING, run_at=None), USUAL])
def test_a_client_reads_the_same_job_from_a_minimal_response(job: Job) -> None:
    job = replace(job, result=Raw(b"null"))
    # The client sees the same job in both forms.
    found = {*ClaimedJob.__struct_fields__, "effect_key"} - {"sent_effect_key", "lost"}
    briefly = orjson.dumps({"jobs": brief_jobs([job])})
    at_length = orjson.dumps({"jobs": [job_json(job)]})
    read, expected = (
        to_builtins({name: getattr(one, name) for name in found})
        for body in (briefly, at_length)
        for one in decode(body, type=dict[str, list[ClaimedJob]])["jobs"]
    )
    assert read == expected


def test_default_members_of_a_job_are_omitted() -> None:
    (body,) = orjson.loads(orjson.dumps(brief_jobs([USUAL])))
    assert (
        not {"priority", "subject", "tags", "attemptsMax", "leaseSeconds", "life", "effectKey"}
        & body.keys()
    )
