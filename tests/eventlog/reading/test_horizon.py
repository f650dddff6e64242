"""Readers of the horizon skip, repeat and reorder no event; readers of a plain id cursor do."""

import random
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow
from uuid_utils.compat import uuid4, uuid7

from daybook.eventlog.postgres.connections import (
    connect,
    connect_in_thread,
    owner_conninfo,
    writer_conninfo,
)
from daybook.eventlog.reading.horizon import READ_LAST_POSITION, Horizon

WRITERS_COUNT = 10
STRESS_SECONDS = 3.0

APPEND = """
INSERT INTO stored_events (originator_id, originator_version, topic, state, command_id,
                           correlation_id, actor)
VALUES (%(id)s, %(version)s, 'order.created', '{}', %(command)s, %(command)s, 'test')
"""
READ_AFTER = """
SELECT notification_id, originator_id, originator_version
FROM stored_events
WHERE notification_id > %(after)s AND notification_id <= %(upto)s
ORDER BY notification_id
LIMIT 500
"""

Look = Callable[["psycopg.Connection[Any]"], int]


class Reader(threading.Thread):
    """Follows the log up to the end that `look` returns, and records the positions."""

    def __init__(self, conninfo: str, look: Look) -> None:
        super().__init__()
        self._conninfo = owner_conninfo(conninfo)
        self._look = look
        self._versions: dict[UUID, int] = {}
        self.writers_done = threading.Event()
        self.seen: list[int] = []
        self.out_of_order = 0

    def run(self) -> None:
        with connect_in_thread(self._conninfo) as connection:
            while True:
                last_look = self.writers_done.is_set()
                if not self._read(connection, self._look(connection)) and last_look:
                    return
                time.sleep(0.002)

    def _read(self, connection: "psycopg.Connection[Any]", upto: int) -> int:
        after = self.seen[-1] if self.seen else 0
        found = connection.execute(READ_AFTER, {"after": after, "upto": upto}).fetchall()
        for position, aggregate_id, version in found:
            self.seen.append(position)
            self.out_of_order += version != self._versions.get(aggregate_id, 0) + 1
            self._versions[aggregate_id] = version
        return len(found)


def write(conninfo: str, seed: int, shared: list[UUID], stop: threading.Event) -> None:
    """Appends to aggregates of its own and, under a row lock, to shared ones; pauses in between,
    and rolls one in ten back."""
    chance = random.Random(seed)
    with psycopg.connect(owner_conninfo(conninfo), autocommit=True) as connection:
        while not stop.is_set():
            with connection.transaction(force_rollback=chance.random() < 0.1):
                if chance.random() < 0.5:
                    _append(connection, uuid7(), 1)
                one = chance.choice(shared)
                hold = "UPDATE shared SET version = version + 1 WHERE id = %s RETURNING version"
                found = connection.execute(hold, [one]).fetchone()
                assert found is not None
                _append(connection, one, found[0])
                time.sleep(chance.random() * 0.004)


def _append(connection: "psycopg.Connection[Any]", aggregate_id: UUID, version: int) -> None:
    connection.execute(APPEND, {"id": aggregate_id, "version": version, "command": uuid4()})


@contextmanager
def ten_writers(conninfo: str) -> Iterator[None]:
    shared = [uuid7() for _ in range(12)]
    with psycopg.connect(owner_conninfo(conninfo), autocommit=True) as connection:
        connection.execute("CREATE TABLE shared (id uuid PRIMARY KEY, version bigint)")
        for one in shared:
            connection.execute("INSERT INTO shared VALUES (%s, 0)", [one])
    stop = threading.Event()
    threads = [
        threading.Thread(target=write, args=(conninfo, seed, shared, stop))
        for seed in range(WRITERS_COUNT)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def positions(conninfo: str) -> list[int]:
    with psycopg.connect(owner_conninfo(conninfo)) as connection:
        query = "SELECT notification_id FROM stored_events ORDER BY notification_id"
        return [row[0] for row in connection.execute(query).fetchall()]


def last_position(connection: "psycopg.Connection[Any]") -> int:
    found = connection.execute(READ_LAST_POSITION).fetchone()
    assert found is not None
    return int(found[0])


def test_under_ten_writers_the_horizon_shows_every_event_once_and_in_order(
    own_database: str,
) -> None:
    settled = Reader(own_database, Horizon().look_in_thread)
    naive = Reader(own_database, last_position)
    for reader in (settled, naive):
        reader.start()
    with ten_writers(own_database):
        time.sleep(STRESS_SECONDS)
    for reader in (settled, naive):
        reader.writers_done.set()
        reader.join()

    everything = positions(own_database)
    assert len(everything) > 1000
    assert settled.seen == everything
    assert settled.out_of_order == 0
    # Checks the test itself: a cursor that trusts the largest position loses events below it.
    assert set(everything) - set(naive.seen)


def test_an_unrelated_open_transaction_does_not_hold_the_horizon_back(
    server: str, database: str
) -> None:
    with (
        psycopg.connect(make_conninfo(server, dbname="postgres")) as elsewhere,
        psycopg.connect(owner_conninfo(database)) as same_database,
        connect_in_thread(owner_conninfo(database)) as connection,
    ):
        for stranger in (elsewhere, same_database):
            stranger.execute("SELECT pg_current_xact_id()")
        _append(connection, uuid7(), 1)
        assert Horizon().look_in_thread(connection) == last_position(connection) == 1


def test_an_open_writer_keeps_the_horizon_below_its_first_position(
    database: str,
) -> None:
    horizon = Horizon()
    with (
        psycopg.connect(owner_conninfo(database)) as writer,
        connect_in_thread(owner_conninfo(database)) as connection,
    ):
        _append(connection, uuid7(), 1)
        _append(writer, uuid7(), 1)
        _append(connection, uuid7(), 1)
        assert horizon.look_in_thread(connection) == 0
        assert horizon.is_waiting
        writer.commit()
        assert horizon.look_in_thread(connection) == 3


def test_a_prepared_transaction_holds_the_horizon_back(database: str) -> None:
    """Skipped if the server does not allow them, which is the default."""
    with connect_in_thread(owner_conninfo(database)) as connection:
        shown = connection.execute("SHOW max_prepared_transactions").fetchone()
        if shown == ("0",):
            pytest.skip("the server allows no prepared transactions")
        connection.execute("BEGIN")
        _append(connection, uuid7(), 1)
        connection.execute("PREPARE TRANSACTION 'daybook'")
        assert Horizon().look_in_thread(connection) == 0
        connection.execute("COMMIT PREPARED 'daybook'")
        assert Horizon().look_in_thread(connection) == 1


@pytest.mark.parametrize("connecting", [writer_conninfo, owner_conninfo])
def test_a_writer_that_rolled_back_is_not_waited_for(
    database: str, connecting: Callable[[str], str]
) -> None:
    with (
        psycopg.connect(connecting(database)) as writer,
        connect_in_thread(owner_conninfo(database)) as connection,
    ):
        _append(writer, uuid7(), 1)
        writer.rollback()
        _append(connection, uuid7(), 1)
        assert Horizon().look_in_thread(connection) == 2


class Interrupted:
    """A connection that runs a callback after every statement of a look."""

    def __init__(
        self, connection: "psycopg.Connection[Any]", turns: list[Callable[[], None]]
    ) -> None:
        self._connection = connection
        self._turns = turns

    def cursor(self, **_: Any) -> "Interrupted":
        return self

    def execute(self, query: str) -> "psycopg.Cursor[Any]":
        found = self._connection.execute(query.encode())
        if self._turns:
            self._turns.pop(0)()
        return found


class InterruptedAsync(psycopg.AsyncConnection[TupleRow]):
    """The async variant; in a pipeline the server may already be ahead."""

    turns: list[Callable[[], None]]

    @asynccontextmanager
    async def pipeline(self) -> AsyncIterator[Any]:
        yield None

    async def execute(self, *arguments: Any, **options: Any) -> Any:
        found = await super().execute(*arguments, **options)
        if self.turns:
            self.turns.pop(0)()
        return found


@contextmanager
def interrupting(database: str, statement: int) -> Iterator[tuple[list[Callable[[], None]], Any]]:
    """After that statement one writer draws the first position and keeps it; another draws the
    second and commits."""
    with psycopg.connect(owner_conninfo(database)) as slow:

        def write() -> None:
            _append(slow, uuid7(), 1)
            with psycopg.connect(owner_conninfo(database)) as quick:
                _append(quick, uuid7(), 1)

        yield [*[lambda: None] * statement, write], slow


@pytest.mark.parametrize("statement", range(4))
def test_writers_that_come_between_the_statements_of_a_look_are_not_overlooked(
    database: str, statement: int
) -> None:
    horizon = Horizon()
    with (
        interrupting(database, statement) as (turns, slow),
        connect_in_thread(owner_conninfo(database)) as connection,
    ):
        interrupted: Any = Interrupted(connection, turns)
        assert horizon.look_in_thread(interrupted) == 0
        assert horizon.look_in_thread(interrupted) == 0
        slow.commit()
        assert horizon.look_in_thread(interrupted) == 2


@pytest.mark.anyio
@pytest.mark.parametrize("statement", range(4))
async def test_writers_between_the_statements_of_an_async_look_are_not_overlooked(
    database: str, statement: int
) -> None:
    horizon = Horizon()
    with interrupting(database, statement) as (turns, slow):
        connection = await InterruptedAsync.connect(owner_conninfo(database), autocommit=True)
        async with connection:
            connection.turns = turns
            assert await horizon.look(connection) == 0
            assert await horizon.look(connection) == 0
            slow.commit()
            assert await horizon.look(connection) == 2


def test_a_horizon_is_reset_on_another_connection(database: str) -> None:
    horizon = Horizon()
    owner = owner_conninfo(database)
    with psycopg.connect(owner) as writer, psycopg.connect(owner) as another:
        _append(writer, uuid7(), 1)
        with connect_in_thread(owner) as connection:
            _append(connection, uuid7(), 1)
            assert horizon.look_in_thread(connection) == 0
        # The writer that was awaited is gone, as after a crash, and another holds a position.
        writer.rollback()
        _append(another, uuid7(), 1)
        with connect_in_thread(owner) as connection:
            assert horizon.look_in_thread(connection) == 0
            assert horizon.is_waiting


@pytest.mark.anyio
async def test_an_async_horizon_is_reset_on_another_connection(database: str) -> None:
    horizon = Horizon()
    owner = owner_conninfo(database)
    with psycopg.connect(owner) as writer, psycopg.connect(owner) as another:
        _append(writer, uuid7(), 1)
        async with await connect(owner) as connection:
            assert await horizon.look(connection) == 0
        writer.rollback()
        _append(another, uuid7(), 1)
        with psycopg.connect(owner) as third:
            _append(third, uuid7(), 1)
        # The awaited writer is gone; now the writer that holds the second position counts.
        async with await connect(owner) as connection:
            assert await horizon.look(connection) == 0
            assert horizon.is_waiting
            another.commit()
            assert await horizon.look(connection) == 3


def test_a_sequence_that_goes_back_under_a_connection_resets_the_horizon() -> None:
    """As behind a pooler, which keeps the connection while the server crashes."""
    horizon = Horizon()
    assert horizon.observe(5, ["a"], 0) == 0
    assert horizon.observe(3, ["b"], 3) == 0
    assert horizon.is_waiting
    assert horizon.observe(6, [], 6) == 6


def test_unused_positions_do_not_advance_the_horizon(database: str) -> None:
    """A crash returns the positions drawn after the newest event."""
    with connect_in_thread(owner_conninfo(database)) as connection:
        _append(connection, uuid7(), 1)
        for _ in range(40):
            connection.execute("SELECT nextval('stored_events_notification_id_seq')")
        horizon = Horizon()
        assert horizon.look_in_thread(connection) == 1
        assert not horizon.is_waiting


class Transactions:
    """A model of writers: each draws some positions, and commits or not, in any order. A committed
    event is durable, and a drawn position may not be."""

    def __init__(self) -> None:
        self.drawn = 0
        self.open: dict[str, list[int]] = {}
        self.visible: set[int] = set()

    @property
    def newest(self) -> int:
        return max(self.visible, default=0)

    def crash(self, kept: int) -> None:
        """The sequence goes back, no further than to the newest event; writers vanish."""
        self.drawn = min(self.drawn, self.newest + kept)
        self.open.clear()


ACTIONS = ["begin", "draw", "commit", "abort", "look", "crash"]


@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 5)), max_size=60))
def test_no_history_of_writers_and_crashes_makes_a_settled_position_incomplete(
    steps: list[tuple[str, int]],
) -> None:
    log, horizon, seen_at = Transactions(), Horizon(), dict[int, set[int]]()
    for number, (action, who) in enumerate(steps):
        name = f"{who}/{number}" if action == "begin" else _named(log, who)
        if action == "begin":
            log.open[name] = []
        elif action == "look":
            settled = horizon.observe(log.drawn, log.open, log.newest)
            seen_at[settled] = {position for position in log.visible if position <= settled}
        elif action == "crash":
            log.crash(kept=who)
            horizon.reset()
        elif name in log.open and action == "draw":
            log.drawn += 1
            log.open[name].append(log.drawn)
        elif name in log.open:
            ended = log.open.pop(name)
            log.visible |= set(ended) if action == "commit" else set()
    for left in log.open.values():
        log.visible |= set(left)
    for settled, seen in seen_at.items():
        assert seen == {position for position in log.visible if position <= settled}


def _named(log: Transactions, who: int) -> str:
    return next((name for name in log.open if name.startswith(f"{who}/")), "")
