"""Places for servers, and supervisors in processes of their own."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from daybook.eventlog.postgres.embedded import EmbeddedPostgres
from tests.support.databases.embedded_postgres import SUPERVISE, Supervise
from tests.support.running.processes import ROOT


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that PostgreSQL's user can reach, unlike tmp_path when we are root."""
    directory = Path(tempfile.mkdtemp(prefix="daybook-embedded-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def made_once() -> Iterator[Path]:
    """A data directory that the tests hand on, because making one is what takes longest."""
    directory = Path(tempfile.mkdtemp(prefix="daybook-embedded-"))
    directory.chmod(0o755)
    with EmbeddedPostgres(directory / "data"):
        pass
    yield directory / "data"
    shutil.rmtree(directory)


@pytest.fixture
def data_dir(made_once: Path, place: Path) -> Iterator[Path]:
    """A data directory that was made before, with no server on it."""
    inode = made_once.stat().st_ino
    yield made_once.rename(place / "data")
    (used,) = (path for path in place.iterdir() if path.stat().st_ino == inode)
    used.rename(made_once)


@pytest.fixture
def supervise() -> Iterator[Supervise]:
    """Start a supervisor as a process of its own; returns it and how to connect."""
    started: list[tuple[subprocess.Popen[str], Path]] = []

    def start(data_dir: Path, **environment: str) -> tuple[subprocess.Popen[str], str]:
        prefix = ["env", *(f"{name}={value}" for name, value in environment.items())]
        command = [*prefix, sys.executable, "-c", SUPERVISE, str(data_dir)]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        started.append((process, data_dir))
        assert process.stdout is not None
        return process, process.stdout.readline().strip()

    yield start
    for process, data_dir in started:
        process.kill()
        process.communicate()
        with EmbeddedPostgres(data_dir):
            """Ends whatever server was left, before its directory is removed."""
