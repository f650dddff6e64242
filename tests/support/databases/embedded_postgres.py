"""Helpers of the tests of the embedded PostgreSQL."""

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from daybook.eventlog.errors import SetupError
from daybook.eventlog.postgres.embedded import EmbeddedPostgres
from tests.support.running.processes import Process

IS_ROOT = os.geteuid() == 0
NOBODY = 65534
PR_SET_CHILD_SUBREAPER = 36

Supervise = Callable[..., tuple[Process, str]]

as_root = pytest.mark.skipif(not IS_ROOT, reason="needs root")
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")

# A process that looks after a server until it is killed.
SUPERVISE = """
import sys, time
from pathlib import Path
from daybook.eventlog.postgres.embedded import EmbeddedPostgres
print(EmbeddedPostgres(Path(sys.argv[1])).start(), flush=True)
time.sleep(600)
"""

# Gives up root only after all imports: the user nobody may lack access to Python's files.
START_AS_NOBODY = """
import os, sys
from pathlib import Path
from daybook.eventlog.postgres.embedded import EmbeddedPostgres
from daybook.eventlog.errors import SetupError
os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    EmbeddedPostgres(Path(sys.argv[1])).start()
except SetupError as error:
    print(error)
"""

NONSENSE = {
    "PGDATA": "/nonsense",
    "PGHOST": "nonsense.invalid",
    "PGHOSTADDR": "192.0.2.1",
    "PGPORT": "1",
    "PGUSER": "nonsense",
    "PGDATABASE": "nonsense",
    "PGOPTIONS": "-c nonsense=1",
    "PGSSLMODE": "verify-full",
    "PGGSSENCMODE": "require",
    "PGTARGETSESSIONATTRS": "standby",
    "LC_ALL": "nonsense",
    "LANG": "nonsense",
    "TZ": "nonsense",
}


def execute(conninfo: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(conninfo, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def show(conninfo: str, setting: str) -> object:
    return execute(conninfo, f"SHOW {setting}")[0][0]


def postmaster_pid(data_dir: Path) -> int:
    return int((data_dir / "pgdata" / "postmaster.pid").read_text().split()[0])


def eventually(holds: Callable[[], bool], seconds: float = 20) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "has not come true in time"
        time.sleep(0.02)


def is_gone(pid: int) -> bool:
    """Ended, or a zombie that its parent has not reaped."""
    try:
        return b"\0" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return True


def refusal(data_dir: Path, bindir: Path | None = None, **settings: str) -> str:
    postgres = EmbeddedPostgres(data_dir, bindir=bindir, settings=settings)
    with pytest.raises(SetupError) as caught:
        postgres.start()
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert "Traceback" not in sentence
    return sentence


class Writer:
    """Inserts 1, 2, 3 into a new table as fast as it can and records acknowledged rows."""

    def __init__(self, conninfo: str) -> None:
        self.acknowledged: list[int] = []
        self._conninfo = conninfo
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Writer":
        execute(self._conninfo, "DROP TABLE IF EXISTS rows")
        execute(self._conninfo, "CREATE TABLE rows (n int)")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def await_rows(self, count: int) -> None:
        wanted = len(self.acknowledged) + count
        eventually(lambda: len(self.acknowledged) >= wanted)

    def _run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            with (
                suppress(psycopg.OperationalError),
                psycopg.connect(self._conninfo, autocommit=True) as connection,
            ):
                while not self._stopping.is_set():
                    number += 1
                    connection.execute("INSERT INTO rows VALUES (%s)", [number])
                    self.acknowledged.append(number)


def stored_rows(conninfo: str) -> set[object]:
    return {row[0] for row in execute(conninfo, "SELECT n FROM rows")}


def seconds_to_start(postgres: EmbeddedPostgres) -> float:
    begin = time.monotonic()
    postgres.start()
    return time.monotonic() - begin
