"""The data directory of the embedded PostgreSQL: layout, lock and creation.

pgdata/        the cluster
run/           the Unix socket, accessible to the server's user only
postgres.log   the server's log, at most 10 MB
daybook.lock   locked by the process that supervises the server
pgbin-*/       copied binaries, only when run as root
"""

import errno
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from daybook.eventlog.errors import DiskFullSetupError, SetupError
from daybook.eventlog.postgres.embedded.binaries import Binaries
from daybook.eventlog.postgres.embedded.os_account import (
    Account,
    check_reachable,
    make_private_directory,
    name_of_user,
    run_child,
)

if sys.platform != "win32":
    import fcntl

# The limit of macOS, the smallest of the supported systems, without the closing NUL byte.
SOCKET_PATH_BYTES_MAX = 103
SOCKET_NAME = ".s.PGSQL.65535"

LOG_BYTES_MAX = 10_000_000
LOG_BYTES_KEPT = 1_000_000
# Messages of the system and of PostgreSQL for a full disk; the last follows a partial write.
DISK_FULL = ("No space left on device", "Disk quota exceeded", "Check free disk space")
DISK_FREE_BYTES_MIN = 1_000_000
LOCK_SECONDS_MAX = 2.0
REMOVE_SECONDS_MAX = 10.0

# "trust" is safe: only the server's user can access the socket, and TCP is off.
INITDB_OPTIONS = ("-U", "postgres", "-A", "trust", "-E", "UTF8", "-k")
# Sort text alike on all machines. Not every system has C.UTF-8; plain C sorts the same and has
# letter case for ASCII only.
INITDB_LOCALES = ("--locale=C.UTF-8", "--no-locale")


@dataclass(frozen=True)
class DataDirectory:
    path: Path

    @property
    def pgdata(self) -> Path:
        return self.path / "pgdata"

    @property
    def log(self) -> Path:
        return self.path / "postgres.log"

    def socket_directory(self) -> Path:
        """Returns `run`, or a short path in the temporary directory if the path is too long for a
        Unix socket or has a comma, which libpq takes for the end of a host."""
        run_directory = self.path / "run"
        length = len(os.fsencode(run_directory / SOCKET_NAME))
        if length <= SOCKET_PATH_BYTES_MAX and "," not in str(run_directory):
            return run_directory
        digest = hashlib.sha256(os.fsencode(self.path)).hexdigest()
        return Path(tempfile.gettempdir(), f"daybook-{digest[:16]}")

    def remove_short_socket_directory(self) -> None:
        directory = self.socket_directory()
        if directory.parent != self.path:
            with suppress(OSError):
                directory.rmdir()

    def full(self) -> DiskFullSetupError:
        return DiskFullSetupError(f"The disk that holds {self.path}")

    def was_full(self, output: str) -> bool:
        """Whether the output reports a full disk, or the disk is too full for any output."""
        if any(message in output for message in DISK_FULL):
            return True
        try:
            return shutil.disk_usage(self.path).free < DISK_FREE_BYTES_MIN
        except OSError:
            return False


@contextmanager
def as_setup_errors(home: DataDirectory) -> Iterator[None]:
    """Turns errors of the operating system into SetupErrors with a remedy."""
    try:
        yield
    except OSError as error:
        path = error.filename or home.path
        if home.was_full(str(error)):
            raise home.full() from error
        message = f"{path} cannot be used ({error.strerror or error}): choose another --data-dir."
        if error.errno in (errno.EACCES, errno.EPERM):
            user = name_of_user(os.geteuid())
            message = (
                f"User {user} may not use {path}: give {user} the right to read and write "
                f"{home.path}, or choose another --data-dir."
            )
        raise SetupError(message) from error
    except subprocess.TimeoutExpired as error:
        raise SetupError(
            f"A program of PostgreSQL has not finished in {error.timeout:.0f} seconds: check the "
            f"load of the machine and the disk that holds {home.path}."
        ) from error


def make_data_directory(path: Path) -> None:
    """Creates the directory and its parents; as root, accessible to the server's user."""
    missing = [directory for directory in (path, *path.parents) if not directory.exists()]
    for directory in reversed(missing):
        directory.mkdir(exist_ok=True)
        if os.geteuid() == 0:
            directory.chmod(0o755)


def take_lock(home: DataDirectory) -> int:
    """Locks the data directory until the returned file is closed or this process dies."""
    opened = os.open(home.path / "daybook.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    try:
        if not _locked(opened):
            holder = os.pread(opened, 32, 0).decode().strip() or "unknown"
            raise SetupError(
                f"Another Daybook already runs on {home.path} (process {holder}). "
                "Stop it, or choose another --data-dir."
            )
        os.ftruncate(opened, 0)
        os.pwrite(opened, f"{os.getpid()}\n".encode(), 0)
    except BaseException:
        os.close(opened)
        raise
    return opened


def _locked(opened: int) -> bool:
    """Retries for LOCK_SECONDS_MAX, because a killed process may take a moment to disappear."""
    until = time.monotonic() + LOCK_SECONDS_MAX
    while True:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > until:
                return False
            time.sleep(0.02)


def make_socket_directory(home: DataDirectory, account: Account | None) -> Path:
    directory = home.socket_directory()
    if account:
        check_reachable(directory.parent, account)
    make_private_directory(directory, account)
    return directory


def make_cluster(home: DataDirectory, binaries: Binaries, account: Account | None) -> None:
    """Creates the cluster under another name first, so that `pgdata` is complete or absent."""
    fresh = home.path / "pgdata.new"
    initdb = binaries.bindir / "initdb"
    try:
        for locale in INITDB_LOCALES:
            _remove_tree(fresh)
            make_private_directory(fresh, account)
            is_made, output = run_child([initdb, "-D", fresh, locale, *INITDB_OPTIONS], account)
            if is_made or "invalid locale" not in output:
                break
        if not is_made:
            raise _initdb_error(output, home)
        fresh.rename(home.pgdata)
    except BaseException:
        _remove_tree(fresh)
        raise
    _sync_directory(home.path)


def remove_leftovers(home: DataDirectory) -> None:
    """Removes the cluster of an initdb that was killed."""
    _remove_tree(home.path / "pgdata.new")


def _initdb_error(output: str, home: DataDirectory) -> SetupError:
    if home.was_full(output):
        return home.full()
    errors = [line for line in output.splitlines() if "error:" in line or "FATAL:" in line]
    reason = (errors or output.splitlines() or ["initdb said nothing"])[0]
    return SetupError(
        f"PostgreSQL could not make a database in {home.path} ({reason.strip()}): remove the "
        "cause, choose another --data-dir, or set DATABASE_URL."
    )


def _remove_tree(top: Path) -> None:
    """Retries, because a dying initdb may still write into the tree."""
    until = time.monotonic() + REMOVE_SECONDS_MAX
    while os.path.lexists(top):
        try:
            shutil.rmtree(top)
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def _sync_directory(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def open_log(home: DataDirectory) -> int:
    return os.open(home.log, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def bound_log(log: int) -> None:
    """Truncates a long log to its end, in place, because the server appends to the open file; lines
    written at that moment are lost."""
    size = os.fstat(log).st_size
    if size > LOG_BYTES_MAX:
        end = os.pread(log, LOG_BYTES_KEPT, size - LOG_BYTES_KEPT)
        os.ftruncate(log, 0)
        os.write(log, end)
