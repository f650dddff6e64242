"""Both clients over real connections."""

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

import daybook
from daybook import (
    AsyncClient,
    BadValue,
    Claim,
    ClaimLost,
    Client,
    DaybookError,
    FollowUp,
    JobStatus,
    Limits,
    NewJob,
    NewMessage,
    NotFound,
    Rate,
    Refused,
    Result,
)
from daybook.errors import BadSetup
from tests.support.fake_address import Address
from tests.support.fake_service import Fault, StandIn
from tests.support.running.processes import ROOT

SHORT_SECONDS = 0.5


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


def test_a_dead_job_is_restarted_only_on_request(client: Client, standin: StandIn) -> None:
    client.enqueue("email", "greet", unique_key="booking-42")
    client.enqueue("email", "greet", unique_key="booking-42", on_dead="restart")
    client.enqueue_many([NewJob(queue="email", type="greet", unique_key="k", on_dead="restart")])

    usual, one, many = [seen.body for seen in standin.seen]
    assert "onDead" not in usual
    assert one["onDead"] == many["jobs"][0]["onDead"] == "restart"


def test_many_jobs_are_made_in_one_call(client: Client, standin: StandIn) -> None:
    jobs = client.enqueue_many(NewJob(queue="email", type="greet", payload=n) for n in range(3))

    assert [job.payload for job in jobs] == [0, 1, 2]
    assert len(standin.seen) == 1


def test_enqueue_ids_returns_ids_only(client: Client, standin: StandIn) -> None:
    ids = client.enqueue_ids([NewJob(queue="email", type="greet")] * 2)

    assert [str(one) for one in ids] == list(standin.jobs)
    assert standin.seen[0].headers["prefer"] == "return=minimal"


def test_a_claim_is_extended_and_completed_with_follow_ups(
    client: Client, standin: StandIn
) -> None:
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


def test_a_claim_names_queues_types_and_limit(client: Client, standin: StandIn) -> None:
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

    heartbeats = client.heartbeat_many([first, second])

    assert heartbeats.lost == [first.claim_id]
    assert [claim.claim_id for claim in heartbeats.held] == [second.claim_id]


def test_a_lost_claim_has_an_error_of_its_own(client: Client, standin: StandIn) -> None:
    standin.add()
    (job,) = client.claim(["email"], worker_id="w1")
    standin.lose(standin.jobs[str(job.id)])

    with pytest.raises(ClaimLost) as raised:
        client.complete(job)

    error = raised.value
    assert (error.code, error.status) == ("claim_lost", 409)
    assert str(error) == error.sentence == f"Claim {job.claim_id} no longer holds job {job.id}."


def test_a_missing_resource_is_not_found(client: Client) -> None:
    with pytest.raises(NotFound, match="There is no job"):
        client.get(uuid4())


def test_an_id_cannot_lead_to_another_path(client: Client, standin: StandIn) -> None:
    with pytest.raises(NotFound):
        client.get("../queues")

    assert standin.seen[0].path == "/api/jobs/../queues"


CLAIM = Claim(id=uuid4(), claim_id=uuid4())
CALLS: dict[str, Callable[[Client, Any], Any]] = {
    "enqueue": lambda client, value: client.enqueue("email", "greet", value),
    "enqueue_many": lambda client, value: client.enqueue_many(
        [NewJob(queue="email", type="greet", payload=value)]
    ),
    "complete": lambda client, value: client.complete(CLAIM, value),
    "then": lambda client, value: client.complete(CLAIM, then=[FollowUp(type="t", payload=value)]),
    "report": lambda client, value: client.report(
        [Result(id=CLAIM.id, claim_id=CLAIM.claim_id, outcome="done", result=value)]
    ),
    "push": lambda client, value: client.push([NewMessage(queue="email", payload=value)]),
}


def circular() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize("call", CALLS)
def test_a_value_that_json_has_no_form_for_is_an_error_of_ours_and_is_not_sent(
    client: Client, standin: StandIn, call: str
) -> None:
    for value in (object(), {"a": {1j}}, "\ud800", circular()):
        with pytest.raises(BadValue) as refused:
            CALLS[call](client, value)
        assert isinstance(refused.value, DaybookError)
        assert refused.value.code == "unencodable"
        assert "cannot be written as JSON: " in str(refused.value)
    assert standin.seen == []


@pytest.mark.anyio
async def test_the_async_client_says_the_same(address: Address) -> None:
    async with AsyncClient(address.url) as client:
        with pytest.raises(BadValue):
            await client.enqueue("email", "greet", object())


def test_an_address_that_is_no_utf_8_is_an_error_of_ours(client: Client, standin: StandIn) -> None:
    for call in (
        lambda: client.get("\ud800"),
        lambda: client.set_queue("\ud800"),
        lambda: [*client.list(queue="\ud800")],
    ):
        with pytest.raises(BadValue):
            call()
    assert standin.seen == []


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
    client.redrive(expected_count=1, limit=1, cursor="c")
    named = {"expectedCount": 1, "limit": 1, "cursor": "c", "dryRun": False}
    assert standin.seen[-1].body == named


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


def test_every_exported_name_exists() -> None:
    assert [name for name in daybook.__all__ if not hasattr(daybook, name)] == []
