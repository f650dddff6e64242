"""The clients against answers of every kind, over real connections."""

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

import daybook
from daybook import (
    AsyncClient,
    Claim,
    ClaimLost,
    Client,
    FollowUp,
    JobStatus,
    Limits,
    NewJob,
    NotFound,
    Rate,
    Refused,
    Result,
    ServerFault,
    Unavailable,
)
from daybook.answers import Answer, error_of, retry_after_seconds
from daybook.errors import BadSetup
from daybook.transport import Tries
from tests.daybook.standin import Address, Fault, StandIn
from tests.processes import ROOT

SHORT_SECONDS = 0.5


@pytest.fixture
def client(address: Address) -> Iterator[Client]:
    with Client(address.url, chance=random.Random(7)) as client:
        yield client


def test_a_job_is_made_with_everything_that_was_said_about_it(
    client: Client, standin: StandIn
) -> None:
    run_at = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)

    job = client.enqueue(
        "email", "greet", {"to": "ada", "at": run_at}, subject="booking-42", run_at=run_at
    )

    assert isinstance(job.id, UUID)
    assert (job.queue, job.type, job.status) == ("email", "greet", JobStatus.PENDING)
    assert job.payload == {"to": "ada", "at": "2030-01-02T03:04:05Z"}
    assert (job.subject, job.run_at) == ("booking-42", run_at)
    assert set(standin.seen[0].body) == {"queue", "type", "payload", "subject", "runAt"}


def test_a_unique_key_that_has_a_job_gives_that_one(client: Client) -> None:
    first = client.enqueue("email", "greet", unique_key="booking-42")
    second = client.enqueue("email", "greet", unique_key="booking-42")

    assert second.id == first.id


def test_many_jobs_are_made_in_one_call(client: Client, standin: StandIn) -> None:
    jobs = client.enqueue_many(NewJob(queue="email", type="greet", payload=n) for n in range(3))

    assert [job.payload for job in jobs] == [0, 1, 2]
    assert len(standin.seen) == 1


def test_who_needs_only_ids_gets_only_ids(client: Client, standin: StandIn) -> None:
    ids = client.enqueue_ids([NewJob(queue="email", type="greet")] * 2)

    assert [str(one) for one in ids] == list(standin.jobs)
    assert standin.seen[0].headers["prefer"] == "return=minimal"


def test_a_claim_is_kept_and_completed_with_what_follows(client: Client, standin: StandIn) -> None:
    standin.add("issue_invoice", subject="booking-42")
    (job,) = client.claim(["email"], worker_id="w1")

    assert client.heartbeat(job) > datetime.now(UTC) + timedelta(seconds=89)
    follow_up = FollowUp(type="send_invoice_ready", subject=job.subject)
    done = client.complete(job, {"number": 7}, then=[follow_up])

    assert (done.status, done.result) == (JobStatus.COMPLETED, {"number": 7})
    assert [job["type"] for job in standin.jobs.values()] == [
        "issue_invoice",
        "send_invoice_ready",
    ]


def test_a_claim_names_what_it_is_for(client: Client, standin: StandIn) -> None:
    client.claim(["email"], worker_id="w1", types=["greet"], limit=5, wait_seconds=0.01)

    assert standin.seen[0].body == {
        "queues": ["email"],
        "types": ["greet"],
        "workerId": "w1",
        "limit": 5,
        "waitSeconds": 0.01,
    }


def test_a_claim_may_be_named_by_its_ids_alone(client: Client, standin: StandIn) -> None:
    standin.add()
    (job,) = client.claim(["email"], worker_id="w1")

    released = client.release(Claim(id=job.id, claim_id=job.claim_id))

    assert (released.status, released.attempts) == (JobStatus.PENDING, 0)


def test_a_failure_says_whether_and_when_to_try_again(client: Client, standin: StandIn) -> None:
    standin.add()
    (job,) = client.claim(["email"], worker_id="w1")
    assert client.fail(job, "Busy.", retry_after_seconds=0).status is JobStatus.PENDING
    (job,) = client.claim(["email"], worker_id="w1", wait_seconds=1)
    assert client.fail(job, "No such address.", retryable=False).status is JobStatus.DEAD


def test_a_snoozed_job_waits_until_then(client: Client, standin: StandIn) -> None:
    standin.add()
    (job,) = client.claim(["email"], worker_id="w1")
    until = datetime(2030, 1, 1, tzinfo=UTC)

    assert client.snooze(job, until).run_at == until


def test_results_are_reported_together_and_refused_one_by_one(
    client: Client, standin: StandIn
) -> None:
    standin.add(), standin.add()
    first, second = client.claim(["email"], worker_id="w1", limit=2)
    standin.lose(standin.jobs[str(first.id)])

    lost, done = client.report(
        Result(id=job.id, claim_id=job.claim_id, outcome="done", result=1)
        for job in (first, second)
    )

    assert (lost.id, lost.status, lost.code) == (first.id, None, "claim_lost")
    assert (done.id, done.status, done.code) == (second.id, JobStatus.COMPLETED, None)


def test_many_heartbeats_say_which_claims_are_lost(client: Client, standin: StandIn) -> None:
    standin.add(), standin.add()
    first, second = client.claim(["email"], worker_id="w1", limit=2)
    standin.lose(standin.jobs[str(first.id)])

    beats = client.heartbeat_many([first, second])

    assert beats.lost == [first.claim_id]
    assert [held.claim_id for held in beats.held] == [second.claim_id]


def test_a_lost_claim_has_an_error_of_its_own(client: Client, standin: StandIn) -> None:
    standin.add()
    (job,) = client.claim(["email"], worker_id="w1")
    standin.lose(standin.jobs[str(job.id)])

    with pytest.raises(ClaimLost) as raised:
        client.complete(job)

    error = raised.value
    assert (error.code, error.status) == ("claim_lost", 409)
    assert str(error) == error.sentence == f"Claim {job.claim_id} no longer holds job {job.id}."


def test_what_is_not_there_is_not_found(client: Client) -> None:
    with pytest.raises(NotFound, match="There is no job"):
        client.get(uuid4())


def test_an_id_cannot_lead_to_another_path(client: Client, standin: StandIn) -> None:
    with pytest.raises(NotFound):
        client.get("../queues")

    assert standin.seen[0].path == "/api/jobs/../queues"


def test_a_refusal_is_not_sent_again(client: Client, standin: StandIn) -> None:
    with pytest.raises(Refused) as raised:
        client.enqueue_many([])

    assert (raised.value.code, raised.value.status) == ("schema", 422)
    assert len(standin.seen) == 1


def test_a_job_is_cancelled_retried_and_looked_up(client: Client, standin: StandIn) -> None:
    job_id = standin.add()["id"]

    assert client.cancel(job_id).status is JobStatus.CANCELLED
    assert client.retry(job_id).life == 2
    assert client.get(UUID(job_id)).status is JobStatus.PENDING
    assert client.history(job_id) == [{"type": "job.created", "jobId": job_id}]
    with pytest.raises(Refused, match="PENDING"):
        client.retry(job_id)


def test_a_list_reads_page_after_page(client: Client, standin: StandIn) -> None:
    ids = [standin.add()["id"] for _ in range(5)]
    standin.add(queue="other")

    listed = client.list(queue="email", status=JobStatus.PENDING, page_size=2)

    assert standin.seen == []
    assert [str(job.id) for job in listed] == ids
    assert [seen.query.partition("cursor=")[2] for seen in standin.seen] == ["", "2", "4"]


def test_dead_letters_are_listed_and_redriven(client: Client, standin: StandIn) -> None:
    standin.add("pay", status="DEAD"), standin.add("greet", status="DEAD"), standin.add()

    assert [job.type for job in client.dlq()] == ["pay", "greet"]
    counted = client.redrive(type="pay", dry_run=True)
    assert (counted.matched, counted.redriven) == (1, 0)
    assert client.redrive(rate_per_second=10).redriven == 2
    assert standin.seen[-1].body == {"ratePerSecond": 10, "dryRun": False}


def test_settings_of_a_queue_that_are_not_named_are_left_alone(
    client: Client, standin: StandIn
) -> None:
    client.set_queue("email", paused=True, rate=Rate(count=5, seconds=1))
    queue = client.set_queue("email", rate=None, per_subject=Limits(concurrency=1))

    assert [seen.body for seen in standin.seen] == [
        {"paused": True, "rate": {"count": 5, "seconds": 1}},
        {"rate": None, "perSubject": {"concurrency": 1}},
    ]
    assert (queue.paused, queue.rate, queue.per_subject) == (True, None, Limits(concurrency=1))
    assert client.queues() == [queue]


def test_a_write_whose_answer_was_lost_happens_once(client: Client, standin: StandIn) -> None:
    standin.faults.append(Fault("/api/jobs", after_effect=True))

    job = client.enqueue("email", "greet")

    assert list(standin.jobs) == [str(job.id)]
    first, second = standin.seen
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]


def test_every_write_has_a_key_of_its_own(client: Client, standin: StandIn) -> None:
    client.enqueue("email", "greet")
    client.enqueue("email", "greet")

    assert len({seen.headers["idempotency-key"] for seen in standin.seen}) == 2


def test_what_may_be_repeated_anyway_has_no_key(client: Client, standin: StandIn) -> None:
    job_id = standin.add()["id"]
    (job,) = client.claim(["email"], worker_id="w1")
    client.heartbeat(job)
    client.heartbeat_many([job])
    client.get(job_id)

    assert not [seen for seen in standin.seen if "idempotency-key" in seen.headers]


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_what_passes_is_tried_again(client: Client, standin: StandIn, status: int) -> None:
    standin.faults += [Fault("/api/queues", status=status, content=b"<html>")] * 2

    assert client.queues() == []
    assert len(standin.seen) == 3


def test_a_service_that_says_when_to_come_back_is_not_asked_before(
    client: Client, standin: StandIn
) -> None:
    # Others were in the way: nothing was done, and a second later it may be.
    content = b'{"code": "conflict", "detail": "Send it again."}'
    standin.faults.append(Fault("/api/jobs", 409, {"Retry-After": "1"}, content))

    client.enqueue("email", "greet")

    first, second = standin.seen
    assert 1 <= second.at - first.at < 1.4


def test_no_patience_is_wasted_on_a_service_that_is_away_for_longer(
    client: Client, standin: StandIn
) -> None:
    content = b'{"code": "unavailable", "detail": "The database is away."}'
    standin.faults.append(Fault("/api/jobs", 503, {"Retry-After": "60"}, content))
    began = time.monotonic()

    with pytest.raises(Unavailable) as raised:
        client.enqueue("email", "greet")

    assert time.monotonic() - began < 1
    assert (raised.value.code, raised.value.retry_after_seconds) == ("unavailable", 60)
    assert str(raised.value) == "The database is away."


def test_nobody_there_is_unavailable() -> None:
    with (
        Client("http://127.0.0.1:1", retry_seconds_max=SHORT_SECONDS) as client,
        pytest.raises(Unavailable) as raised,
    ):
        client.queues()

    assert raised.value.code == "unreachable"
    assert "http://127.0.0.1:1" in str(raised.value)


def test_rests_grow_and_end_with_the_time_limit() -> None:
    chance, failure = random.Random(7), Unavailable("Away.", code="unavailable")

    def rests() -> Iterator[float]:
        tries = Tries(3600, chance)
        while True:
            yield tries.rest_seconds(failure)

    for series in [rests() for _ in range(50)]:
        limits = [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
        assert all(0 <= next(series) <= limit for limit in limits)
    with pytest.raises(Unavailable):
        Tries(0, chance).rest_seconds(failure)


def test_a_moment_to_come_back_is_read_by_the_clock_of_who_said_it() -> None:
    headers = {
        "date": "Wed, 21 Oct 2015 07:28:00 GMT",
        "retry-after": "Wed, 21 Oct 2015 07:28:30 GMT",
    }

    assert retry_after_seconds(headers) == 30
    assert retry_after_seconds({"retry-after": headers["retry-after"]}) is None
    assert retry_after_seconds({"retry-after": "soon"}) is None
    assert retry_after_seconds({"retry-after": "2"}) == 2


def test_a_defect_of_the_service_is_neither_a_refusal_nor_repeated(
    client: Client, standin: StandIn
) -> None:
    content = b'{"code": "internal_error", "detail": "This is a defect."}'
    standin.faults.append(Fault("/api/jobs", 500, content=content))

    with pytest.raises(ServerFault, match=r"This is a defect\."):
        client.enqueue("email", "greet")

    assert len(standin.seen) == 1


@pytest.mark.parametrize("content", [b"<html>", b"{}", b'{"queues": 1}', b"\xff"])
def test_an_answer_that_cannot_be_read_is_an_error_of_the_service(
    client: Client, standin: StandIn, content: bytes
) -> None:
    standin.faults.append(Fault("/api/queues", 200, content=content))

    with pytest.raises(ServerFault) as raised:
        client.queues()

    assert raised.value.code == "unreadable_answer"


def test_an_answer_without_a_reason_is_still_a_sentence() -> None:
    error = error_of(Answer(418, {}, b"\xff"))

    assert isinstance(error, Refused)
    assert (error.code, str(error)) == ("http_418", "The answer was 418, without a reason.")


def test_calls_share_a_connection(client: Client, standin: StandIn) -> None:
    for _ in range(3):
        client.queues()

    assert len({seen.peer for seen in standin.seen}) == 1


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://there", "http://", ""])
def test_an_address_that_is_none_is_refused_at_once(url: str) -> None:
    with pytest.raises(BadSetup, match="is not an address"):
        Client(url)


@pytest.mark.anyio
async def test_the_asynchronous_client_does_the_same(address: Address, standin: StandIn) -> None:
    standin.faults.append(Fault("/api/jobs", after_effect=True))

    async with AsyncClient(address.url) as client:
        made = await client.enqueue("email", "greet", {"to": "ada"})
        (job,) = await client.claim(["email"], worker_id="w1")
        done = await client.complete(job, {"sent": True})
        listed = [job async for job in client.list(page_size=1)]
        with pytest.raises(ClaimLost):
            await client.release(job)

    assert made.id == job.id == done.id
    assert [one.id for one in listed] == [job.id]
    assert listed[0].result == {"sent": True}


@pytest.mark.anyio
async def test_an_asynchronous_list_reads_page_after_page(
    address: Address, standin: StandIn
) -> None:
    ids = [standin.add()["id"] for _ in range(3)]

    async with AsyncClient(address.url) as client:
        assert [str(job.id) async for job in client.list(page_size=2)] == ids


def test_importing_it_imports_nothing_of_the_service() -> None:
    script = (
        "import sys, daybook;"
        "server = {'api', 'domain', 'eventlog', 'processors', 'projections', 'bench',"
        "          'psycopg', 'starlette', 'uvicorn', 'eventsourcing', 'click'};"
        "print(sorted(server & sys.modules.keys()))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert loaded.stdout == "[]\n"


def test_what_it_exports_is_there() -> None:
    assert [name for name in daybook.__all__ if not hasattr(daybook, name)] == []
