"""`daybook.enqueue` in the caller's transaction, and its refusals."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from msgspec import Raw
from psycopg import AsyncConnection
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL, Identifier

import daybook
from daybook import BadValue, DaybookError, EnqueueFailed
from tests.support.committer import fold_of_the_log, live_rows, rows

EAST, WEST = timezone(timedelta(hours=14)), timezone(-timedelta(hours=14))


def enqueue(connection: Any, **fields: Any) -> Any:
    return daybook.enqueue(connection, **{"queue": "email", "type": "send", **fields})


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def circular() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


OUT_OF_BOUNDS: list[dict[str, Any]] = [
    {"queue": ""},
    {"queue": "a b/c"},
    {"queue": "email\n"},
    {"queue": "x" * 101},
    {"queue": 7},
    {"type": ""},
    {"type": "send\n"},
    {"attempts_max": -5},
    {"attempts_max": 0},
    {"attempts_max": 1001},
    {"attempts_max": True},
    {"priority": 11},
    {"priority": 2.5},
    {"lease_seconds": float("nan")},
    {"lease_seconds": float("inf")},
    {"lease_seconds": 1e18},
    {"lease_seconds": 0},
    {"lease_seconds": -1},
    {"run_at": datetime(1, 1, 1, tzinfo=EAST)},
    {"run_at": datetime(9999, 12, 31, 23, 59, 59, tzinfo=WEST)},
    {"run_at": datetime(2026, 1, 1)},  # noqa: DTZ001 (the very fault)
    {"run_at": "tomorrow"},
    {"subject": "x" * 100_000},
    {"subject": ""},
    {"subject": "a\0"},
    {"subject": "\ud800"},
    {"unique_key": "x" * 201},
    {"unique_key": "k", "unique_scope": "sometimes"},
    {"partition": ""},
    {"payload": "x" * 3_000_000},
    {"payload": {"a": "\0"}},
    {"payload": {"\0": 1}},
    {"payload": nested(600)},
    {"payload": Raw(b"{]")},
    {"payload": Raw(b'"\xff"')},
    {"job_id": UUID(int=1)},
    {"is_fresh": True},
    {"operation_id": UUID(int=1)},
    {"actor": "admin:eve"},
    {"actor": ""},
    {"actor": "a\n"},
    {"actor": "x" * 101},
]
UNENCODABLE: dict[str, Any] = {
    "object": object(),
    "object in a set": {"a": {1, object()}},
    "half a character": "\ud800",
    "complex key": {1j: 1},
    "too deep": nested(100_000),
    "circular": circular(),
}


def named(fields: dict[str, Any]) -> str:
    return " ".join(f"{name}={str(value)[:20]!r}" for name, value in fields.items())


@pytest.mark.parametrize("fields", OUT_OF_BOUNDS, ids=named)
def test_a_value_out_of_bounds_is_refused_and_the_transaction_goes_on(
    database: str, fields: dict[str, Any]
) -> None:
    with psycopg.connect(database) as connection:
        with pytest.raises(BadValue) as refused:
            enqueue(connection, **fields)
        enqueue(connection)
    assert isinstance(refused.value, DaybookError)
    assert refused.value.code == "schema"
    assert len(str(refused.value)) < 400
    assert rows(database, "SELECT count(*) FROM log") == [(1,)]
    assert live_rows(database) == fold_of_the_log(database)


@pytest.mark.parametrize("payload", UNENCODABLE.values(), ids=UNENCODABLE)
def test_a_payload_that_json_has_no_form_for_is_a_daybook_error(
    database: str, payload: Any
) -> None:
    with psycopg.connect(database) as connection, pytest.raises(BadValue) as refused:
        enqueue(connection, payload=payload)
    assert refused.value.code == "unencodable"
    assert str(refused.value).startswith("The payload cannot be written as JSON: ")


def test_values_at_their_bounds_are_taken(database: str) -> None:
    with psycopg.connect(database) as connection:
        enqueue(connection, queue="x" * 100, attempts_max=1000, lease_seconds=86_400, priority=1)
        enqueue(connection, run_at=datetime(9998, 12, 31, tzinfo=UTC), subject="x" * 200)
        enqueue(connection, payload="x" * (64 * 1024 - 2))
        enqueue(connection, payload=nested(500))
    assert live_rows(database) == fold_of_the_log(database)


def test_an_actor_is_stored_behind_a_prefix_that_no_key_has(database: str) -> None:
    with psycopg.connect(database) as connection:
        enqueue(connection, actor="bookings")
        enqueue(connection)
    assert rows(database, "SELECT actor FROM log ORDER BY position") == [
        ("enqueue:bookings",),
        ("enqueue",),
    ]


def failed_with(code: str, connection: Any) -> str:
    with pytest.raises(EnqueueFailed) as refused:
        enqueue(connection)
    assert refused.value.code == code
    assert "does not exist" not in str(refused.value)
    return str(refused.value)


def test_an_autocommit_connection_is_refused_with_the_hint_to_open_a_transaction(
    database: str,
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        assert "`with connection.transaction():`" in failed_with("autocommit", connection)
        with connection.transaction():
            enqueue(connection)
    assert rows(database, "SELECT count(*) FROM log") == [(1,)]


@contextmanager
def user_of(database: str) -> Iterator[str]:
    """A user with a name that needs its quotes, and no rights."""
    name = f'Shop "{uuid4().hex[:6]}"'
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(SQL("CREATE ROLE {} LOGIN").format(Identifier(name)))
        try:
            yield name
        finally:
            owner.execute(SQL("DROP OWNED BY {0}; DROP ROLE {0}").format(Identifier(name)))


def test_a_user_without_privileges_gets_the_grant_that_helps(database: str) -> None:
    with (
        psycopg.connect(database, autocommit=True) as owner,
        user_of(database) as user,
        psycopg.connect(make_conninfo(database, user=user)) as connection,
    ):
        sentence = failed_with("not_granted", connection)
        grant = sentence.partition("say ")[2]
        assert grant.startswith("GRANT daybook_service TO ")
        connection.rollback()
        owner.execute(grant.encode())
        enqueue(connection)
        connection.commit()
    assert rows(database, "SELECT count(*) FROM log") == [(1,)]


def test_a_user_who_may_only_read_gets_the_same_grant(database: str) -> None:
    with (
        psycopg.connect(database, autocommit=True) as owner,
        user_of(database) as user,
        psycopg.connect(make_conninfo(database, user=user)) as connection,
    ):
        usage = SQL("GRANT USAGE ON SCHEMA daybook TO {}")
        owner.execute(usage.format(Identifier(user)))
        assert "GRANT daybook_service TO" in failed_with("not_granted", connection)
        connection.rollback()


def test_a_database_without_daybook_is_named(database: str) -> None:
    with psycopg.connect(make_conninfo(database, dbname="postgres")) as connection:
        sentence = failed_with("no_daybook", connection)
        assert "'postgres'" in sentence
        assert "daybook migrate" in sentence
        # The caller's own names still mean the caller's own tables.
        assert connection.execute("SHOW search_path").fetchone() != ("daybook",)


class Connection:
    """As SQLAlchemy's: it stands before a connection of psycopg."""

    __module__ = "sqlalchemy.engine.base"

    def __init__(self, driver_connection: Any) -> None:
        self.connection = SimpleNamespace(driver_connection=driver_connection)


def test_another_kind_of_connection_is_refused_with_the_right_function(database: str) -> None:
    with psycopg.connect(database) as real:
        theirs = Connection(real)
        sentence = failed_with("not_a_connection", theirs)
        assert "sqlalchemy.engine.base.Connection" in sentence
        assert ".connection.driver_connection" in sentence
        enqueue(theirs.connection.driver_connection)
        failed_with("not_a_connection", real.cursor())
        failed_with("not_a_connection", None)


@pytest.mark.anyio
async def test_the_async_way_in_refuses_the_same(database: str) -> None:
    async with await AsyncConnection.connect(database, autocommit=True) as connection:
        with pytest.raises(EnqueueFailed) as refused:
            await daybook.enqueue_async(connection, queue="email", type="send")
        assert refused.value.code == "autocommit"
        with pytest.raises(BadValue):
            await daybook.enqueue_async(connection, queue="", type="send")
        with pytest.raises(EnqueueFailed) as refused:
            daybook.enqueue(connection, queue="email", type="send")  # type: ignore[arg-type]  # the fault
        assert refused.value.code == "not_a_connection"
