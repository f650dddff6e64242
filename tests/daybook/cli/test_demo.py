"""`daybook demo`: observed over HTTP, ended with Ctrl-C."""

import json
import re
import shutil
import signal
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from daybook.cli.demo import data_directory
from tests.conftest import reachable_directory
from tests.support.running.processes import SECONDS_MAX, DaybookProcess, daybook, eventually
from tests.support.running.service_fixtures import MigratedDirectory
from tests.support.running.service_process import postgres_processes


class Demo(DaybookProcess):
    announcement = re.compile(
        r"^The restaurant is open on (http://\S+) \(Ctrl-C closes it\)$", re.M
    )

    def __init__(self, *arguments: str | Path, **variables: str) -> None:
        super().__init__("demo", "--port", "0", *arguments, **variables)

    def orders(self) -> list[Any]:
        with urlopen(self.url, timeout=SECONDS_MAX) as answer:
            orders: list[Any] = json.load(answer)["orders"]
        return orders

    def close(self) -> int:
        if not self.has_ended:
            self.signal_and_wait(signal.SIGINT)
        self.end()
        return self.process.returncode


@pytest.fixture
def temporary() -> Iterator[Path]:
    directory = reachable_directory()
    yield directory
    shutil.rmtree(directory)


@pytest.mark.slow
def test_orders_come_and_are_served_and_nothing_is_left_behind(temporary: Path) -> None:
    demo = Demo(TMPDIR=str(temporary), DATABASE_URL="host=/nonexistent dbname=precious")
    try:
        assert eventually(lambda: any(order["status"] == "COMPLETE" for order in demo.orders()))
        assert eventually(lambda: bool(re.search(r"[1-9]\d* served", demo.output)))
    finally:
        code = demo.close()

    assert code == 0
    assert "Traceback" not in demo.output
    assert demo.output.endswith("The restaurant is closed.\n")
    assert list(temporary.iterdir()) == []


@pytest.mark.slow
def test_ctrl_c_ends_it_and_a_data_directory_that_was_named_is_kept(
    migrated: MigratedDirectory,
) -> None:
    with migrated.copy() as directory:
        demo = Demo("--data-dir", directory)
        try:
            assert eventually(lambda: bool(demo.orders()))
        finally:
            code = demo.close()

        assert code == 0
        assert "Traceback" not in demo.output
        assert (directory / "pgdata").exists()
        assert postgres_processes(directory) == []


def test_a_signal_while_the_directory_is_made_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(Path, "chmod", interrupt)
    with pytest.raises(KeyboardInterrupt), data_directory(None):
        pass

    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_ctrl_c_while_it_opens_leaves_nothing_behind(temporary: Path) -> None:
    demo = Demo(TMPDIR=str(temporary))
    assert eventually(lambda: bool(list(temporary.iterdir())))

    assert demo.close() == 0
    assert "Traceback" not in demo.output
    assert list(temporary.iterdir()) == []


def test_a_taken_port_is_said_in_one_sentence(temporary: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = daybook("demo", "--port", str(port), TMPDIR=str(temporary))

    assert refused.returncode == 2
    assert refused.stderr.startswith(f"Port {port} on 127.0.0.1 is already in use")
    assert list(temporary.iterdir()) == []
