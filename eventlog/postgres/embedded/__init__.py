"""The embedded PostgreSQL server, started, supervised and stopped by this process.

It listens on a Unix socket only, with durable commits. It stops when this process dies, and is
restarted when it dies itself.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

import psycopg

from daybook.eventlog.errors import SetupError
from daybook.eventlog.postgres.embedded.binaries import Binaries, choose_binaries, runnable_binaries
from daybook.eventlog.postgres.embedded.data_directory import (
    DataDirectory,
    as_setup_errors,
    make_cluster,
    make_data_directory,
    make_socket_directory,
    remove_leftovers,
    take_lock,
)
from daybook.eventlog.postgres.embedded.os_account import (
    Account,
    account_for,
    check_reachable,
    own_tree,
)
from daybook.eventlog.postgres.embedded.postmaster import (
    DATABASE,
    Launch,
    Postmaster,
    read_postmaster,
    serves,
    stop_orphan,
)
from daybook.eventlog.postgres.embedded.supervisor import Supervisor

FIND_DATABASE = "SELECT 1 FROM pg_database WHERE datname = 'daybook'"
CREATE_DATABASE = "CREATE DATABASE daybook"

CONNECT_SECONDS_MAX = 10.0
POLL_SECONDS = 0.01


def running_conninfo(data_dir: Path) -> str | None:
    """Returns the conninfo of the server running on this data directory, or None. Raises SetupError
    if the directory may not be read."""
    home = DataDirectory(Path(os.path.realpath(data_dir)))
    with as_setup_errors(home):
        found = read_postmaster(home.pgdata)
    if found is None or not found.socket_directory or found.status == "stopping":
        return None
    return found.conninfo(DATABASE) if serves(found.pid, home.pgdata) else None


class EmbeddedPostgres:
    """One server on one data directory. `say` receives messages for the user, also from the
    supervisor's thread."""

    def __init__(
        self,
        data_dir: Path,
        *,
        bindir: Path | None = None,
        settings: Mapping[str, str] | None = None,
        say: Callable[[str], None] = lambda _message: None,
    ) -> None:
        self._data_dir = data_dir
        self._bindir = bindir
        self._settings = dict(settings or {})
        self._say = say
        self.conninfo = ""
        self._lock: int | None = None
        self._supervisor: Supervisor | None = None

    def start(self) -> str:
        """Starts the server, creates the database if absent, and returns the conninfo."""
        if sys.platform == "win32":
            raise SetupError(
                "Daybook brings no PostgreSQL for Windows: set DATABASE_URL to a PostgreSQL server."
            )
        assert self._lock is None, "started twice"
        home = DataDirectory(Path(os.path.realpath(self._data_dir)))
        try:
            with as_setup_errors(home):
                self._supervisor = Supervisor(self._prepare(home), self._say)
            postmaster = self._supervisor.start()
            _ensure_database(postmaster, home)
        except BaseException:
            self.stop()
            raise
        self.conninfo = postmaster.conninfo(DATABASE)
        return self.conninfo

    def stop(self) -> None:
        if self._supervisor is not None:
            self._supervisor.stop()
            self._supervisor = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _prepare(self, home: DataDirectory) -> Launch:
        """Checks everything that may be refused before it creates anything."""
        account = account_for(home.path, home.pgdata)
        if account:
            check_reachable(home.path, account)
        binaries = self._choose_binaries(home)
        make_data_directory(home.path)
        self._lock = take_lock(home)
        if stop_orphan(home.pgdata):
            self._say("Stopped a PostgreSQL that an earlier run had left behind.")
        if account:
            binaries = self._make_runnable(home, binaries, account)
        remove_leftovers(home)
        if not (home.pgdata / "PG_VERSION").exists():
            self._say(f"Making a new database in {home.path}.")
            make_cluster(home, binaries, account)
        sockets = make_socket_directory(home, account)
        return Launch(home, binaries, account, sockets, self._settings)

    def _choose_binaries(self, home: DataDirectory) -> Binaries:
        binaries = choose_binaries(home.pgdata, self._bindir)
        if self._bindir and binaries.origin != "PG_BINDIR":
            self._say(f"PG_BINDIR cannot read {home.pgdata}: using PostgreSQL {binaries} instead.")
        return binaries

    def _make_runnable(self, home: DataDirectory, binaries: Binaries, account: Account) -> Binaries:
        """Gives the account access to the data and the binaries, and no more."""
        self._say(
            f"PostgreSQL refuses to run as root: running it as user {account.name}, "
            f"which owns {home.pgdata}."
        )
        if home.pgdata.exists() and home.pgdata.stat().st_uid != account.uid:
            own_tree(home.pgdata, account)
        runnable = runnable_binaries(binaries, home.path, account)
        if runnable != binaries:
            self._say(
                f"User {account.name} may not read {binaries.bindir}: using a copy in {home.path}."
            )
        return runnable


def _ensure_database(postmaster: Postmaster, home: DataDirectory) -> None:
    until = time.monotonic() + CONNECT_SECONDS_MAX
    while True:
        try:
            with psycopg.connect(postmaster.conninfo("postgres"), autocommit=True) as connection:
                if connection.execute(FIND_DATABASE).fetchone() is None:
                    connection.execute(CREATE_DATABASE)
            return
        except psycopg.errors.DiskFull as error:
            raise home.full() from error
        except psycopg.OperationalError as error:
            if time.monotonic() > until:
                reason = " ".join(str(error).split())
                raise SetupError(
                    f"PostgreSQL runs but cannot be reached ({reason}): unset the environment "
                    "variables that begin with PG, then start again."
                ) from error
            time.sleep(POLL_SECONDS)
