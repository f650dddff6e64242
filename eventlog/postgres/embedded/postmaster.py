"""The server process itself: how it is started, found, ended, and what its last words mean."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from psycopg.conninfo import make_conninfo

from daybook.eventlog.errors import SetupError
from daybook.eventlog.postgres.embedded.binaries import Binaries
from daybook.eventlog.postgres.embedded.data_directory import DataDirectory
from daybook.eventlog.postgres.embedded.os_account import ENVIRONMENT, Account, run, tied

DATABASE = "daybook"
SUPERUSER = "postgres"

DEFAULT_SETTINGS: Mapping[str, str] = {
    # What was acknowledged survives the loss of power, not only of the process.
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "100",
    "shared_buffers": "128MB",
    "max_wal_size": "2GB",
    # What it would save is written once and soon forgotten; to compress the pages of a long queue,
    # by the one method that this build knows, took half of the server's time.
    "wal_compression": "off",
    "autovacuum": "on",
    # What goes through a queue leaves dead rows behind, ten thousand a second when it is busy.
    # Looked after once a minute, as usual, live tables grew a hundredfold and did half as much.
    "autovacuum_naptime": "5s",
    # One process less: nobody subscribes to another server here.
    "max_logical_replication_workers": "0",
    # Short statements gain nothing from being compiled.
    "jit": "off",
    "timezone": "UTC",
    # Errors of statements go to the client, who reports them; here they would only be bulk.
    "log_min_messages": "log",
    "log_min_error_statement": "panic",
    "log_checkpoints": "off",
    "log_timezone": "UTC",
    "lc_messages": "C",
    "cluster_name": "daybook",
}
# From PostgreSQL 18 on. Three input workers more cost memory, and measured no faster here.
DEFAULT_SETTINGS_FROM_18: Mapping[str, str] = {"io_method": "sync"}

# Values for everything else that libpq would take from PGHOSTADDR, PGOPTIONS and the like.
CONNINFO_FIXED: Mapping[str, str] = {
    "hostaddr": "",
    "options": "",
    "sslmode": "disable",
    "gssencmode": "disable",
    "target_session_attrs": "any",
}

# Said by a server that starts while the one before it, or its children, are not quite gone.
LINGERING = ("already exists", "still in use", "Address already in use")

# Why a server gave up. What it answers to clients meanwhile is not the reason.
CAUSE = re.compile(r"(?:FATAL|PANIC): +(?!the database system is )(.+)")

ORPHAN_SECONDS_MAX = 30.0
FAST_SHUTDOWN_SECONDS_MAX = 60.0
IMMEDIATE_SHUTDOWN_SECONDS_MAX = 10.0


@dataclass(frozen=True)
class Postmaster:
    """What postmaster.pid says; a server that was killed leaves it behind."""

    pid: int
    port: str
    socket_directory: str
    status: str

    def conninfo(self, database: str) -> str:
        return make_conninfo(
            host=self.socket_directory,
            port=self.port,
            user=SUPERUSER,
            dbname=database,
            **CONNINFO_FIXED,
        )


def read_postmaster(pgdata: Path) -> Postmaster | None:
    try:
        text = (pgdata / "postmaster.pid").read_text(errors="surrogateescape")
    except (FileNotFoundError, NotADirectoryError):
        return None
    lines = text.split("\n")
    lines += [""] * (8 - len(lines))
    # A single-user server writes a negative number. A file that is just being written is short.
    if not lines[0].isdigit():
        return None
    return Postmaster(int(lines[0]), lines[3], lines[4], lines[7].strip())


def serves(pid: int, pgdata: Path) -> bool:
    """Whether this process is a server of this data directory: a number that was left behind may
    be anybody's by now, above all in a container, where the same few numbers come back."""
    return f" -D {pgdata} " in _command_line(pid)


def _command_line(pid: int) -> str:
    if sys.platform != "linux":
        return run(["/bin/ps", "-ww", "-o", "command=", "-p", str(pid)], None).stdout
    try:
        # Empty for a process that has ended and that nobody has waited for.
        return os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" "))
    except OSError:
        return ""


def stop_orphan(pgdata: Path) -> bool:
    """End a server whose supervisor is gone. Only the holder of the lock may call this."""
    found = read_postmaster(pgdata)
    if found is None or not serves(found.pid, pgdata):
        return False
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
        until = time.monotonic() + ORPHAN_SECONDS_MAX
        try:
            os.kill(found.pid, number)
        except ProcessLookupError:
            return True
        while time.monotonic() < until:
            if not serves(found.pid, pgdata):
                return True
            time.sleep(0.02)
    raise SetupError(
        f"An older PostgreSQL (process {found.pid}) still runs on {pgdata} and does not stop: "
        "end that process, then start again."
    )


def stop_process(process: subprocess.Popen[bytes]) -> None:
    """Fast shutdown: ends the sessions and writes everything down; harder only if that hangs."""
    limits = {
        signal.SIGINT: FAST_SHUTDOWN_SECONDS_MAX,
        signal.SIGQUIT: IMMEDIATE_SHUTDOWN_SECONDS_MAX,
    }
    for number, seconds in limits.items():
        process.send_signal(number)
        try:
            process.wait(seconds)
            return
        except subprocess.TimeoutExpired:
            continue
    process.kill()
    process.wait()


@dataclass(frozen=True)
class Launch:
    """Everything that is needed to start the server, once more and once more."""

    home: DataDirectory
    binaries: Binaries
    account: Account | None
    socket_directory: Path
    settings: Mapping[str, str]

    def spawn(self, log: int) -> subprocess.Popen[bytes]:
        """Start the server, tied to the thread that calls this."""
        environment = self._disown_leftovers()
        return subprocess.Popen(
            tied(self._argv(), self.account, signal=signal.SIGINT, environment=environment),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # Ctrl-C in the terminal is for us: the server stops when we have finished with it.
            start_new_session=True,
        )

    def _argv(self) -> list[str]:
        quoted = str(self.socket_directory).replace('"', '""')
        settings = {
            **DEFAULT_SETTINGS,
            **(DEFAULT_SETTINGS_FROM_18 if int(self.binaries.major) >= 18 else {}),
            **self.settings,
            "unix_socket_directories": f'"{quoted}"',
        }
        argv = [str(self.binaries.bindir / "postgres"), "-D", str(self.home.pgdata)]
        for name, value in settings.items():
            argv += ["-c", f"{name}={value}"]
        return argv

    def _disown_leftovers(self) -> Mapping[str, str]:
        """PostgreSQL does not start while a process lives that its own lock files name.

        If we know that process to be dead, though nobody has buried it, or somebody else's, then
        the socket may go, and of postmaster.pid we say in the environment, as pg_ctl does for
        itself, that this number does not count. The file stays: it leads PostgreSQL to the shared
        memory by which it makes sure that no old child of its own is at work on the data.
        """
        left = read_postmaster(self.home.pgdata)
        if left is None or serves(left.pid, self.home.pgdata):
            return ENVIRONMENT
        for leftover in self.socket_directory.glob(".s.PGSQL.*"):
            leftover.unlink(missing_ok=True)
        return {**ENVIRONMENT, "PG_GRANDPARENT_PID": str(left.pid)}


def lingers(words: str) -> bool:
    return any(sign in words for sign in LINGERING)


def why_not_started(words: str, home: DataDirectory) -> SetupError:
    """One sentence from what the server wrote before it ended."""
    if home.was_full(words):
        return home.full()
    causes = [found[1] for found in CAUSE.finditer(words)]
    lines = causes or words.splitlines()[-1:] or ["it gave no reason"]
    return SetupError(
        f"PostgreSQL does not start on {home.pgdata} ({lines[0].strip()}): "
        f"read {home.log}, and remove the cause."
    )
