"""Daybook as its users run it: processes with flags, signals and an address."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.conftest import reachable_directory

ROOT = Path(__file__).parents[2]
SECONDS_MAX = 30.0


def environment(**more: str) -> dict[str, str]:
    """Ours, without anything that would change which database or address is used."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DAYBOOK_", "DATABASE_URL", "PG"))
    }
    return {**kept, **more}


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "daybook", *map(str, arguments)]


def daybook(*arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        command(*arguments),
        cwd=ROOT,
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )


def eventually(holds: Callable[[], bool]) -> bool:
    until = time.monotonic() + SECONDS_MAX
    while time.monotonic() < until:
        if holds():
            return True
        time.sleep(0.02)
    return False


def postgres_processes(data_dir: Path) -> list[int]:
    """Every process of the server on this directory: they all work inside its pgdata."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.readlink(entry / "cwd") == str(data_dir / "pgdata"):
                found.append(int(entry.name))
    return found


@dataclass(frozen=True)
class Made:
    directory: Path
    result: subprocess.CompletedProcess[str]

    @contextmanager
    def copied(self) -> Iterator[Path]:
        directory = reachable_directory()
        shutil.copytree(self.directory / "pgdata", directory / "pgdata")
        try:
            yield directory
        finally:
            shutil.rmtree(directory)


class Serving:
    """A `daybook serve` that has said its address."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.said: list[str] = []
        self.process = subprocess.Popen(
            command("serve", "--port", "0", "--data-dir", data_dir),
            cwd=ROOT,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def output(self) -> str:
        return "".join(self.said)

    @property
    def address(self) -> tuple[str, int]:
        """Waits for the line with the address."""
        line = re.compile(r"^Daybook is running on (http://\S+) \(Ctrl-C stops it\)$", re.M)
        ended = self.process.poll
        assert eventually(lambda: bool(line.search(self.output)) or ended() is not None)
        found = line.search(self.output)
        assert found, self.output
        url = urlsplit(found[1])
        return str(url.hostname), int(url.port or 0)

    def get(self, path: str) -> tuple[int, dict[str, str], Any]:
        connection = HTTPConnection(*self.address, timeout=SECONDS_MAX)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            headers = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, headers, json.loads(answer.read())
        finally:
            connection.close()

    def becomes(self, status: int) -> bool:
        return eventually(lambda: self.get("/health/ready")[0] == status)

    def signal_and_wait(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        code = self.process.wait(SECONDS_MAX)
        self._reader.join(SECONDS_MAX)
        return code

    def end(self) -> None:
        """Leave nothing running, whatever the test did."""
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(SECONDS_MAX)
        self._reader.join(SECONDS_MAX)
        assert self.process.stdout is not None
        self.process.stdout.close()
        eventually(lambda: not postgres_processes(self.data_dir))

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line)


@pytest.fixture(scope="session")
def made() -> Iterator[Made]:
    """A data directory as a first `daybook migrate` makes it; copied, as initdb takes a while."""
    directory = reachable_directory()
    yield Made(directory, daybook("migrate", "--data-dir", directory))
    shutil.rmtree(directory)


@pytest.fixture(scope="session")
def serving(made: Made) -> Iterator[Serving]:
    """One service for all tests that only look at it."""
    with made.copied() as directory:
        one = Serving(directory)
        try:
            yield one
        finally:
            one.end()


@pytest.fixture(scope="session")
def used_directory(made: Made) -> Iterator[Path]:
    """A data directory for tests that stop and kill."""
    with made.copied() as directory:
        yield directory


@pytest.fixture
def own_serving(used_directory: Path) -> Iterator[Serving]:
    """A service of the test's own, on data that an earlier one may have left."""
    one = Serving(used_directory)
    try:
        yield one
    finally:
        one.end()
