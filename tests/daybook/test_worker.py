"""A worker in this process, against a service that answers in every way there is."""

import asyncio
import json
import logging
import random
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from daybook import (
    FIVE_MINUTE_LEASE,
    ClaimedJob,
    Fail,
    JSONLines,
    Lease,
    Refused,
    Retry,
    Snooze,
    Worker,
)
from daybook.errors import BadSetup
from daybook.held import Held
from tests.daybook.standin import Address, Body, Fault, StandIn, stand_in
from tests.daybook.test_worker_outcomes import make_job

pytestmark = pytest.mark.anyio

SECONDS_MAX = 10.0
CLAIM = "/api/jobs/claim"
HEARTBEAT = "/api/jobs/heartbeat"
RESULTS = "/api/jobs/results"


@pytest.fixture(scope="module")
def shared_address() -> Iterator[Address]:
    with stand_in() as address:
        yield address


@pytest.fixture
def address(shared_address: Address) -> Address:
    shared_address.standin.empty()
    return shared_address


@pytest.fixture
def standin(address: Address) -> StandIn:
    return address.standin


@pytest.fixture
def worker(address: Address) -> Worker:
    return Worker(address.url, queues=["email"], worker_id="w1", chance=random.Random(7))


@pytest.fixture(autouse=True)
def _quick_to_settle(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service is close by: a claim that gets a job gets it at once."""
    monkeypatch.setattr("daybook.shift.SETTLE_SECONDS_MAX", 0.05)


@pytest.fixture
def events(caplog: pytest.LogCaptureFixture) -> Callable[[str], list[dict[str, Any]]]:
    caplog.set_level(logging.INFO, "daybook")

    def find(event: str) -> list[dict[str, Any]]:
        return [vars(record) for record in caplog.records if record.message == event]

    return find


Events = Callable[[str], list[dict[str, Any]]]


@asynccontextmanager
async def working(worker: Worker) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(worker.serve())
    await asyncio.sleep(0)
    try:
        yield task
    finally:
        worker.stop()
        await asyncio.wait([task])


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while not holds():  # noqa: ASYNC110 (what it looks at is in another thread)
            await asyncio.sleep(0.005)


async def settled(standin: StandIn) -> list[Body]:
    """Waits until nothing is left to do."""
    await until(lambda: not {"PENDING", "PROCESSING"} & set(standin.statuses()))
    return list(standin.jobs.values())


async def test_a_handler_gets_the_job_and_its_value_is_the_result(
    worker: Worker, standin: StandIn
) -> None:
    @worker.job("greet")
    async def greet(job: ClaimedJob) -> str:
        return f"{job.payload['to']} {job.effect_key == f'{job.id}-1'} {job.attempts}"

    standin.add(payload={"to": "ada"})
    async with working(worker):
        (job,) = await settled(standin)

    assert (job["status"], job["result"]) == ("COMPLETED", "ada True 1")
    assert job["workerId"] == "w1"


async def test_a_plain_function_runs_in_a_thread(worker: Worker, standin: StandIn) -> None:
    @worker.job("greet")
    def greet(_job: ClaimedJob) -> bool:
        return threading.current_thread() is threading.main_thread()

    standin.add()
    async with working(worker):
        (job,) = await settled(standin)

    assert job["result"] is False


@pytest.mark.parametrize("kind", ["async", "thread"])
@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (Fail("No such address."), "DEAD", "No such address."),
        (ValueError("Odd."), "DEAD", "ValueError: Odd. (attempt 2 of 2)"),
        (Retry("Closed.", after=0), "DEAD", "Closed. (attempt 2 of 2)"),
        (SystemExit(3), "DEAD", "SystemExit: 3 (attempt 2 of 2)"),
        (StopIteration(), "DEAD", "attempt 2 of 2"),
        (asyncio.CancelledError(), "DEAD", "CancelledError (attempt 2 of 2)"),
    ],
)
async def test_an_error_fails_the_job_and_not_the_worker(
    worker: Worker, standin: StandIn, kind: str, error: BaseException, status: str, said: str
) -> None:
    if kind == "async":

        @worker.job("greet", attempts_max=2)
        async def greet(_job: ClaimedJob) -> None:
            raise error
    else:

        @worker.job("greet", attempts_max=2)
        def greet_in_thread(_job: ClaimedJob) -> None:
            raise error

    standin.add(attemptsMax=5)
    async with working(worker) as task:
        (job,) = await settled(standin)
        assert not task.done()

    assert job["status"] == status
    assert said in job["error"]


async def test_a_job_that_is_not_due_is_looked_at_again(worker: Worker, standin: StandIn) -> None:
    asked: list[int] = []

    @worker.job("greet", attempts_max=1)
    async def greet(job: ClaimedJob) -> None:
        asked.append(job.attempts)
        if len(asked) < 3:
            raise Snooze(seconds=0.02)

    standin.add(attemptsMax=1)
    async with working(worker):
        (job,) = await settled(standin)

    assert (job["status"], asked) == ("COMPLETED", [1, 1, 1])


async def test_what_follows_travels_with_the_completion(worker: Worker, standin: StandIn) -> None:
    @worker.job("issue_invoice", then="send_invoice_ready")
    async def issue(_job: ClaimedJob) -> dict[str, int]:
        return {"number": 7}

    @worker.job("send_invoice_ready")
    async def send(job: ClaimedJob) -> Any:
        return [job.subject, job.payload["number"]]

    standin.add("issue_invoice", subject="booking-42")
    async with working(worker):
        await until(lambda: standin.statuses() == ["COMPLETED"] * 2)

    assert list(standin.jobs.values())[1]["result"] == ["booking-42", 7]
    assert not standin.to("/api/jobs")


async def test_it_asks_for_what_it_knows_and_has_room_for(worker: Worker, standin: StandIn) -> None:
    @worker.job("greet")
    async def greet(_job: ClaimedJob) -> None: ...

    standin.add("unknown")
    async with working(worker):
        await until(lambda: bool(standin.to(CLAIM)))

    assert standin.to(CLAIM)[0].body == {
        "queues": ["email"],
        "types": ["greet"],
        "workerId": "w1",
        "limit": 10,
        "waitSeconds": 20,
    }
    assert standin.statuses() == ["PENDING"]


async def test_no_more_run_at_once_than_there_is_room_for(worker: Worker, standin: StandIn) -> None:
    running, most = 0, 0

    @worker.job("greet")
    async def greet(_job: ClaimedJob) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1

    for _ in range(30):
        standin.add()
    task = asyncio.create_task(worker.serve(concurrency=4))
    await settled(standin)
    worker.stop()
    await task

    assert most == 4
    assert max(seen.body["limit"] for seen in standin.to(CLAIM)) == 4


async def test_results_that_wait_are_reported_together(worker: Worker, standin: StandIn) -> None:
    @worker.job("greet")
    async def greet(_job: ClaimedJob) -> None: ...

    standin.faults.append(Fault(RESULTS, after_effect=True, delay_seconds=0.2, status=503))
    for _ in range(50):
        standin.add()
    task = asyncio.create_task(worker.serve(concurrency=50))
    await settled(standin)
    worker.stop()
    await task

    assert len(standin.to(CLAIM)[0].body) == 5
    assert [len(seen.body["results"]) for seen in standin.to(RESULTS)] == [50, 50]
    keys = {seen.headers["idempotency-key"] for seen in standin.to(RESULTS)}
    assert len(keys) == 1


async def test_handlers_are_ahead_of_reports_by_no_more_than_a_full_house(
    worker: Worker, standin: StandIn
) -> None:
    @worker.job("greet")
    async def greet(_job: ClaimedJob) -> None: ...

    standin.faults.append(Fault(RESULTS, after_effect=True, delay_seconds=0.3, status=503))
    for _ in range(100):
        standin.add()
    async with working(worker):
        await until(lambda: bool(standin.to(RESULTS)))
        await asyncio.sleep(0.2)
        assert standin.statuses().count("PROCESSING") == 20
        await settled(standin)


async def test_one_heartbeat_is_for_all_and_comes_at_a_third_of_the_lease(
    address: Address, standin: StandIn
) -> None:
    worker = Worker(address.url, queues=["email"], lease=Lease(seconds=0.3))

    @worker.job("greet")
    async def greet(_job: ClaimedJob) -> None:
        await asyncio.sleep(0.7)

    for _ in range(3):
        standin.add()
    async with working(worker):
        jobs = await settled(standin)

    assert [(job["status"], job["attempts"]) for job in jobs] == [("COMPLETED", 1)] * 3
    beats = standin.to(HEARTBEAT)
    assert all(len(seen.body["claims"]) == 3 for seen in beats)
    assert {claim["leaseSeconds"] for claim in beats[0].body["claims"]} == {0.3}
    assert 5 <= len(beats) <= 8


async def test_a_job_that_has_a_short_lease_of_its_own_keeps_it(
    worker: Worker, standin: StandIn
) -> None:
    @worker.job("greet")
    async def greet(job: ClaimedJob) -> None:
        await asyncio.sleep(0.5 if job.lease_seconds < 1 else 0.6)

    standin.add(), standin.add(leaseSeconds=0.3)
    async with working(worker):
        jobs = await settled(standin)

    assert [job["attempts"] for job in jobs] == [1, 1]
    assert "leaseSeconds" not in standin.to(CLAIM)[0].body


def test_a_heartbeat_is_a_third_of_the_lease_unless_it_is_said_otherwise() -> None:  # S1-04
    usual, patient = Held(make_job(), None), Held(make_job(), FIVE_MINUTE_LEASE)

    assert (usual.lease.seconds, usual.lease.beat_seconds) == (90, 30)
    assert (patient.lease.seconds, patient.lease.beat_seconds) == (300, 30)


def test_the_time_of_the_service_is_told_by_the_lease_it_gave() -> None:
    claimed_at = datetime(2026, 3, 1, 12, tzinfo=UTC)
    held = Held(make_job(lease_until=claimed_at + timedelta(seconds=90)), None)

    assert claimed_at <= held.server_now < claimed_at + timedelta(seconds=1)


async def test_a_handler_that_lost_its_claim_is_cancelled(
    address: Address, standin: StandIn, events: Events
) -> None:
    worker = Worker(address.url, queues=["email"], lease=Lease(seconds=0.3))
    ends: list[str] = []

    @worker.job("greet")
    async def greet(_job: ClaimedJob) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    job = standin.add()
    async with working(worker):
        await until(lambda: job["status"] == "PROCESSING")
        standin.lose(job)
        await until(lambda: ends == ["cancelled"])
        await until(lambda: bool(events("job:lost")))

    assert not standin.to(RESULTS)


async def test_a_thread_that_lost_its_claim_is_told(
    address: Address, standin: StandIn, events: Events
) -> None:
    worker = Worker(address.url, queues=["email"], lease=Lease(seconds=0.3))

    @worker.job("greet")
    def greet(job: ClaimedJob) -> str:
        assert job.lost.wait(SECONDS_MAX)
        return "too late"

    job = standin.add()
    async with working(worker):
        await until(lambda: job["status"] == "PROCESSING")
        standin.lose(job)
        await until(lambda: bool(events("job:lost")))

    assert not standin.to(RESULTS)


async def test_a_thread_that_goes_on_takes_up_its_place(address: Address, standin: StandIn) -> None:
    worker = Worker(address.url, queues=["email"], concurrency=1, lease=Lease(seconds=0.15))
    may_end = threading.Event()

    @worker.job("greet")
    def greet(job: ClaimedJob) -> None:
        if job.payload == "first":
            may_end.wait(SECONDS_MAX)

    first, second = standin.add(payload="first"), standin.add()
    async with working(worker):
        await until(lambda: first["status"] == "PROCESSING")
        standin.lose(first)
        await asyncio.sleep(0.3)
        assert second["status"] == "PENDING"
        may_end.set()
        await until(lambda: second["status"] == "COMPLETED")


async def test_a_result_that_comes_too_late_is_logged_and_no_more(
    worker: Worker, standin: StandIn, events: Events
) -> None:
    may_end = asyncio.Event()

    @worker.job("greet")
    async def greet(_job: ClaimedJob) -> None:
        await may_end.wait()

    job = standin.add()
    async with working(worker) as task:
        await until(lambda: job["status"] == "PROCESSING")
        standin.lose(job)
        may_end.set()
        await until(lambda: bool(events("job:lost")))
        assert not task.done()

    assert "no longer holds" in events("job:lost")[0]["error"]
    assert not events("job:completed")


async def test_a_result_that_is_refused_fails_its_job_and_no_other(
    worker: Worker, standin: StandIn
) -> None:
    @worker.job("greet")
    async def greet(job: ClaimedJob) -> str:
        await asyncio.sleep(0.05)
        return "\ufffd" if job.payload == 3 else "fine"

    for n in range(8):
        standin.add(payload=n)
    async with working(worker):
        jobs = await settled(standin)

    assert [job["status"] for job in jobs] == ["COMPLETED"] * 3 + ["DEAD"] + ["COMPLETED"] * 4
    assert jobs[3]["error"] == "The outcome was not taken. No text may hold the character NUL."


async def test_a_result_that_cannot_be_written_fails_its_job_and_no_other(
    worker: Worker, standin: StandIn
) -> None:
    @worker.job("greet")
    async def greet(job: ClaimedJob) -> Any:
        return object() if job.payload else None

    standin.add(payload=True), standin.add()
    async with working(worker):
        jobs = await settled(standin)

    assert [job["status"] for job in jobs] == ["DEAD", "COMPLETED"]
    assert "cannot be written as JSON" in jobs[0]["error"]


async def test_a_service_that_is_away_costs_no_work(standin: StandIn, events: Events) -> None:
    with stand_in() as address:
        standin = address.standin
        worker = Worker(address.url, queues=["email"])
        may_end = asyncio.Event()

        @worker.job("greet")
        async def greet(_job: ClaimedJob) -> str:
            await may_end.wait()
            return "done meanwhile"

        first = standin.add()
        async with working(worker):
            await until(lambda: first["status"] == "PROCESSING")
            await asyncio.to_thread(address.close)
            may_end.set()
            await asyncio.sleep(0.3)
            second = standin.add()
            await asyncio.to_thread(address.open)
            await until(lambda: second["status"] == "COMPLETED")

    assert (first["status"], first["result"]) == ("COMPLETED", "done meanwhile")
    assert (first["attempts"], second["attempts"]) == (1, 1)
    assert len(events("job:completed")) == 2


async def test_when_nobody_can_be_told_for_a_whole_lease_the_claim_is_given_up(
    events: Events,
) -> None:
    with stand_in() as address:
        worker = Worker(address.url, queues=["email"], lease=Lease(seconds=0.3))
        cancelled = asyncio.Event()

        @worker.job("greet")
        async def greet(_job: ClaimedJob) -> None:
            try:
                await asyncio.sleep(60)
            finally:
                cancelled.set()

        job = address.standin.add()
        async with working(worker):
            await until(lambda: job["status"] == "PROCESSING")
            await asyncio.to_thread(address.close)
            await asyncio.wait_for(cancelled.wait(), 2)
            await until(lambda: bool(events("job:lost")))

    assert events("heartbeat:failed")


async def test_a_service_that_stumbles_is_asked_again(
    worker: Worker, standin: StandIn, events: Events
) -> None:
    @worker.job("greet")
    async def greet(_job: ClaimedJob) -> None: ...

    content = b'{"code": "internal_error", "detail": "This is a defect."}'
    standin.faults += [Fault(CLAIM, 500, content=content), Fault(CLAIM)]
    job = standin.add()
    async with working(worker):
        await until(lambda: job["status"] == "COMPLETED")

    assert [event["code"] for event in events("worker:unavailable")] == ["internal_error"]


async def test_a_worker_that_may_not_claim_says_so_and_ends(
    worker: Worker, standin: StandIn
) -> None:
    @worker.job("greet")
    async def greet(_job: ClaimedJob) -> None: ...

    content = b'{"code": "schema", "detail": "The body does not fit: queues."}'
    standin.faults.append(Fault(CLAIM, 422, content=content))

    with pytest.raises(Refused, match="The body does not fit: queues"):
        await worker.serve()


async def test_what_runs_may_finish_when_it_stops(worker: Worker, standin: StandIn) -> None:
    has_begun = asyncio.Event()

    @worker.job("greet")
    async def greet(_job: ClaimedJob) -> str:
        has_begun.set()
        await asyncio.sleep(0.2)
        return "finished"

    job = standin.add()
    async with working(worker):
        await has_begun.wait()
        standin.add()

    assert (job["status"], job["result"]) == ("COMPLETED", "finished")
    assert standin.statuses() == ["COMPLETED", "PENDING"]


@pytest.mark.parametrize("kind", ["async", "thread", "stubborn"])
async def test_what_does_not_finish_is_given_back(
    address: Address, standin: StandIn, kind: str
) -> None:
    worker = Worker(address.url, queues=["email"], grace_seconds=0.1)

    if kind == "thread":

        @worker.job("greet")
        def wait(job: ClaimedJob) -> None:
            job.lost.wait(SECONDS_MAX)
    else:

        @worker.job("greet")
        async def sleep(_job: ClaimedJob) -> None:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                if kind != "stubborn":
                    raise
                await asyncio.sleep(1.1)

    job = standin.add()
    async with working(worker):
        await until(lambda: job["status"] == "PROCESSING")
        began = time.monotonic()

    assert time.monotonic() - began < 2
    assert (job["status"], job["attempts"], job["outcome"]) == ("PENDING", 0, "release")
    await asyncio.sleep(0.2)


async def test_what_finishes_when_it_is_cancelled_is_done(
    address: Address, standin: StandIn
) -> None:
    worker = Worker(address.url, queues=["email"], grace_seconds=0)
    has_begun = asyncio.Event()

    @worker.job("greet")
    async def greet(_job: ClaimedJob) -> str:
        has_begun.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "just in time"
        return ""

    job = standin.add()
    async with working(worker):
        await has_begun.wait()

    assert (job["status"], job["result"]) == ("COMPLETED", "just in time")


async def test_asked_twice_it_does_not_wait(worker: Worker, standin: StandIn) -> None:
    @worker.job("greet")
    async def greet(_job: ClaimedJob) -> None:
        await asyncio.sleep(60)

    job = standin.add()
    async with working(worker):
        await until(lambda: job["status"] == "PROCESSING")
        worker.stop()
        began = time.monotonic()

    assert time.monotonic() - began < 1
    assert (job["status"], job["outcome"]) == ("PENDING", "release")


async def test_a_worker_whose_task_is_cancelled_gives_back_what_it_has(
    worker: Worker, standin: StandIn
) -> None:
    @worker.job("greet")
    async def greet(_job: ClaimedJob) -> None:
        await asyncio.sleep(60)

    job = standin.add()
    task = asyncio.create_task(worker.serve())
    await until(lambda: job["status"] == "PROCESSING")
    task.cancel()
    await asyncio.wait([task])

    assert task.cancelled()
    assert (job["status"], job["outcome"]) == ("PENDING", "release")


async def test_jobs_that_come_when_it_stops_are_given_back(
    worker: Worker, standin: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    @worker.job("greet")
    async def greet(_job: ClaimedJob) -> None:
        raise AssertionError("it was to stop")

    monkeypatch.setattr("daybook.shift.SETTLE_SECONDS_MAX", 1)
    task = asyncio.create_task(worker.serve())
    await until(lambda: bool(standin.to(CLAIM)))
    worker.stop()
    job = standin.add()
    await task

    assert (job["status"], job["attempts"], job["outcome"]) == ("PENDING", 0, "release")


async def test_events_have_the_names_and_fields_of_the_sources(
    address: Address, standin: StandIn, events: Events
) -> None:  # S4-34, S4-35, S4-36
    worker = Worker(address.url, queues=["email"], subject_name="bookingId")

    @worker.job("issue_invoice")
    async def issue(job: ClaimedJob) -> None:
        await asyncio.sleep(0.02)
        if job.payload:
            raise OSError("Vendus API error")

    good = standin.add("issue_invoice", subject="42")
    bad = standin.add("issue_invoice", subject="43", payload=1, attemptsMax=1)
    async with working(worker):
        await settled(standin)

    def said(event: str, job: Body, *names: str) -> dict[str, Any]:
        (record,) = [one for one in events(event) if one["jobId"] == job["id"]]
        return {name: record[name] for name in ("bookingId", "type", *names)}

    processing = {"bookingId": "42", "type": "issue_invoice", "attempts": 1}
    assert said("job:processing", good, "attempts") == processing
    completed = said("job:completed", good, "durationMs")
    assert isinstance(completed.pop("durationMs"), int)
    assert completed == {"bookingId": "42", "type": "issue_invoice"}
    assert said("job:failed", bad, "error", "attempts", "status") == {
        "bookingId": "43",
        "type": "issue_invoice",
        "error": "OSError: Vendus API error",
        "attempts": 1,
        "status": "DEAD",
    }


def test_an_event_is_a_line_of_json() -> None:
    extra = {"jobId": "1", "odd": {1, 2}.__iter__()}
    record = logging.getLogger("daybook.worker").makeRecord(
        "daybook.worker", logging.INFO, "", 0, "job:processing", (), None, extra=extra
    )

    line = json.loads(JSONLines().format(record))

    assert list(line) == ["event", "at", "level", "jobId", "odd"]
    assert (line["event"], line["level"], line["jobId"]) == ("job:processing", "INFO", "1")


def test_a_worker_that_makes_no_sense_is_refused_at_once() -> None:
    wrongs: list[Any] = [[], "email"]
    for wrong in wrongs:
        with pytest.raises(BadSetup, match="at least one queue"):
            Worker("http://127.0.0.1:1", queues=wrong)
    with pytest.raises(BadSetup, match="at least one job"):
        Worker("http://127.0.0.1:1", queues=["email"], concurrency=0)
    worker = Worker("http://127.0.0.1:1", queues=["email"])
    with pytest.raises(BadSetup, match="at least one handler"):
        worker.run()
    worker.job("greet")(lambda _job: None)
    with pytest.raises(BadSetup, match="two handlers"):
        worker.job("greet")
