"""Worker processes that receive signals, crash and hang."""

import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_address import Address
from tests.support.fake_service import Body, StandIn
from tests.support.running.processes import ROOT, Process, environment, eventually

# What every worker of these tests can do. How long a job takes stands in its payload.
MODULE = """
import asyncio
import os
import time

from daybook import Lease, Worker

worker = Worker(
    {url!r}, queues=["email"], lease=Lease(seconds={lease_seconds}), grace_seconds={grace_seconds}
)


@worker.job("nap")
async def nap(job):
    await asyncio.sleep(job.payload)
    return os.getpid()


@worker.job("block")
def block(job):
    time.sleep(job.payload)
    return os.getpid()


@worker.job("hog")
async def hog(job):
    time.sleep(job.payload)


if __name__ == "__main__":
    worker.run()
"""


class WorkerProcess(Process):
    """A worker process and the events that it logs."""

    def events(self, name: str) -> list[dict[str, Any]]:
        lines = [line for line in [*self.lines] if line.startswith("{")]
        return [one for one in map(json.loads, lines) if one["event"] == name]


Start = Callable[..., WorkerProcess]


@pytest.fixture
def start(address: Address, tmp_path: Path) -> Iterator[Start]:
    """Starts a worker, and ends all of them afterwards."""
    started: list[WorkerProcess] = []

    def start_one(
        arguments: list[str] | None = None, *, lease_seconds: float = 90, grace_seconds: float = 20
    ) -> WorkerProcess:
        text = MODULE.format(
            url=address.url, lease_seconds=lease_seconds, grace_seconds=grace_seconds
        )
        (tmp_path / "naps.py").write_text(text)
        program = [sys.executable, *(arguments or ["-m", "naps"])]
        variables = environment(PYTHONPATH=str(ROOT))
        started.append(WorkerProcess(program, cwd=tmp_path, variables=variables))
        return started[-1]

    yield start_one
    for one in started:
        # Without a wait for the job that it may have.
        one.kill()
        one.end()


def becomes(job: Body, status: str) -> bool:
    return eventually(lambda: job["status"] == status)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_job_finish_and_the_worker_exit_clean(
    start: Start, standin: StandIn, number: signal.Signals
) -> None:  # S1-21
    job = standin.add("nap", payload=0.3)
    worker = start()
    assert worker.says("job:processing")

    worker.signal(number)
    later = standin.add("nap", payload=0)

    assert worker.wait() == 0
    assert (job["status"], job["result"]) == ("COMPLETED", worker.process.pid)
    assert (later["status"], later["attempts"]) == ("PENDING", 0)
    assert "Traceback" not in worker.output


def test_the_command_line_runs_a_worker_too(start: Start, standin: StandIn) -> None:
    job = standin.add("nap", payload=0.2)
    worker = start(["-m", "daybook", "worker", "naps:worker", "--concurrency", "2"])
    assert worker.says("job:processing")

    worker.signal(signal.SIGTERM)

    assert worker.wait() == 0
    assert job["status"] == "COMPLETED"
    assert standin.to("/api/jobs/claim")[0].body["limit"] == 2
    assert "Traceback" not in worker.output


def test_an_idle_worker_stops_at_once(start: Start, standin: StandIn) -> None:
    worker = start()
    assert eventually(lambda: bool(standin.to("/api/jobs/claim")))
    began = time.monotonic()

    worker.signal(signal.SIGTERM)

    assert worker.wait() == 0
    assert time.monotonic() - began < 1


@pytest.mark.parametrize("kind", ["nap", "block"])
def test_unfinished_jobs_are_released_after_the_grace(
    start: Start, standin: StandIn, kind: str
) -> None:
    job = standin.add(kind, payload=60)
    worker = start(grace_seconds=0.3)
    assert worker.says("job:processing")
    began = time.monotonic()

    worker.signal(signal.SIGTERM)

    assert worker.wait() == 0
    assert time.monotonic() - began < 2
    assert (job["status"], job["attempts"], job["outcome"]) == ("PENDING", 0, "release")
    assert len(worker.events("job:released")) == 1


@pytest.mark.parametrize("kind", ["nap", "block"])
def test_a_second_signal_does_not_wait_for_the_grace(
    start: Start, standin: StandIn, kind: str
) -> None:
    job = standin.add(kind, payload=60)
    worker = start()
    assert worker.says("job:processing")

    worker.signal(signal.SIGTERM)
    assert worker.says("worker:stopping")
    worker.signal(signal.SIGTERM)

    assert worker.wait() == 0
    assert (job["status"], job["outcome"]) == ("PENDING", "release")


def test_a_third_signal_ends_even_one_that_hangs(start: Start, standin: StandIn) -> None:
    standin.add("hog", payload=60)
    worker = start()
    assert worker.says("job:processing")

    while worker.process.poll() is None:
        worker.signal(signal.SIGTERM)
        time.sleep(0.1)

    assert worker.process.returncode == -signal.SIGTERM


@pytest.mark.slow
def test_a_job_whose_worker_was_killed_is_done_by_another(
    start: Start, standin: StandIn
) -> None:  # S1-16
    job = standin.add("nap", payload=0.5)
    first = start(lease_seconds=1)
    assert first.says("job:processing")
    first.kill()
    killed_at = time.monotonic()

    second = start(lease_seconds=1)

    assert becomes(job, "COMPLETED")
    assert time.monotonic() - killed_at < 1 + 1 + 0.5 + 1
    assert (job["result"], job["attempts"], job["crashes"]) == (second.process.pid, 2, 1)


@pytest.mark.slow
def test_a_zombie_cannot_complete_the_job_it_lost(start: Start, standin: StandIn) -> None:
    job = standin.add("nap", payload=0.5)
    zombie = start(lease_seconds=1)
    assert zombie.says("job:processing")
    zombie.signal(signal.SIGSTOP)
    second = start(lease_seconds=1)
    assert becomes(job, "COMPLETED")

    zombie.signal(signal.SIGCONT)

    assert zombie.says("job:lost")
    assert not zombie.events("job:completed")
    assert job["result"] == second.process.pid
    zombie.signal(signal.SIGTERM)
    assert zombie.wait() == 0


def test_three_workers_do_each_job_once(start: Start, standin: StandIn) -> None:  # S1-15
    jobs = [standin.add("block", payload=0.001) for _ in range(200)]
    workers = [start() for _ in range(3)]

    assert eventually(lambda: set(standin.statuses()) == {"COMPLETED"})

    assert {job["attempts"] for job in jobs} == {1}
    for worker in workers:
        worker.signal(signal.SIGTERM)
    assert [worker.wait() for worker in workers] == [0, 0, 0]
    assert sum(len(worker.events("job:completed")) for worker in workers) == 200


@pytest.mark.slow
def test_a_worker_that_starts_before_the_service_waits_for_it(
    start: Start, address: Address, standin: StandIn
) -> None:
    address.close()
    job = standin.add("nap", payload=0)
    worker = start()
    assert worker.says("worker:unavailable")

    address.open()

    assert becomes(job, "COMPLETED")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("nowhere:worker", "There is no module 'nowhere' here.\n"),
        ("naps:nobody", "There is no worker 'nobody' in naps.\n"),
        ("naps", "'naps' does not name a worker: write it as MODULE:WORKER.\n"),
    ],
)
def test_a_worker_that_cannot_be_found_is_one_sentence(
    start: Start, target: str, sentence: str
) -> None:
    worker = start(["-m", "daybook", "worker", target])

    assert worker.wait() == 2
    assert worker.output == sentence


def test_an_address_that_is_none_is_one_sentence(start: Start) -> None:
    worker = start(["-m", "daybook", "worker", "naps:worker", "--url", "here"])

    assert worker.wait() == 2
    assert worker.output == (
        "'here' is not an address such as http://127.0.0.1:8000, nor that of a database, such as "
        "postgresql://localhost/shop.\n"
    )


def test_a_worker_logs_lines_of_json(start: Start, standin: StandIn) -> None:
    job = standin.add("nap", payload=0, subject="booking-42")
    worker = start()
    assert worker.says("job:completed")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0

    lines = [json.loads(line) for line in worker.output.splitlines()]
    assert [line["event"] for line in lines] == [
        "worker:started",
        "job:processing",
        "job:completed",
        "worker:stopping",
        "worker:stopped",
    ]
    processing = lines[1]
    assert (processing["jobId"], processing["subject"]) == (job["id"], "booking-42")


def test_the_worker_of_the_documentation_works(
    start: Start, standin: StandIn, address: Address, tmp_path: Path
) -> None:
    text = (ROOT / "docs" / "worker.md").read_text()
    worker_text, client_text = (part.partition("```")[0] for part in text.split("```python\n")[1:])
    (tmp_path / "mymodule.py").write_text(worker_text)
    client_text = client_text.replace("Client()", f"Client({address.url!r})")
    (tmp_path / "client.py").write_text(client_text)
    refused = {"to": "nobody", "invoice": 7}
    bad = standin.add("send_customer_confirmation", payload=refused)

    assert start(["client.py"]).wait() == 0
    (good,) = [job for job in standin.jobs.values() if job is not bad]
    good["payload"]["invoice"] = 7
    worker = start(["-m", "daybook", "worker", "mymodule:worker", "--url", address.url])

    assert becomes(good, "COMPLETED")
    assert becomes(bad, "DEAD")
    assert (good["subject"], good["result"]["sent"]) == ("booking-42", "ada@example.com")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
