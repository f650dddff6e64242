"""`daybook serve` from start to end, through signals, kills and a lost PostgreSQL."""

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.databases.embedded_postgres import postmaster_pid
from tests.support.running.processes import daybook, eventually
from tests.support.running.service_process import ServiceWithPostgres, postgres_processes


@contextmanager
def frozen(data_dir: Path) -> Iterator[None]:
    """PostgreSQL is there but does not move."""
    processes = postgres_processes(data_dir)
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            os.kill(process, signal.SIGCONT)


def test_it_says_its_address_and_answers_there(shared_service: ServiceWithPostgres) -> None:
    assert shared_service.becomes(200)

    ready = shared_service.send("GET", "/health/ready")
    assert (ready.status_code, ready.json()["status"]) == (200, "ready")
    assert ready.headers["content-type"] == "application/json"
    assert "server" not in ready.headers

    assert shared_service.get("/health/live") == {"status": "ok"}
    assert shared_service.send("GET", "/nothing").status_code == 404


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_all_of_it_in_an_orderly_way(
    own_service: ServiceWithPostgres, number: signal.Signals
) -> None:
    assert own_service.becomes(200)

    assert own_service.signal_and_wait(number) == 0

    assert "Traceback" not in own_service.output
    assert own_service.output.endswith("Daybook has stopped.\n")
    assert postgres_processes(own_service.data_dir) == []


@pytest.mark.slow
def test_ctrl_c_again_and_again_does_not_leave_postgresql_behind(
    own_service: ServiceWithPostgres,
) -> None:
    assert own_service.becomes(200)

    for _ in range(5):
        own_service.signal(signal.SIGINT)
    assert own_service.signal_and_wait(signal.SIGTERM) == 0

    assert "Traceback" not in own_service.output
    assert postgres_processes(own_service.data_dir) == []


def test_a_signal_while_it_starts_stops_it_too(own_service: ServiceWithPostgres) -> None:
    data_dir = own_service.data_dir
    assert eventually(lambda: bool(postgres_processes(data_dir)))

    assert own_service.signal_and_wait(signal.SIGINT) == 0

    assert "Traceback" not in own_service.output
    assert postgres_processes(data_dir) == []


@pytest.mark.slow
def test_a_request_under_way_is_answered_before_it_stops(own_service: ServiceWithPostgres) -> None:
    assert own_service.becomes(200)
    answers: list[int] = []
    service = own_service

    def ask() -> None:
        answers.append(service.send("GET", "/health/ready").status_code)

    asking = threading.Thread(target=ask)

    with frozen(own_service.data_dir):
        asking.start()
        threading.Event().wait(0.3)
        own_service.signal(signal.SIGTERM)
        asking.join()

    assert answers == [503]
    assert own_service.wait() == 0


@pytest.mark.slow
def test_killed_outright_it_leaves_nothing_behind_and_starts_again(
    own_service: ServiceWithPostgres,
) -> None:
    assert own_service.becomes(200)

    own_service.kill()
    assert eventually(lambda: postgres_processes(own_service.data_dir) == [])

    with ServiceWithPostgres(own_service.data_dir) as again:
        assert again.becomes(200)


@pytest.mark.slow
def test_readiness_goes_while_postgresql_is_away_and_comes_back_by_itself(
    own_service: ServiceWithPostgres,
) -> None:
    assert own_service.becomes(200)
    pgdata = own_service.data_dir / "pgdata"

    # Without this file PostgreSQL does not start again.
    (pgdata / "PG_VERSION").rename(pgdata / "hidden")
    try:
        os.kill(postmaster_pid(own_service.data_dir), signal.SIGKILL)
        assert own_service.becomes(503)
        assert own_service.get("/health/live")
    finally:
        (pgdata / "hidden").rename(pgdata / "PG_VERSION")

    assert own_service.becomes(200)


@pytest.mark.slow
def test_a_second_one_on_the_same_data_is_refused(shared_service: ServiceWithPostgres) -> None:
    assert shared_service.becomes(200)

    second = daybook("serve", "--port", "0", "--data-dir", shared_service.data_dir)

    assert second.returncode == 2
    assert second.stderr.startswith(f"Another Daybook already runs on {shared_service.data_dir}")
    assert second.stderr.count("\n") == 1
    assert shared_service.get("/health/ready")


def test_a_taken_port_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = daybook("serve", "--port", str(port), "--data-dir", tmp_path / "new")

    assert refused.returncode == 2
    assert refused.stderr == (
        f"Port {port} on 127.0.0.1 is already in use: "
        "stop the program that uses it, or choose another with --port.\n"
    )
    assert not (tmp_path / "new").exists()
