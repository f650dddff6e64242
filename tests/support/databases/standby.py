"""A primary and its standby, of Debian's PostgreSQL: to kill the one and promote the other."""

import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.conftest import reachable_directory
from tests.support.running.processes import Process, eventually, processes_in

BIN = max(Path("/usr/lib/postgresql").glob("*/bin"), default=Path("/nonexistent"))
with_debian_postgres = pytest.mark.skipif(
    not (BIN / "pg_basebackup").exists(), reason="apt-get install postgresql"
)
SETTINGS = (
    "listen_addresses = ''",
    "wal_level = replica",
    "max_wal_senders = 4",
    "hot_standby = on",
    "wal_sender_timeout = '2s'",
    "wal_retrieve_retry_interval = '100ms'",
    "max_connections = 60",
    # Two servers on one small machine.
    "shared_buffers = '32MB'",
    "autovacuum = off",
    "checkpoint_timeout = '1h'",
)


class Node:
    """One server, in a directory of its own."""

    def __init__(self, home: Path, name: str) -> None:
        self.home = home / name
        self.data = self.home / "data"
        self.process: Process | None = None
        self.home.mkdir()
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            os.chown(self.home, user.pw_uid, user.pw_gid)

    def conninfo(self, database: str = "postgres") -> str:
        return make_conninfo(host=str(self.home), port=5432, user="postgres", dbname=database)

    def run(self, program: str, *arguments: str | Path) -> None:
        done = subprocess.run(
            self._command(program, *arguments), capture_output=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr

    def start(self) -> None:
        command = self._command("postgres", "-D", self.data, "-k", self.home)
        self.process = Process(command)
        assert eventually(self._answers), self.process.output

    def _answers(self) -> bool:
        with suppress(psycopg.OperationalError):
            return bool(self.ask("SELECT 1"))
        return False

    def kill(self) -> None:
        """Kills all its processes, as when its machine fails: no connection is closed in order."""
        if self.process is not None and not self.process.has_ended:
            for pid in processes_in(self.data):
                # A server process may end by itself between the look and the kill.
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.end()

    def ask(self, query: str, *values: Any) -> list[Any]:
        with psycopg.connect(self.conninfo(), autocommit=True, connect_timeout=5) as connection:
            found = connection.execute(query.encode(), values)
            return found.fetchall() if found.description else []

    def _command(self, program: str, *arguments: str | Path) -> list[str]:
        become = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        command = [str(BIN / program), *map(str, arguments)]
        return [*become, *command] if os.geteuid() == 0 else command


class Pair:
    """A primary that is written to, and a standby that follows it."""

    def __init__(self, home: Path) -> None:
        self.primary, self.standby = Node(home, "a"), Node(home, "b")

    def start(self, *, is_synchronous: bool) -> None:
        self.primary.run("initdb", "-D", self.primary.data, "-U", "postgres", "-A", "trust", "-N")
        with (self.primary.data / "postgresql.conf").open("a") as settings:
            settings.write("\n".join([*SETTINGS, ""]))
        self.primary.start()
        follow = make_conninfo(host=str(self.primary.home), user="postgres", application_name="b")
        self.standby.run("pg_basebackup", "-c", "fast", "-R", "-D", self.standby.data, "-d", follow)
        self.standby.start()
        self._await_standby()
        if is_synchronous:
            self.primary.ask("ALTER SYSTEM SET synchronous_standby_names = 'b'")
            self.primary.ask("SELECT pg_reload_conf()")

    @property
    def conninfo(self) -> str:
        """Of whichever takes writes."""
        hosts = f"{self.primary.home},{self.standby.home}"
        return make_conninfo(
            host=hosts, port="5432,5432", user="postgres", target_session_attrs="read-write"
        )

    def hold_back(self) -> None:
        """From now on the standby hears nothing of its primary."""
        self.standby.ask("ALTER SYSTEM SET primary_conninfo = ''")
        self.standby.ask("SELECT pg_reload_conf()")
        query = "SELECT 1 FROM pg_stat_replication"
        assert eventually(lambda: not self.primary.ask(query)), "the standby goes on following"

    def fail_over(self) -> None:
        self.primary.kill()
        self.standby.ask("ALTER SYSTEM SET synchronous_standby_names = ''")
        self.standby.ask("SELECT pg_promote(true, 20)")

    def end(self) -> None:
        self.primary.kill()
        self.standby.kill()

    def _await_standby(self) -> None:
        query = "SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'"
        assert eventually(lambda: bool(self.primary.ask(query))), "the standby does not follow"


@contextmanager
def replicated(*, is_synchronous: bool) -> Iterator[Pair]:
    home = reachable_directory()
    pair = Pair(home)
    try:
        pair.start(is_synchronous=is_synchronous)
        yield pair
    finally:
        pair.end()
        shutil.rmtree(home, ignore_errors=True)
