"""As whom PostgreSQL's programs run, and how they are run.

PostgreSQL refuses to work as root. When Daybook is root, it lends its server another account
that exists already; nothing is added to the system and no home directory is touched.
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

# PostgreSQL's programs get this environment and nothing of ours: PGDATA, PGPORT or LC_ALL of
# the caller cannot change what runs, and messages are in the English that we look for.
ENVIRONMENT: Mapping[str, str] = {"LC_ALL": "C", "TZ": "UTC"}

# Prints the first of its arguments that this user cannot enter.
FIND_UNREACHABLE = 'for path do test -x "$path" || { printf %s "$path"; exit; }; done'

PROGRAM_SECONDS_MAX = 300


@dataclass(frozen=True)
class Account:
    """A user without privileges that runs PostgreSQL for root."""

    name: str
    uid: int
    gid: int


def name_of_user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def account_for(data_dir: Path, pgdata: Path) -> Account | None:
    """The account for the server, or None: as we are, because we are not root.

    Who owns the data already goes on owning it.
    """
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
    """The account must be able to walk down to the directory, as far as that exists already."""
    existing = [path for path in (*reversed(directory.parents), directory) if path.exists()]
    command = ["/bin/sh", "-c", FIND_UNREACHABLE, "sh", *map(str, existing)]
    unreachable = run(command, account).stdout
    if unreachable:
        raise SetupError(
            f"PostgreSQL refuses to run as root, and user {account.name}, which would run it, may "
            f"not enter {unreachable}: choose another --data-dir, or run Daybook as a normal user."
        )


def make_private_directory(path: Path, account: Account | None) -> None:
    """Make a directory that only the server's user may enter, or check that it is one.

    Works on the opened directory, so that nobody can put a link in its place meanwhile.
    """
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
    """Hand a tree that belongs to root to the account; links in it are not followed."""
    os.chown(top, account.uid, account.gid, follow_symlinks=False)
    for directory, directories, files in os.walk(top):
        for name in directories + files:
            os.chown(Path(directory, name), account.uid, account.gid, follow_symlinks=False)


def run(
    argv: Sequence[str | Path],
    account: Account | None,
    environment: Mapping[str, str] | None = ENVIRONMENT,
) -> subprocess.CompletedProcess[str]:
    """Run a short program to its end as the account; stdout holds all that it said."""
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


def run_tied(argv: Sequence[str | Path], account: Account | None) -> tuple[bool, str]:
    """Run a program that must not outlive us; says whether it went well, and what it said."""
    # Our own interpreter may need our environment to start; the program gets the bare one.
    ended = run(tied(argv, account, signal=signals.SIGKILL), None, environment=None)
    return ended.returncode == 0, ended.stdout


def tied(
    argv: Sequence[str | Path],
    account: Account | None,
    *,
    signal: signals.Signals,
    environment: Mapping[str, str] = ENVIRONMENT,
) -> list[str]:
    """The command that runs `argv` as the account and gets `signal` when the caller dies.

    On Linux "the caller" is the thread that starts it, not the process.
    """
    order = {
        "argv": [str(word) for word in argv],
        "environment": dict(environment),
        "parent": os.getpid(),
        "signal": int(signal),
        "uid": account.uid if account else None,
        "gid": account.gid if account else None,
    }
    program = Path(__file__).with_name("child_exec.py")
    return [sys.executable, "-I", "-S", str(program), json.dumps(order)]
