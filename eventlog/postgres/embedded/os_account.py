"""Runs PostgreSQL's programs under a suitable account.

PostgreSQL refuses to run as root. When Daybook is root, its server runs under another existing
account; no account is added and no home directory changed.
"""

import json
import os
import signal as signals
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from daybook.eventlog.errors import SetupError

if sys.platform != "win32":
    import pwd

ACCOUNTS_WHEN_ROOT = ("postgres", "nobody")

# The whole environment of PostgreSQL's programs: the caller's PGDATA or PGPORT has no effect, and
# messages are in English, because they are searched.
ENVIRONMENT: Mapping[str, str] = {"LC_ALL": "C", "TZ": "UTC"}

# Prints the first argument that the user cannot enter.
FIND_UNREACHABLE = 'for path do test -x "$path" || { printf %s "$path"; exit; }; done'

PROGRAM_SECONDS_MAX = 300


@dataclass(frozen=True)
class Account:
    """An unprivileged user that runs PostgreSQL for root."""

    name: str
    uid: int
    gid: int


def name_of_user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def account_for(data_dir: Path, pgdata: Path) -> Account | None:
    """Returns the account for the server, preferably the data's owner; None if not root."""
    if os.geteuid() != 0:
        return None
    owners = [path.stat().st_uid for path in (pgdata, data_dir) if path.exists()]
    look_ups = [partial(pwd.getpwuid, uid) for uid in owners if uid != 0]
    look_ups += [partial(pwd.getpwnam, name) for name in ACCOUNTS_WHEN_ROOT]
    for look_up in look_ups:
        with suppress(KeyError):
            entry = look_up()
            return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)
    raise SetupError(
        "PostgreSQL refuses to run as root, and there is no account postgres or nobody to "
        "run it: run Daybook as a normal user."
    )


def check_reachable(directory: Path, account: Account) -> None:
    """Raises SetupError if the account cannot enter the existing part of the path."""
    existing = [path for path in (*reversed(directory.parents), directory) if path.exists()]
    command = ["/bin/sh", "-c", FIND_UNREACHABLE, "sh", *map(str, existing)]
    unreachable = run(command, account).stdout
    if unreachable:
        raise SetupError(
            f"PostgreSQL refuses to run as root, and user {account.name}, which would run it, may "
            f"not enter {unreachable}: choose another --data-dir, or run Daybook as a normal user."
        )


def make_private_directory(path: Path, account: Account | None) -> None:
    """Creates or checks a directory that only the server's user may enter. It works on the opened
    directory, which cannot be replaced by a symlink meanwhile."""
    if not path.is_symlink():
        path.mkdir(mode=0o700, exist_ok=True)
    user = account.uid if account else os.geteuid()
    try:
        opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise SetupError(f"{path} is not a directory of ours: remove it.") from error
    try:
        status = os.fstat(opened)
        if status.st_uid not in (user, os.geteuid()):
            raise SetupError(
                f"{path} belongs to user {name_of_user(status.st_uid)}, not to "
                f"{name_of_user(user)}: remove it, or choose another --data-dir."
            )
        if account:
            os.fchown(opened, account.uid, account.gid)
        if stat.S_IMODE(status.st_mode) != 0o700:
            os.fchmod(opened, 0o700)
    finally:
        os.close(opened)


def own_tree(top: Path, account: Account) -> None:
    """Changes the owner of a tree without following symlinks."""
    os.chown(top, account.uid, account.gid, follow_symlinks=False)
    for directory, directories, files in os.walk(top):
        for name in directories + files:
            os.chown(Path(directory, name), account.uid, account.gid, follow_symlinks=False)


def run(
    argv: Sequence[str | Path],
    account: Account | None,
    environment: Mapping[str, str] | None = ENVIRONMENT,
) -> subprocess.CompletedProcess[str]:
    """Runs a short program as the account; stdout includes stderr."""
    return subprocess.run(
        argv,
        cwd="/",
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        timeout=PROGRAM_SECONDS_MAX,
        user=account.uid if account else None,
        group=account.gid if account else None,
        extra_groups=[] if account else None,
        check=False,
    )


def run_child(argv: Sequence[str | Path], account: Account | None) -> tuple[bool, str]:
    """Runs a program that must not outlive this process; returns its success and its output."""
    # The Python interpreter may need the full environment; the program gets only ENVIRONMENT.
    ended = run(child_command(argv, account, signal=signals.SIGKILL), None, environment=None)
    return ended.returncode == 0, ended.stdout


def child_command(
    argv: Sequence[str | Path],
    account: Account | None,
    *,
    signal: signals.Signals,
    environment: Mapping[str, str] = ENVIRONMENT,
) -> list[str]:
    """Returns a command that runs `argv` as the account and gets `signal` when its parent dies: on
    Linux the thread that started it, not the process."""
    request = {
        "argv": [str(word) for word in argv],
        "environment": dict(environment),
        "parent": os.getpid(),
        "signal": int(signal),
        "uid": account.uid if account else None,
        "gid": account.gid if account else None,
    }
    program = Path(__file__).with_name("child_exec.py")
    return [sys.executable, "-I", "-S", str(program), json.dumps(request)]
