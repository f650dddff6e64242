"""`daybook serve` from start to end, through signals, kills and a lost PostgreSQL."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.running.processes import daybook, eventually
from tests.support.running.serving import Serving, postgres_processes


def postmaster(data_dir: Path) -> int:
    return int((data_dir / "pgdata" / "postmaster.pid").read_text().split()[0])


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


def test_it_says_its_address_and_answers_there(serving: Serving) -> None:
    assert serving.becomes(200)

    status, headers, body = serving.get("/health/ready")
    assert (status, body["status"]) == (200, "ready")
    assert headers["content-type"] == "application/json"
    assert "server" not in headers

    assert serving.get("/health/live")[::2] == (200, {"status": "ok"})
    assert serving.get("/nothing")[0] == 404


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_all_of_it_in_an_orderly_way(
    own_serving: Serving, number: signal.Signals
) -> None:
    assert own_serving.becomes(200)

    assert own_serving.signal_and_wait(number) == 0

    assert "Traceback" not in own_serving.output
    assert own_serving.output.endswith("Daybook has stopped.\n")
    assert postgres_processes(own_serving.data_dir) == []


@pytest.mark.slow
def test_ctrl_c_again_and_again_does_not_leave_postgresql_behind(own_serving: Serving) -> None:
    assert own_serving.becomes(200)

    for _ in range(5):
        own_serving.process.send_signal(signal.SIGINT)
    assert own_serving.signal_and_wait(signal.SIGTERM) == 0

    assert "Traceback" not in own_serving.output
    assert postgres_processes(own_serving.data_dir) == []


def test_a_signal_while_it_starts_stops_it_too(own_serving: Serving) -> None:
    data_dir = own_serving.data_dir
    assert eventually(lambda: bool(postgres_processes(data_dir)))

    assert own_serving.signal_and_wait(signal.SIGINT) == 0

    assert "Traceback" not in own_serving.output
    assert postgres_processes(data_dir) == []


@pytest.mark.slow
def test_a_request_under_way_is_answered_before_it_stops(own_serving: Serving) -> None:
    assert own_serving.becomes(200)
    answers: list[int] = []
    asking = threading.Thread(target=lambda: answers.append(own_serving.get("/health/ready")[0]))

    with frozen(own_serving.data_dir):
        asking.start()
        threading.Event().wait(0.3)
        own_serving.process.send_signal(signal.SIGTERM)
        asking.join()

    assert answers == [503]
    assert own_serving.process.wait(30) == 0


@pytest.mark.slow
def test_killed_outright_it_leaves_nothing_behind_and_starts_again(
    own_serving: Serving,
) -> None:
    assert own_serving.becomes(200)

    own_serving.process.kill()
    assert eventually(lambda: postgres_processes(own_serving.data_dir) == [])

    again = Serving(own_serving.data_dir)
    try:
        assert again.becomes(200)
    finally:
        again.end()


@pytest.mark.slow
def test_readiness_goes_while_postgresql_is_away_and_comes_back_by_itself(
    own_serving: Serving,
) -> None:
    assert own_serving.becomes(200)
    pgdata = own_serving.data_dir / "pgdata"

    # Without this file PostgreSQL does not start again.
    (pgdata / "PG_VERSION").rename(pgdata / "hidden")
    try:
        os.kill(postmaster(own_serving.data_dir), signal.SIGKILL)
        assert own_serving.becomes(503)
        assert own_serving.get("/health/live")[0] == 200
    finally:
        (pgdata / "hidden").rename(pgdata / "PG_VERSION")

    assert own_serving.becomes(200)


@pytest.mark.slow
def test_a_second_one_on_the_same_data_is_refused(serving: Serving) -> None:
    assert serving.becomes(200)

    second = daybook("serve", "--port", "0", "--data-dir", serving.data_dir)

    assert second.returncode == 2
    assert second.stderr.startswith(f"Another Daybook already runs on {serving.data_dir}")
    assert second.stderr.count("\n") == 1
    assert serving.get("/health/ready")[0] == 200


def test_a_taken_port_is_refused_before_anything_is_made(serving: Serving, tmp_path: Path) -> None:
    _, port = serving.address

    refused = daybook("serve", "--port", str(port), "--data-dir", tmp_path / "new")

    assert refused.returncode == 2
    assert refused.stderr == (
        f"Port {port} on 127.0.0.1 is already in use: "
        "stop the program that uses it, or choose another with --port.\n"
    )
    assert not (tmp_path / "new").exists()
