"""The embedded PostgreSQL reports a full disk and recovers."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from daybook.eventlog.postgres.embedded import EmbeddedPostgres
from tests.support.databases.embedded_postgres import (
    as_root,
    eventually,
    execute,
    postmaster_pid,
    refusal,
)


@pytest.fixture
def small_disk(directory: Path) -> Iterator[Path]:
    disk = directory / "disk"
    disk.mkdir()
    options = ["-t", "tmpfs", "-o", "size=60m,mode=755", "tmpfs"]
    mounted = subprocess.run(["mount", *options, disk], capture_output=True, check=False)
    if mounted.returncode != 0:
        pytest.skip("cannot mount a small disk here")
    yield disk
    subprocess.run(["umount", disk], check=True)


def fill(disk: Path, leaving: int) -> None:
    with (disk / "filler").open("wb") as filler:
        os.posix_fallocate(filler.fileno(), 0, shutil.disk_usage(disk).free - leaving)


@as_root
@pytest.mark.parametrize("free_bytes", [0, 20_000_000])
def test_a_full_disk_is_reported_and_leaves_no_partial_cluster(
    small_disk: Path, free_bytes: int
) -> None:
    fill(small_disk, free_bytes)

    assert refusal(small_disk / "data") == (
        f"The disk that holds {small_disk}/data is full: free some space, then start again."
    )
    assert not list((small_disk / "data").glob("pgdata*"))
    (small_disk / "filler").unlink()
    with EmbeddedPostgres(small_disk / "data") as postgres:
        assert execute(postgres.conninfo, "SELECT 1") == [(1,)]


@as_root
@pytest.mark.slow
def test_a_server_that_cannot_restart_is_reported_once_and_retried(
    small_disk: Path,
) -> None:
    sentences: list[str] = []
    with EmbeddedPostgres(small_disk / "data", say=sentences.append) as postgres:
        fill(small_disk, 0)
        os.kill(postmaster_pid(small_disk / "data"), signal.SIGKILL)
        eventually(lambda: "Trying again every second." in sentences[-1])
        time.sleep(2.5)
        assert "Trying again every second." in sentences[-1]
        assert "is full" in sentences[-1]
        (small_disk / "filler").unlink()
        eventually(lambda: sentences[-1] == "PostgreSQL runs again.")
        assert execute(postgres.conninfo, "SELECT 1") == [(1,)]
