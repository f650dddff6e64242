"""Fixtures: `daybook serve` with its own PostgreSQL, and copies of a migrated data directory."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import reachable_directory
from tests.support.running.processes import daybook
from tests.support.running.service_process import ServiceWithPostgres


@dataclass(frozen=True)
class MigratedDirectory:
    path: Path
    result: subprocess.CompletedProcess[str]

    @contextmanager
    def copy(self) -> Iterator[Path]:
        directory = reachable_directory()
        try:
            shutil.copytree(self.path / "pgdata", directory / "pgdata")
            yield directory
        finally:
            shutil.rmtree(directory)


@pytest.fixture(scope="session")
def migrated() -> Iterator[MigratedDirectory]:
    """The data directory of a first `daybook migrate`; tests copy it, because initdb is slow."""
    directory = reachable_directory()
    yield MigratedDirectory(directory, daybook("migrate", "--data-dir", directory))
    shutil.rmtree(directory)


@pytest.fixture(scope="session")
def shared_service(migrated: MigratedDirectory) -> Iterator[ServiceWithPostgres]:
    """One service for all tests that change nothing."""
    with migrated.copy() as directory, ServiceWithPostgres(directory) as service:
        yield service


@pytest.fixture(scope="session")
def used_directory(migrated: MigratedDirectory) -> Iterator[Path]:
    """A data directory for tests that stop and kill."""
    with migrated.copy() as directory:
        yield directory


@pytest.fixture
def own_service(used_directory: Path) -> Iterator[ServiceWithPostgres]:
    """A service for one test, on data of earlier ones."""
    with ServiceWithPostgres(used_directory) as service:
        yield service


@pytest.fixture
def fresh_service(migrated: MigratedDirectory) -> Iterator[ServiceWithPostgres]:
    """A service for one test, on data of its own."""
    with migrated.copy() as directory, ServiceWithPostgres(directory) as service:
        yield service
