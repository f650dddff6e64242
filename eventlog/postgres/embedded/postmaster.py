"""The server process: start, discovery, shutdown, and diagnosis of its log."""

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
from daybook.eventlog.postgres.embedded.os_account import ENVIRONMENT, Account, child_command, run

DATABASE = "daybook"
SUPERUSER = "postgres"

DEFAULT_SETTINGS: Mapping[str, str] = {
    # Acknowledged commits survive a power failure.
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "100",
    "shared_buffers": "128MB",
    "max_wal_size": "2GB",
    # With a long queue, compression by this build's only method took half of the server's time.
    "wal_compression": "off",
    "autovacuum": "on",
    # A busy queue leaves 10,000 dead rows a second. With the default of one minute, live tables
    # grew 100-fold and throughput halved.
    "autovacuum_naptime": "5s",
    # Saves one process; this server has no subscriptions.
    "max_logical_replication_workers": "0",
    # Short statements gain nothing from compilation.
    "jit": "off",
    "timezone": "UTC",
    # The client reports errors of statements.
    "log_min_messages": "log",
    "log_min_error_statement": "panic",
    "log_checkpoints": "off",
    "log_timezone": "UTC",
    "lc_messages": "C",
    "cluster_name": "daybook",
}
# From PostgreSQL 18 on. The default's three I/O workers cost memory and were no faster.
DEFAULT_SETTINGS_FROM_18: Mapping[str, str] = {"io_method": "sync"}

# Overrides settings that libpq would take from PGHOSTADDR, PGOPTIONS and the like.
CONNINFO_FIXED: Mapping[str, str] = {
    "hostaddr": "",
    "options": "",
    "sslmode": "disable",
    "gssencmode": "disable",
    "target_session_attrs": "any",
}

# Messages of a server that starts before the previous one and its children have ended.
LINGERING = ("already exists", "still in use", "Address already in use")

# The reason why a server stopped, other than its replies to clients.
CAUSE = re.compile(r"(?:FATAL|PANIC): +(?!the database system is )(.+)")

ORPHAN_SECONDS_MAX = 30.0
FAST_SHUTDOWN_SECONDS_MAX = 60.0
IMMEDIATE_SHUTDOWN_SECONDS_MAX = 10.0


@dataclass(frozen=True)
class Postmaster:
    """The content of postmaster.pid, which a killed server leaves behind."""

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
    # A single-user server writes a negative number; a file that is being written is short.
    if not lines[0].isdigit():
        return None
    return Postmaster(int(lines[0]), lines[3], lines[4], lines[7].strip())


def serves(pid: int, pgdata: Path) -> bool:
    """Whether the process is a server of this data directory. A stale pid may belong to another
    process, above all in a container, where pids repeat."""
    return f" -D {pgdata} " in _command_line(pid)


def _command_line(pid: int) -> str:
    if sys.platform != "linux":
        return run(["/bin/ps", "-ww", "-o", "command=", "-p", str(pid)], None).stdout
    try:
        # Empty for a zombie process.
        return os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" "))
    except OSError:
        return ""


def stop_orphan(pgdata: Path) -> bool:
    """Stops a server without supervisor; the caller must have the lock of the directory."""
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
    """Fast shutdown; immediate shutdown or SIGKILL only if that hangs."""
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
    home: DataDirectory
    binaries: Binaries
    account: Account | None
    socket_directory: Path
    settings: Mapping[str, str]

    def spawn(self, log: int) -> subprocess.Popen[bytes]:
        """Starts the server, which stops when the calling thread ends."""
        argv, environment = self._argv(), self._ignore_stale_pid()
        return subprocess.Popen(
            child_command(argv, self.account, signal=signal.SIGINT, environment=environment),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # Ctrl-C in the terminal must not reach the server before this process has stopped.
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

    def _ignore_stale_pid(self) -> Mapping[str, str]:
        """PostgreSQL does not start while the process named in its lock files exists. If that is a
        zombie or an unrelated process, this removes the socket and returns an environment that
        makes PostgreSQL ignore the pid, as pg_ctl does. postmaster.pid stays, because it leads to
        the shared memory that shows whether old child processes still use the data."""
        stale = read_postmaster(self.home.pgdata)
        if stale is None or serves(stale.pid, self.home.pgdata):
            return ENVIRONMENT
        for path in self.socket_directory.glob(".s.PGSQL.*"):
            path.unlink(missing_ok=True)
        return {**ENVIRONMENT, "PG_GRANDPARENT_PID": str(stale.pid)}


def is_lingering(output: str) -> bool:
    return any(message in output for message in LINGERING)


def start_error(output: str, home: DataDirectory) -> SetupError:
    """Builds the error from the log of a server that did not start."""
    if home.was_full(output):
        return home.full()
    causes = [found[1] for found in CAUSE.finditer(output)]
    lines = causes or output.splitlines()[-1:] or ["it gave no reason"]
    return SetupError(
        f"PostgreSQL does not start on {home.pgdata} ({lines[0].strip()}): "
        f"read {home.log}, and remove the cause."
    )
