"""A running service whose database's clock jumps, seen by its clients: the responses they got stay
true, and the auditor finds nothing that the jumps have spoilt. I-44"""

import time
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree

import pytest

from tests.conftest import reachable_directory
from tests.support.committer import rows
from tests.support.databases.faketime import FakeClock, needs_faketime, server_with_fake_clock
from tests.support.running.processes import eventually
from tests.support.running.recording import RecordedClient
from tests.support.running.service_process import ServiceProcess

pytestmark = [pytest.mark.slow, pytest.mark.alone, needs_faketime]

HOUR, DAY = 3600.0, 86400.0
LEASE_SECONDS = 5.0
COMPLETE = "SELECT count(*) FROM log WHERE topic = 'order.completed'"
FAILED = "SELECT count(*) FROM log WHERE topic IN ('job.failed', 'job.moved_to_dlq')"
JUMPS = "SELECT count(*) FROM log WHERE topic = 'clock.jumped'"


@pytest.fixture
def faked() -> Iterator[tuple[str, FakeClock]]:
    directory = reachable_directory()
    with server_with_fake_clock(directory) as faked:
        yield faked
    rmtree(directory)


def test_clients_are_unaffected_by_a_clock_that_jumps(
    faked: tuple[str, FakeClock], tmp_path: Path
) -> None:
    conninfo, clock = faked
    with ServiceProcess(conninfo, delay_seconds=1) as server:
        clients = RecordedClient(server)
        for _ in range(3):
            assert clients.ask("POST", "/api/bots", {"autoClaim": True}).status_code == 201
        jobs = [{"queue": "email", "type": "send"}] * 5
        assert clients.ask("POST", "/api/jobs", {"jobs": jobs}).status_code == 201
        wanted = {"queues": ["email"], "workerId": "w", "limit": 5, "leaseSeconds": LEASE_SECONDS}
        claimed = clients.ask("POST", "/api/jobs/claim", wanted).json()["jobs"]
        assert len(claimed) == 5
        for seconds in (HOUR, -HOUR, DAY, 0):
            time.sleep(1.2)
            clock.set(seconds)
            assert clients.ask("POST", "/api/orders", {"type": "NORMAL"}).status_code == 201
            time.sleep(1.2)
            for job in claimed:
                heartbeat = clients.ask(
                    "POST", f"/api/jobs/{job['id']}/heartbeat", {"claimId": job["claimId"]}
                )
                assert heartbeat.status_code == 200, heartbeat.text
        for job in claimed:
            done = clients.ask(
                "POST", f"/api/jobs/{job['id']}/complete", {"claimId": job["claimId"]}
            )
            assert done.status_code == 200, done.text
        assert eventually(lambda: rows(conninfo, COMPLETE) == [(4,)])
        assert rows(conninfo, FAILED) == [(0,)]
        assert rows(conninfo, JUMPS) == [(4,)]
        result = clients.assert_audited(tmp_path, DATABASE_URL=conninfo)
        assert "I-44" in result
