"""The data directory of the embedded PostgreSQL: its layout, its lock, its making.

pgdata/        the cluster itself
run/           the Unix socket, for nobody but the server's user
postgres.log   what the server says, at most 10 MB of it
daybook.lock   held by the one process that looks after the server
pgbin-*/       copied binaries, only when root has to
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
    run_tied,
)

if sys.platform != "win32":
    import fcntl

# The shortest of the limits of our systems, macOS's, less its closing zero byte.
SOCKET_PATH_BYTES_MAX = 103
SOCKET_NAME = ".s.PGSQL.65535"

LOG_BYTES_MAX = 10_000_000
LOG_BYTES_KEPT = 1_000_000
# What the system and PostgreSQL say when the disk is full, the last after half a page was written.
DISK_FULL = ("No space left on device", "Disk quota exceeded", "Check free disk space")
DISK_FREE_BYTES_MIN = 1_000_000
LOCK_SECONDS_MAX = 2.0
REMOVE_SECONDS_MAX = 10.0

# Nobody but the server's user reaches the socket, and TCP is off, so trusting whoever reaches
# it gives nothing away, and there is no password to keep.
INITDB_OPTIONS = ("-U", "postgres", "-A", "trust", "-E", "UTF8", "-k")
# The same order of text everywhere, whatever the machine's language; not every system has the
# first. Plain C sorts alike and knows letter case for ASCII only.
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
        """`run`, or a short name under the temporary directory where `run` cannot be used.

        The path of a Unix socket has a limit, and libpq takes a comma for the end of a host.
        """
        run_directory = self.path / "run"
        length = len(os.fsencode(run_directory / SOCKET_NAME))
        if length <= SOCKET_PATH_BYTES_MAX and "," not in str(run_directory):
            return run_directory
        digest = hashlib.sha256(os.fsencode(self.path)).hexdigest()
        return Path(tempfile.gettempdir(), f"daybook-{digest[:16]}")

    def remove_short_socket_directory(self) -> None:
        """Leave nothing behind in the temporary directory, once the server is gone."""
        directory = self.socket_directory()
        if directory.parent != self.path:
            with suppress(OSError):
                directory.rmdir()

    def full(self) -> DiskFullSetupError:
        return DiskFullSetupError(f"The disk that holds {self.path}")

    def was_full(self, words: str) -> bool:
        """Whether these words mean a full disk, or it is so full that there are no words."""
        if any(sign in words for sign in DISK_FULL):
            return True
        try:
            return shutil.disk_usage(self.path).free < DISK_FREE_BYTES_MIN
        except OSError:
            return False


@contextmanager
def clear_sentences(home: DataDirectory) -> Iterator[None]:
    """Turn what the operating system refuses into a sentence for the user."""
    try:
        yield
    except OSError as error:
        place = error.filename or home.path
        if home.was_full(str(error)):
            raise home.full() from error
        if error.errno in (errno.EACCES, errno.EPERM):
            user = name_of_user(os.geteuid())
            sentence = (
                f"User {user} may not use {place}: give {user} the right to read and write "
                f"{home.path}, or choose another --data-dir."
            )
        else:
            sentence = (
                f"{place} cannot be used ({error.strerror or error}): choose another --data-dir."
            )
        raise SetupError(sentence) from error
    except subprocess.TimeoutExpired as error:
        raise SetupError(
            f"A program of PostgreSQL has not finished in {error.timeout:.0f} seconds: look at "
            f"the load of the machine and at the disk that holds {home.path}."
        ) from error


def make_data_directory(path: Path) -> None:
    """Make the directory and its missing parents; as root so that the server's user gets in."""
    missing = [directory for directory in (path, *path.parents) if not directory.exists()]
    for directory in reversed(missing):
        directory.mkdir(exist_ok=True)
        if os.geteuid() == 0:
            directory.chmod(0o755)


def take_lock(home: DataDirectory) -> int:
    """Be the one who looks after this data directory, until the returned file is closed.

    The kernel lets go of the lock when we die, however we die.
    """
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
    """Try for a little while: one who was just killed may need a moment to be gone."""
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
    """Make the cluster under another name first, so that `pgdata` is whole or not there."""
    fresh = home.path / "pgdata.new"
    try:
        for locale in INITDB_LOCALES:
            _remove_tree(fresh)
            make_private_directory(fresh, account)
            initdb: list[str | Path] = [
                binaries.bindir / "initdb",
                "-D",
                fresh,
                locale,
                *INITDB_OPTIONS,
            ]
            made, output = run_tied(initdb, account)
            if made or "invalid locale" not in output:
                break
        if not made:
            raise _why_not_made(output, home)
        fresh.rename(home.pgdata)
    except BaseException:
        _remove_tree(fresh)
        raise
    _sync_directory(home.path)


def remove_leftovers(home: DataDirectory) -> None:
    """What an initdb that was killed has left."""
    _remove_tree(home.path / "pgdata.new")


def _why_not_made(output: str, home: DataDirectory) -> SetupError:
    if home.was_full(output):
        return home.full()
    errors = [line for line in output.splitlines() if "error:" in line or "FATAL:" in line]
    reason = (errors or output.splitlines() or ["initdb said nothing"])[0]
    return SetupError(
        f"PostgreSQL could not make a database in {home.path} ({reason.strip()}): remove the "
        "cause, choose another --data-dir, or set DATABASE_URL."
    )


def _remove_tree(top: Path) -> None:
    """Remove it for good; a dying initdb may still be writing into it for a moment."""
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
    """Keep only the end of a log that has grown too long.

    The server has the file open to append, so it is shortened in place; what it writes in that
    moment is lost, which a log can bear.
    """
    size = os.fstat(log).st_size
    if size > LOG_BYTES_MAX:
        end = os.pread(log, LOG_BYTES_KEPT, size - LOG_BYTES_KEPT)
        os.ftruncate(log, 0)
        os.write(log, end)
