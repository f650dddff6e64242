"""Refusals of the embedded PostgreSQL and their messages, and conditions it must tolerate."""

import stat
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from daybook.eventlog.postgres.embedded import EmbeddedPostgres, running_conninfo
from daybook.eventlog.postgres.embedded.binaries import choose_binaries
from tests.support.databases.embedded_postgres import (
    NONSENSE,
    SUPERVISE,
    Supervise,
    eventually,
    execute,
    refusal,
    show,
)
from tests.support.running.processes import Process


def test_a_data_directory_of_an_unknown_version_is_refused_with_the_versions_found(
    directory: Path,
) -> None:
    (directory / "pgdata").mkdir()
    (directory / "pgdata" / "PG_VERSION").write_text("7\n")

    sentence = refusal(directory)

    assert sentence.startswith(
        f"{directory}/pgdata was made by PostgreSQL 7, but the binaries found"
    )
    assert "(wheel)" in sentence
    assert sentence.endswith("set PG_BINDIR to a PostgreSQL 7, or choose another --data-dir.")


def test_an_older_data_directory_gets_binaries_of_its_version(directory: Path) -> None:
    assert choose_binaries(directory, None).major == "18"
    older = directory / "pgdata"
    older.mkdir()
    (older / "PG_VERSION").write_text("16\n")

    assert choose_binaries(older, None).major == "16"


@pytest.mark.slow
def test_a_given_directory_of_binaries_is_used_and_its_data_found_again(directory: Path) -> None:
    local = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not local:
        pytest.skip("no PostgreSQL of the machine's own")
    with EmbeddedPostgres(directory / "data", bindir=local[0]) as postgres:
        version = show(postgres.conninfo, "server_version_num")
    with EmbeddedPostgres(directory / "data") as postgres:
        assert show(postgres.conninfo, "server_version_num") == version


def test_a_bindir_without_programs_is_named_and_nothing_is_made(directory: Path) -> None:
    sentence = refusal(directory / "data", bindir=directory)

    assert sentence.startswith(f"PG_BINDIR is {directory}, but postgres and initdb do not run")
    assert not (directory / "data").exists()


def test_a_pgdata_that_is_not_a_database_is_left_alone(directory: Path) -> None:
    (directory / "pgdata").mkdir()
    (directory / "pgdata" / "letter.txt").write_text("dear")

    assert "not a PostgreSQL database" in refusal(directory)
    assert (directory / "pgdata" / "letter.txt").read_text() == "dear"


def test_a_setting_that_postgres_refuses_is_reported_with_its_message(data_dir: Path) -> None:
    sentence = refusal(data_dir, shared_buffers="nonsense")

    assert 'invalid value for parameter "shared_buffers"' in sentence
    assert str(data_dir / "postgres.log") in sentence
    with EmbeddedPostgres(data_dir):
        pass


def test_a_file_in_place_of_the_data_directory_is_named(directory: Path) -> None:
    (directory / "data").write_text("")

    assert f"{directory}/data" in refusal(directory / "data")


@pytest.mark.parametrize("name", ["with spaces in it", "with,comma", "l" * 100, "quote\"and's"])
def test_the_name_of_the_data_directory_does_not_matter(data_dir: Path, name: str) -> None:
    renamed = data_dir.rename(data_dir.with_name(name))
    with EmbeddedPostgres(renamed) as postgres:
        assert running_conninfo(renamed) == postgres.conninfo
        assert execute(postgres.conninfo, "SELECT 1") == [(1,)]
        sockets = Path(str(psycopg.conninfo.conninfo_to_dict(postgres.conninfo)["host"]))
        assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
    assert sockets.parent == renamed or not sockets.exists()


def test_a_socket_directory_of_another_user_is_refused(data_dir: Path) -> None:
    renamed = data_dir.rename(data_dir.with_name("l" * 100))
    with EmbeddedPostgres(renamed) as postgres:
        sockets = Path(str(psycopg.conninfo.conninfo_to_dict(postgres.conninfo)["host"]))
    sockets.symlink_to(data_dir.parent)
    try:
        assert refusal(renamed).startswith(str(sockets))
    finally:
        sockets.unlink()


def test_environment_variables_of_libpq_change_nothing(
    directory: Path, supervise: Supervise
) -> None:
    _, conninfo = supervise(directory / "data", **NONSENSE)
    connect = "import psycopg, sys; psycopg.connect(sys.argv[1]).close()"
    prefix = ["env", *(f"{name}={value}" for name, value in NONSENSE.items())]

    subprocess.run([*prefix, sys.executable, "-c", connect, conninfo], check=True)
    assert show(conninfo, "timezone") == "UTC"


@pytest.mark.slow
def test_a_killed_initdb_leaves_nothing_that_blocks_the_next_start(directory: Path) -> None:
    data_dir = directory / "data"
    command = [sys.executable, "-c", SUPERVISE, str(data_dir)]
    for file in ("PG_VERSION", "global/pg_control"):
        with Process(command) as process:
            eventually((data_dir / "pgdata.new" / file).exists)
            process.kill()
        assert not (data_dir / "pgdata").exists()

    with EmbeddedPostgres(data_dir) as postgres:
        assert execute(postgres.conninfo, "SELECT 1") == [(1,)]
    assert not (data_dir / "pgdata.new").exists()


def test_the_log_of_the_server_stays_bounded(data_dir: Path) -> None:
    with (data_dir / "postgres.log").open("ab") as log:
        log.truncate(11_000_000)
        log.write(b"the last line\n")

    with EmbeddedPostgres(data_dir):
        log_text = (data_dir / "postgres.log").read_bytes()
    assert len(log_text) < 2_000_000
    assert b"the last line" in log_text
    assert b"ready to accept connections" in log_text
