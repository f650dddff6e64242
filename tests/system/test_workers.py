"""Real workers on a real service: what the sources of the workshop promise, one by one."""

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from daybook import Client, JobStatus, NewJob
from tests.support.running.processes import DaybookProcess, eventually
from tests.support.running.service_process import ServiceWithPostgres

pytestmark = pytest.mark.slow

LEASE_SECONDS = 2.0


class Crew:
    def __init__(self, url: str, notes: Path) -> None:
        self.client = Client(url)
        self._notes = notes
        self._variables = {
            "CREW_URL": url,
            "CREW_NOTES": str(notes),
            "CREW_LEASE_SECONDS": str(LEASE_SECONDS),
        }
        self.workers: list[DaybookProcess] = []

    def worker(self) -> DaybookProcess:
        started = DaybookProcess(
            "worker", "tests.support.running.worker_target:worker", **self._variables
        )
        self.workers.append(started)
        return started

    def notes(self, what: str = "done") -> list[str]:
        """Ids of the jobs that something was noted about, once for each time."""
        lines = self._notes.read_text().splitlines() if self._notes.exists() else []
        return [line.split()[1] for line in lines if line.startswith(f"{what} ")]

    def has_noted(self, count: int) -> bool:
        return len(self.notes()) == count

    def job(self, type_: str) -> str:
        return str(self.client.enqueue("crew", type_).id)

    def status(self, job_id: str) -> str:
        return str(self.client.get(job_id).status.value)


@pytest.fixture
def crew(own_service: ServiceWithPostgres, tmp_path: Path) -> Iterator[Crew]:
    assert own_service.becomes(200)
    one = Crew(own_service.url, tmp_path / "notes")
    try:
        yield one
    finally:
        for worker in one.workers:
            worker.end()
        one.client.close()


def test_five_workers_do_a_thousand_jobs_once_each(crew: Crew) -> None:
    # S1-15, S1-20, S1-28, S1-31, S1-37, S4-19
    for _ in range(5):
        crew.worker()
    ids = crew.client.enqueue_ids([NewJob(queue="crew", type="note")] * 1000)
    assert eventually(lambda: len(crew.notes()) >= 1000)
    time.sleep(0.5)
    assert Counter(crew.notes()) == Counter(str(one) for one in ids)
    # The data directory may hold jobs of tests before this one.
    done = crew.client.list(queue="crew", type="note", status=JobStatus.COMPLETED)
    assert {job.id for job in done} >= set(ids)


def test_one_worker_does_a_hundred_simple_jobs_in_a_minute_and_each_at_once(crew: Crew) -> None:
    # S1-36, S1-38
    crew.worker()
    assert crew.job("note")
    assert eventually(lambda: len(crew.notes()) == 1)
    took: list[float] = []
    for count in range(2, 102):
        asked = time.monotonic()
        crew.job("note")
        assert eventually(partial(crew.has_noted, count))
        took.append(time.monotonic() - asked)
    assert sum(took) < 60
    # A busy machine may hold up a few.
    assert sorted(took)[94] < 0.5


def test_a_worker_that_is_killed_loses_its_job_to_another_within_a_lease_and_a_second(
    crew: Crew,
) -> None:
    # S1-03, S1-16, S1-32, S1-35, S1-39, D-27, D-64
    first = crew.worker()
    job_id = crew.job("slow")
    assert eventually(lambda: crew.notes("begun") == [job_id])
    first.process.send_signal(signal.SIGKILL)
    killed = time.monotonic()
    crew.worker()
    assert eventually(lambda: len(crew.notes("begun")) == 2)
    # The lease, the sweep's second, and the rest after a first failure.
    assert time.monotonic() - killed < LEASE_SECONDS + 1 + 0.5
    assert eventually(lambda: crew.status(job_id) == "COMPLETED")
    job = crew.client.get(job_id)
    assert (job.attempts, job.crashes, job.failures) == (2, 1, 0)


def test_poison_is_dead_after_exactly_its_attempts_and_blocks_nobody(crew: Crew) -> None:
    # S1-06, S1-17, S1-33, S1-40
    crew.worker()
    job_id = crew.job("poison")
    assert eventually(lambda: crew.status(job_id) == "DEAD")
    assert crew.notes("tried") == [job_id] * 3
    assert [str(job.id) for job in crew.client.dlq(type="poison")][:1] == [job_id]
    other = crew.job("note")
    assert eventually(lambda: crew.notes() == [other])


def test_what_cannot_succeed_is_tried_once(crew: Crew) -> None:
    # S4-29, D-72
    crew.worker()
    job_id = crew.job("hopeless")
    assert eventually(lambda: crew.status(job_id) == "DEAD")
    assert crew.notes("tried") == [job_id]


@pytest.mark.parametrize("type_", ["slow", "blocking"])
def test_sigterm_finishes_what_runs_and_exits_cleanly(crew: Crew, type_: str) -> None:
    # S1-21
    worker = crew.worker()
    job_id = crew.job(type_)
    assert eventually(lambda: crew.notes("begun") == [job_id])
    assert worker.signal_and_wait(signal.SIGTERM) == 0
    assert crew.notes() == [job_id]
    assert crew.status(job_id) == "COMPLETED"


def test_what_does_not_end_in_time_is_given_back_without_counting(crew: Crew) -> None:
    worker = crew.worker()
    job_id = crew.job("endless")
    assert eventually(lambda: crew.notes("begun") == [job_id])
    assert worker.signal_and_wait(signal.SIGTERM) == 0
    job = crew.client.get(job_id)
    assert (job.status.value, job.attempts, job.interruptions) == ("PENDING", 0, 1)
    crew.client.cancel(job_id)


def test_a_zombie_cannot_complete_what_it_lost(crew: Crew) -> None:
    # D-21
    zombie = crew.worker()
    job_id = crew.job("slow")
    assert eventually(lambda: crew.notes("begun") == [job_id])
    os.kill(zombie.process.pid, signal.SIGSTOP)
    assert eventually(lambda: crew.client.get(job_id).crashes == 1)
    other = crew.worker()
    assert eventually(lambda: crew.status(job_id) == "COMPLETED")
    os.kill(zombie.process.pid, signal.SIGCONT)
    time.sleep(1.5)
    history = crew.client.history(job_id)
    topics = [event["topic"] for event in history]
    assert topics.count("job.completed") == 1
    assert not other.has_ended
    assert not zombie.has_ended


def test_three_workers_with_one_job_run_it_once(crew: Crew) -> None:
    # S1-15, D-66: three are enough to show it, and as many as ten are promised.
    for _ in range(3):
        crew.worker()
    job_id = crew.job("note")
    assert eventually(lambda: crew.notes() == [job_id])
    time.sleep(0.3)
    assert crew.notes() == [job_id]
