"""Claims, handlers, reports and log records of a worker."""

import asyncio
import json
import logging
import threading
from typing import Any

import pytest

from daybook import (
    ClaimedJob,
    Fail,
    JSONLines,
    Retry,
    Snooze,
    Worker,
)
from daybook.errors import BadSetup
from tests.support.fake_address import Address
from tests.support.fake_service import Body, Fault, StandIn
from tests.support.worker import CLAIM, RESULTS, Events, finished_jobs, until, working

pytestmark = pytest.mark.anyio


async def test_a_handler_gets_the_job_and_its_value_is_the_result(
    worker: Worker, standin: StandIn
) -> None:
    @worker.job("greet")
    async def greet(job: ClaimedJob) -> str:
        return f"{job.payload['to']} {job.effect_key == f'{job.id}-1'} {job.attempts}"

    standin.add(payload={"to": "ada"})
    async with working(worker):
        (job,) = await finished_jobs(standin)

    assert (job["status"], job["result"]) == ("COMPLETED", "ada True 1")
    assert job["workerId"] == "w1"


async def test_a_plain_function_runs_in_a_thread(worker: Worker, standin: StandIn) -> None:
    @worker.job("greet")
    def greet(_job: ClaimedJob) -> bool:
        return threading.current_thread() is threading.main_thread()

    standin.add()
    async with working(worker):
        (job,) = await finished_jobs(standin)

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
        (job,) = await finished_jobs(standin)
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
        (job,) = await finished_jobs(standin)

    assert (job["status"], asked) == ("COMPLETED", [1, 1, 1])


async def test_follow_ups_are_sent_with_the_completion(worker: Worker, standin: StandIn) -> None:
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


async def test_a_claim_names_known_types_and_the_free_capacity(
    worker: Worker, standin: StandIn
) -> None:
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
    await finished_jobs(standin)
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
    await finished_jobs(standin)
    worker.stop()
    await task

    assert len(standin.to(CLAIM)[0].body) == 5
    assert [len(seen.body["results"]) for seen in standin.to(RESULTS)] == [50, 50]
    keys = {seen.headers["idempotency-key"] for seen in standin.to(RESULTS)}
    assert len(keys) == 1


async def test_unreported_results_are_limited_to_the_concurrency(
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
        await finished_jobs(standin)


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
        jobs = await finished_jobs(standin)

    assert [job["status"] for job in jobs] == ["COMPLETED"] * 3 + ["DEAD"] + ["COMPLETED"] * 4
    assert jobs[3]["error"] == "The service refused the result. No text may hold the character NUL."


async def test_a_result_that_cannot_be_written_fails_its_job_and_no_other(
    worker: Worker, standin: StandIn
) -> None:
    @worker.job("greet")
    async def greet(job: ClaimedJob) -> Any:
        return object() if job.payload else None

    standin.add(payload=True), standin.add()
    async with working(worker):
        jobs = await finished_jobs(standin)

    assert [job["status"] for job in jobs] == ["DEAD", "COMPLETED"]
    assert "cannot be written as JSON" in jobs[0]["error"]


async def test_events_have_the_names_and_fields_of_the_sources(
    address: Address, standin: StandIn, events: Events
) -> None:  # S1-42, S4-34, S4-35, S4-36
    worker = Worker(address.url, queues=["email"], subject_name="bookingId")

    @worker.job("issue_invoice")
    async def issue(job: ClaimedJob) -> None:
        await asyncio.sleep(0.02)
        if job.payload:
            raise OSError("Vendus API error")

    good = standin.add("issue_invoice", subject="42")
    bad = standin.add("issue_invoice", subject="43", payload=1, attemptsMax=1)
    async with working(worker):
        await finished_jobs(standin)

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
    with pytest.raises(BadSetup, match="already registered"):
        worker.job("greet")
