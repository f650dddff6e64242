"""The embedded PostgreSQL under root and under users without permissions."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from daybook.eventlog.postgres.embedded import EmbeddedPostgres
from daybook.eventlog.postgres.embedded.binaries import choose_binaries
from tests.support.databases.embedded_postgres import (
    NOBODY,
    START_AS_NOBODY,
    as_root,
    postmaster_pid,
    refusal,
)
from tests.support.running.processes import ROOT


@as_root
def test_root_lends_the_server_an_account_and_nothing_but_pgdata_and_run(data_dir: Path) -> None:
    sentences: list[str] = []
    with EmbeddedPostgres(data_dir, say=sentences.append):
        status = Path(f"/proc/{postmaster_pid(data_dir)}/status").read_text()
    uids = next(line.split()[1:] for line in status.splitlines() if line.startswith("Uid:"))
    lent = {path.name for path in data_dir.iterdir() if path.stat().st_uid != 0}

    assert "0" not in uids
    assert lent == {"pgdata", "run"}
    assert data_dir.stat().st_uid == 0
    assert sentences[0].startswith("PostgreSQL refuses to run as root: running it as user ")


@as_root
@pytest.mark.slow
def test_root_uses_the_account_that_owns_the_data_directory(directory: Path) -> None:
    data_dir = directory / "data"
    data_dir.mkdir()
    os.chown(data_dir, NOBODY, NOBODY)
    with EmbeddedPostgres(data_dir):
        assert (data_dir / "pgdata").stat().st_uid == NOBODY


@as_root
def test_the_error_names_the_directory_that_the_account_cannot_enter(directory: Path) -> None:
    (directory / "closed").mkdir(mode=0o700)

    sentence = refusal(directory / "closed" / "deep" / "data")

    assert f"may not enter {directory}/closed: choose another --data-dir" in sentence
    assert not list((directory / "closed").iterdir())


@as_root
@pytest.mark.slow
def test_root_copies_binaries_that_the_account_cannot_read_once(directory: Path) -> None:
    bindir = choose_binaries(directory, None).bindir
    package, site = bindir.parents[1], bindir.parents[2]
    closed = directory / "closed"
    closed.mkdir(mode=0o700)
    for source in site.glob(f"{package.name}*"):
        ignored = shutil.ignore_patterns("pginstall", "include", "*.a")
        shutil.copytree(source, closed / source.name, symlinks=True, ignore=ignored)
    start = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[2])\n"
        "from daybook.eventlog.postgres.embedded import EmbeddedPostgres\n"
        "EmbeddedPostgres(Path(sys.argv[1]), say=print).start()"
    )
    command = [sys.executable, "-c", start, str(directory / "data"), str(closed)]
    inodes = set()
    for _ in range(2):
        output = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
        assert f"may not read {closed}" in output.stdout
        (copied,) = (directory / "data").glob("pgbin-*")
        inodes.add(copied.stat().st_ino)
    assert len(inodes) == 1


@as_root
@pytest.mark.parametrize(
    ("data", "named"),
    [("data", "data/pgdata/PG_VERSION"), ("closed/data", "closed/data"), ("new", "new")],
)
def test_the_error_names_the_user_and_the_directory_without_permission(
    data_dir: Path, data: str, named: str
) -> None:
    directory = data_dir.parent
    (directory / "closed").mkdir(mode=0o700)
    command = [sys.executable, "-c", START_AS_NOBODY, str(directory / data)]
    result = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)

    assert result.stdout.startswith(f"User nobody may not use {directory / named}")
    assert f"give nobody the right to read and write {directory / data}, or" in result.stdout
    assert result.stdout.count("\n") == 1
