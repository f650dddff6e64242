"""Fixtures: data directories, and supervisors in separate processes."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from daybook.eventlog.postgres.embedded import EmbeddedPostgres
from tests.conftest import reachable_directory
from tests.support.databases.embedded_postgres import SUPERVISE, Supervise
from tests.support.running.processes import Process


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory that PostgreSQL's user can enter, unlike tmp_path of root."""
    made = reachable_directory()
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def made_once() -> Iterator[Path]:
    """A data directory shared by the tests, because creating one is slow."""
    directory = reachable_directory()
    with EmbeddedPostgres(directory / "data"):
        pass
    yield directory / "data"
    shutil.rmtree(directory)


@pytest.fixture
def data_dir(made_once: Path, directory: Path) -> Iterator[Path]:
    """An existing data directory without a running server."""
    inode = made_once.stat().st_ino
    yield made_once.rename(directory / "data")
    (used,) = (path for path in directory.iterdir() if path.stat().st_ino == inode)
    used.rename(made_once)


@pytest.fixture
def supervise() -> Iterator[Supervise]:
    """Starts a supervisor in a separate process; returns the process and the conninfo."""
    started: list[tuple[Process, Path]] = []

    def start(data_dir: Path, **variables: str) -> tuple[Process, str]:
        process = Process(
            [sys.executable, "-c", SUPERVISE, data_dir],
            variables={**os.environ, **variables},
            stderr=None,
        )
        started.append((process, data_dir))
        assert process.says("\n")
        return process, process.output.strip()

    yield start
    for process, data_dir in started:
        process.kill()
        process.end()
        with EmbeddedPostgres(data_dir):
            """Stops a remaining server before its directory is removed."""
