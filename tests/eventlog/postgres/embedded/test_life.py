"""Start, crash and restart of the embedded PostgreSQL keep every acknowledged row."""

import ctypes
import os
import signal
import socket
import stat
import threading
import time
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from daybook.eventlog.postgres.embedded import EmbeddedPostgres, running_conninfo
from tests.support.databases.embedded_postgres import (
    IS_ROOT,
    PR_SET_CHILD_SUBREAPER,
    Supervise,
    Writer,
    eventually,
    execute,
    is_gone,
    on_linux,
    postmaster_pid,
    refusal,
    seconds_to_start,
    show,
    stored_rows,
)
from tests.support.running.processes import Process

pytestmark = pytest.mark.slow


def test_a_cold_start_takes_three_seconds_at_most_and_a_warm_one_one(directory: Path) -> None:
    # The best of three, with a margin for other load on the machine.
    seconds = []
    patience = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    for attempt in range(3):
        postgres = EmbeddedPostgres(directory / f"{attempt}")
        cold = seconds_to_start(postgres)
        postgres.stop()
        seconds.append((cold, seconds_to_start(postgres)))
        postgres.stop()
        if cold <= 3 * patience and seconds[-1][1] <= patience:
            return
    pytest.fail(f"seconds to start, cold and warm: {seconds}")


def test_rows_survive_a_stop_and_a_start(data_dir: Path) -> None:
    postgres = EmbeddedPostgres(data_dir)
    execute(postgres.start(), "CREATE TABLE kept AS SELECT 42 AS answer")
    postgres.stop()
    assert execute(postgres.start(), "SELECT answer FROM kept") == [(42,)]
    postgres.stop()


def test_the_server_writes_through_and_listens_on_its_private_socket_only(data_dir: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with EmbeddedPostgres(data_dir, settings={"port": str(port)}) as postgres:
        on = ["fsync", "synchronous_commit", "full_page_writes", "data_checksums", "autovacuum"]
        assert [show(postgres.conninfo, setting) for setting in on] == ["on"] * len(on)
        assert show(postgres.conninfo, "server_encoding") == "UTF8"
        assert stat.S_IMODE((data_dir / "run").stat().st_mode) == 0o700
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))


CHURN = """
CREATE TABLE churned (id integer);
INSERT INTO churned SELECT generate_series(1, 20000);
DELETE FROM churned;
"""
IS_CLEARED = """
SELECT n_dead_tup = 0 AND autovacuum_count > 0 FROM pg_stat_user_tables WHERE relname = 'churned'
"""


def test_dead_rows_are_vacuumed_within_seconds(data_dir: Path) -> None:
    """A queue leaves 10,000 dead rows a second, which every scan has to skip."""
    with EmbeddedPostgres(data_dir) as postgres:
        with psycopg.connect(postgres.conninfo, autocommit=True) as connection:
            connection.execute(CHURN)
        eventually(lambda: execute(postgres.conninfo, IS_CLEARED) == [(True,)], seconds=15)


def test_a_killed_server_comes_back_by_itself_with_every_acknowledged_row(data_dir: Path) -> None:
    sentences: list[str] = []
    with EmbeddedPostgres(data_dir, say=sentences.append) as postgres:
        with Writer(postgres.conninfo) as writer:
            for _ in range(3):
                writer.await_rows(100)
                os.kill(postmaster_pid(data_dir), signal.SIGKILL)
            writer.await_rows(100)
        assert stored_rows(postgres.conninfo) >= set(writer.acknowledged)
    assert sentences.count("PostgreSQL stopped by itself; starting it again.") == 3


def test_after_a_kill_of_the_supervisor_a_new_one_starts_at_once_with_every_acknowledged_row(
    data_dir: Path, supervise: Supervise
) -> None:
    for _ in range(2):
        process, conninfo = supervise(data_dir)
        with Writer(conninfo) as writer:
            writer.await_rows(200)
            process.kill()
            with EmbeddedPostgres(data_dir) as postgres:
                writer.await_rows(100)
                acknowledged = set(writer.acknowledged)
                assert stored_rows(postgres.conninfo) >= acknowledged


def test_supervisor_and_server_killed_together_lose_nothing(
    data_dir: Path, supervise: Supervise
) -> None:
    process, conninfo = supervise(data_dir)
    with Writer(conninfo) as writer:
        writer.await_rows(200)
        process.kill()
        with suppress(ProcessLookupError):
            os.kill(postmaster_pid(data_dir), signal.SIGKILL)
        with EmbeddedPostgres(data_dir) as postgres:
            writer.await_rows(100)
            acknowledged = set(writer.acknowledged)
            assert stored_rows(postgres.conninfo) >= acknowledged


@on_linux
def test_the_server_ends_with_its_supervisor(data_dir: Path, supervise: Supervise) -> None:
    process, _ = supervise(data_dir)
    pid = postmaster_pid(data_dir)
    process.kill()

    eventually(lambda: is_gone(pid))


def test_the_server_outlives_the_thread_that_called_start(data_dir: Path) -> None:
    postgres = EmbeddedPostgres(data_dir)
    thread = threading.Thread(target=postgres.start)
    thread.start()
    thread.join()
    time.sleep(0.3)

    assert execute(postgres.conninfo, "SELECT 1") == [(1,)]
    postgres.stop()


def test_a_second_start_on_one_data_directory_names_the_first(
    data_dir: Path, supervise: Supervise
) -> None:
    process, conninfo = supervise(data_dir)

    assert refusal(data_dir) == (
        f"Another Daybook already runs on {data_dir} (process {process.process.pid}). "
        "Stop it, or choose another --data-dir."
    )
    assert execute(conninfo, "SELECT 1") == [(1,)]


def test_stop_may_be_repeated_and_start_may_follow_it(data_dir: Path) -> None:
    postgres = EmbeddedPostgres(data_dir)
    postgres.stop()
    for _ in range(2):
        assert execute(postgres.start(), "SELECT 1") == [(1,)]
        postgres.stop()
        postgres.stop()
        assert not (data_dir / "pgdata" / "postmaster.pid").exists()


def test_running_conninfo_finds_a_server_only_while_it_runs(data_dir: Path) -> None:
    assert running_conninfo(data_dir / "nowhere") is None
    assert running_conninfo(data_dir) is None
    with EmbeddedPostgres(data_dir) as postgres:
        assert running_conninfo(data_dir) == postgres.conninfo
    assert running_conninfo(data_dir) is None


def kill_both(process: Process, data_dir: Path) -> int:
    """Kills supervisor and server before one can react to the other."""
    pid = postmaster_pid(data_dir)
    process.signal(signal.SIGSTOP)
    os.kill(pid, signal.SIGKILL)
    process.kill()
    eventually(lambda: is_gone(pid))
    return pid


def test_a_stale_pid_of_an_unrelated_process_does_not_block_the_start(
    data_dir: Path, supervise: Supervise
) -> None:
    process, _ = supervise(data_dir)
    pid = kill_both(process, data_dir)
    left = data_dir / "pgdata" / "postmaster.pid"
    owner = left.stat().st_uid
    with Process(["sleep", "600"], user=owner if IS_ROOT else None) as unrelated:
        left.write_text(left.read_text().replace(str(pid), str(unrelated.process.pid), 1))
        assert running_conninfo(data_dir) is None
        with EmbeddedPostgres(data_dir) as postgres:
            assert execute(postgres.conninfo, "SELECT 1") == [(1,)]
        assert not unrelated.has_ended


@on_linux
def test_a_zombie_server_does_not_block_the_start(data_dir: Path, supervise: Supervise) -> None:
    become_subreaper = ctypes.CDLL(None).prctl
    become_subreaper(PR_SET_CHILD_SUBREAPER, 1)
    try:
        process, _ = supervise(data_dir)
        pid = kill_both(process, data_dir)
        process.wait()
        os.kill(pid, 0)
        begin = time.monotonic()
        with EmbeddedPostgres(data_dir) as postgres:
            assert execute(postgres.conninfo, "SELECT 1") == [(1,)]
        assert time.monotonic() - begin < 5
        os.waitpid(pid, 0)
    finally:
        become_subreaper(PR_SET_CHILD_SUBREAPER, 0)
