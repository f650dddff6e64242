"""`daybook serve` with its own PostgreSQL, and the data directories that it works on."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.conftest import reachable_directory
from tests.support.running.processes import SECONDS_MAX, Running, daybook, eventually


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


class Serving(Running):
    """A `daybook serve` with its own PostgreSQL."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__("serve", "--port", "0", "--data-dir", data_dir)
        self.data_dir = data_dir

    @property
    def address(self) -> tuple[str, int]:
        url = urlsplit(self.url)
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

    def end(self) -> None:
        super().end()
        eventually(lambda: not postgres_processes(self.data_dir))


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
