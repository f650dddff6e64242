"""PostgreSQL crashes beneath a living service: no reader of the log skips an event."""

import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from typing import Any

import psycopg
import pytest
from uuid_utils.compat import uuid4

from daybook.eventlog.notifier import NOTIFY
from daybook.eventlog.postgres.connections import owner_conninfo
from daybook.eventlog.postgres.embedded.postmaster import DATABASE, read_postmaster
from daybook.eventlog.reading.horizon import READ_LAST_POSITION
from tests.daybook.cli.test_log_view import follow
from tests.support.running.processes import SECONDS_MAX, Process, daybook, eventually
from tests.support.running.recording import History, load
from tests.support.running.service_process import ServiceWithPostgres, postgres_processes

DRAWN_COUNT = 120
ORDERS_COUNT = 15
# Followers that are rung for have looked at the positions by then, and nothing else is flushed yet.
LOOKED_SECONDS = 0.5

DRAW_POSITIONS = """
INSERT INTO stored_events (originator_id, originator_version, topic, state,
                           command_id, correlation_id, actor)
SELECT gen_random_uuid(), 1, 'order.created', '{}', %(command)s, %(command)s, 'test'
FROM generate_series(1, %(count)s)
"""
KILLS_COUNT = 4
READ_POSITIONS = """
SELECT notification_id FROM stored_events WHERE notification_id > %(after)s ORDER BY 1
"""
COUNT_BEHIND = """
SELECT count(*) FROM followers WHERE position < (SELECT max(notification_id) FROM stored_events)
"""
FIND_FLUSHERS = """
SELECT pid FROM pg_stat_activity
WHERE backend_type IN ('walwriter', 'background writer', 'checkpointer', 'autovacuum launcher')
"""


def conninfo_of(data_dir: Path) -> str:
    found = read_postmaster(data_dir / "pgdata")
    assert found is not None
    return owner_conninfo(found.conninfo(DATABASE))


def rows(data_dir: Path, query: str) -> list[Any]:
    with psycopg.connect(conninfo_of(data_dir), autocommit=True) as connection:
        found = connection.execute(query.encode())
        return found.fetchall() if found.description else []


def last_position(data_dir: Path) -> int:
    ((position,),) = rows(data_dir, READ_LAST_POSITION)
    return int(position)


def kill_postgres(data_dir: Path) -> None:
    """Kills all its processes, as when the power fails: WAL that was not flushed is gone."""
    for process in postgres_processes(data_dir):
        os.kill(process, signal.SIGKILL)


def stop_flushing(data_dir: Path) -> None:
    """From now on only a commit that waits for the disk flushes WAL, until the server is killed."""
    for (process,) in rows(data_dir, FIND_FLUSHERS):
        os.kill(process, signal.SIGSTOP)


def complete_orders(service: ServiceWithPostgres, count: int) -> set[str]:
    bot = service.bot()["id"]
    for _ in range(count):
        service.order()
    done: set[str] = set()
    for _ in range(count):
        order = service.ask("POST", f"/api/bots/{bot}/claim")["order"]["id"]
        service.ask("PATCH", f"/api/orders/{order}", {"status": "COMPLETE"})
        done.add(order)
    return done


class Listening(threading.Thread):
    """A client of the stream that stays connected. Whenever it is cut off, it comes back with the
    id of the last event it has."""

    def __init__(self, service: ServiceWithPostgres) -> None:
        super().__init__(daemon=True)
        self.received: list[dict[str, Any]] = []
        self.rewound: list[dict[str, Any]] = []
        self.last_id: str | None = None
        self._service = service
        self._is_over = False
        self._is_open = threading.Event()
        self._socket: socket.socket | None = None
        self.start()
        assert self._is_open.wait(SECONDS_MAX)

    def run(self) -> None:
        while not self._is_over:
            connection = HTTPConnection(*self._service.address, timeout=SECONDS_MAX)
            try:
                headers = {} if self.last_id is None else {"Last-Event-ID": self.last_id}
                connection.request("GET", "/api/stream", headers=headers)
                self._socket = connection.sock
                with connection.getresponse() as answer:
                    if answer.status == HTTPStatus.OK:
                        self._hear(answer)
            except (OSError, HTTPException):
                pass
            finally:
                connection.close()
            time.sleep(0.1)

    def leave(self) -> None:
        self._is_over = True
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        self.join(SECONDS_MAX)

    def of_topic(self, topic: str) -> set[str]:
        return {one["id"] for one in self.received if one["topic"] == topic}

    def _hear(self, answer: HTTPResponse) -> None:
        while line := answer.readline().decode():
            name, _, value = line.rstrip("\n").partition(": ")
            if name == "id":
                self.last_id = value
                self._is_open.set()
            elif name == "data":
                event = json.loads(value)
                (self.received if "topic" in event else self.rewound).append(event)


@contextmanager
def listening(service: ServiceWithPostgres) -> Iterator[Listening]:
    listener = Listening(service)
    try:
        yield listener
    finally:
        listener.leave()


def shown(log: Process) -> set[str]:
    lines = [json.loads(line) for line in [*log.lines]]
    return {one["aggregate"] for one in lines if one["topic"] == "order.completed"}


@pytest.mark.slow
def test_no_reader_skips_positions_that_a_crash_takes_back(
    fresh_service: ServiceWithPostgres,
) -> None:
    # I-33, I-34
    service, data_dir = fresh_service, fresh_service.data_dir
    assert service.becomes(200)
    complete_orders(service, 1)
    with (
        listening(service) as listener,
        follow("--json", "--data-dir", data_dir, "--after", "0") as log,
        closing(psycopg.connect(conninfo_of(data_dir))) as writer,
    ):
        assert eventually(lambda: bool(shown(log)))
        stop_flushing(data_dir)
        writer.execute(DRAW_POSITIONS, {"command": uuid4(), "count": DRAWN_COUNT})
        rows(data_dir, NOTIFY)
        time.sleep(LOOKED_SECONDS)
        drawn = last_position(data_dir)
        kill_postgres(data_dir)
        assert service.becomes(200)

        # The check of this test: the sequence went back, to where nothing had been recorded.
        assert last_position(data_dir) < drawn
        done = complete_orders(service, ORDERS_COUNT)

        assert eventually(lambda: done <= listener.of_topic("order.completed"))
        assert eventually(lambda: done <= shown(log))
    finished = "SELECT id FROM finished_orders"
    assert eventually(lambda: done <= {str(one) for (one,) in rows(data_dir, finished)})
    listed = service.get("/api/orders?status=COMPLETE&limit=100")
    assert done <= {order["id"] for order in listed["orders"]}
    checked = daybook("audit", "check", "--data-dir", data_dir, "--only", "I-33", "--only", "I-34")
    assert checked.returncode == 0, checked.stdout
    assert "2 valid, 0 invalid, 0 unknown" in checked.stdout


def log_positions(conninfo: str, after: int) -> list[int]:
    with psycopg.connect(conninfo, autocommit=True) as connection:
        found = connection.execute(READ_POSITIONS, {"after": after}).fetchall()
    return [position for (position,) in found]


@pytest.mark.slow
def test_no_reader_skips_events_when_postgres_is_killed_repeatedly_under_bulk_load(
    fresh_service: ServiceWithPostgres, tmp_path: Path
) -> None:
    # I-09, I-33, I-34
    service, data_dir, history = fresh_service, fresh_service.data_dir, History()
    assert service.becomes(200)
    with listening(service) as listener:
        with load(service, history):
            for _ in range(KILLS_COUNT):
                time.sleep(1.5)
                kill_postgres(data_dir)
                assert service.becomes(200)
            time.sleep(1)
        log = log_positions(conninfo_of(data_dir), 0)
        assert eventually(
            lambda: bool(listener.received) and listener.received[-1]["position"] >= log[-1]
        )
    assert [one["position"] for one in listener.received] == log
    assert len(history.acknowledged) > 50
    assert eventually(lambda: is_followed(data_dir))
    checked = daybook(
        *("audit", "check", "--data-dir", data_dir, "--history", history.write(tmp_path)),
        *("--receipts", history.write_receipts(tmp_path)),
    )
    assert checked.returncode == 0, checked.stdout
    for invariant in ("I-09", "I-33", "I-34"):
        assert re.search(rf"^{invariant} +valid", checked.stdout, re.M), checked.stdout


def is_followed(data_dir: Path) -> bool:
    ((behind,),) = rows(data_dir, COUNT_BEHIND)
    return bool(behind == 0)
