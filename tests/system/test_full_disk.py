"""A service whose disk is full: it waits for room at the start, refuses writes and goes on reading
while it runs. The operator only has to make room."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest

from tests.conftest import reachable_directory
from tests.support.databases.embedded_postgres import as_root
from tests.support.running.processes import eventually
from tests.support.running.recording import RecordedClient
from tests.support.running.service_process import ServiceWithPostgres

pytestmark = [pytest.mark.slow, as_root]

RESUME_SECONDS_MAX = 5.0
ORDER = {"type": "NORMAL"}
BULKY = {"queue": "email", "type": "send", "payload": "x" * 50_000}


@pytest.fixture
def small_disk() -> Iterator[Path]:
    disk = reachable_directory()
    options = ["-t", "tmpfs", "-o", "size=250m,mode=755", "tmpfs"]
    mounted = subprocess.run(["mount", *options, disk], capture_output=True, check=False)
    if mounted.returncode != 0:
        disk.rmdir()
        pytest.skip("cannot mount a small disk here")
    yield disk
    subprocess.run(["umount", disk], check=True)
    disk.rmdir()


def fill(disk: Path) -> None:
    """To the last byte, while the server goes on writing."""
    with (disk / "filler").open("wb", buffering=0) as filler, suppress(OSError):
        while filler.write(bytes(65536)):
            pass


def make_room(disk: Path) -> None:
    (disk / "filler").unlink()


def serve(disk: Path) -> ServiceWithPostgres:
    return ServiceWithPostgres(disk / "data")


def test_a_start_on_a_full_disk_waits_for_room(small_disk: Path) -> None:
    fill(small_disk)
    with serve(small_disk) as server:
        sentence = f"The disk that holds {small_disk}/data is full: free some space. Retrying"
        assert eventually(lambda: server.output.count(sentence) >= 2)
        assert not server.has_ended
        make_room(small_disk)
        assert server.url
        assert RecordedClient(server).ask("POST", "/api/orders", ORDER).status_code == 201


def test_a_start_that_waits_for_room_can_be_stopped(small_disk: Path) -> None:
    fill(small_disk)
    with serve(small_disk) as server:
        assert eventually(lambda: "Retrying" in server.output)
        server.process.terminate()
        assert server.wait(RESUME_SECONDS_MAX) == 0
        assert "Traceback" not in server.output


def test_a_disk_that_fills_up_loses_nothing_and_writing_goes_on_by_itself(
    small_disk: Path, tmp_path: Path
) -> None:
    # F-full: acknowledged orders are there, reads work, writes are back within 5 s of the room.
    with serve(small_disk) as server:
        clients = RecordedClient(server)
        kept = [clients.ask("POST", "/api/orders", ORDER).json()["order"]["id"] for _ in range(10)]
        fill(small_disk)
        refused = _write_until_refused(clients, kept)
        assert (refused.status_code, refused.json()["code"]) == (503, "storage_full")
        assert clients.get("/api/orders?limit=1000").status_code == 200
        assert clients.get("/health/live").status_code == 200
        assert clients.get("/health/ready").status_code == 503
        make_room(small_disk)
        began = time.monotonic()
        assert eventually(lambda: clients.get("/health/ready").status_code == 200)
        assert eventually(lambda: clients.ask("POST", "/api/orders", ORDER).status_code == 201)
        assert time.monotonic() - began < RESUME_SECONDS_MAX
        listed = clients.get("/api/orders?limit=1000").json()["orders"]
        assert {*kept} <= {order["id"] for order in listed}
        clients.assert_audited(tmp_path, "--data-dir", small_disk / "data")


def _write_until_refused(clients: RecordedClient, kept: list[str]) -> httpx2.Response:
    """The server uses up its free pages first. Orders acknowledged until then count, too."""
    for _ in range(2000):
        answer = clients.ask("POST", "/api/jobs", BULKY)
        if answer.status_code != 201:
            return answer
        order = clients.ask("POST", "/api/orders", ORDER)
        if order.status_code != 201:
            return order
        kept.append(order.json()["order"]["id"])
    raise AssertionError("the disk is not full")
