"""The choice of the database, and the message for each that cannot be used."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from uuid_utils.compat import uuid7

from daybook.api.server.database import check, prepare, refuse_old, shared_database
from daybook.api.settings.settings import Settings
from daybook.eventlog.errors import SetupError


@pytest.fixture
def web_server() -> Iterator[int]:
    """A port with a server that is not a PostgreSQL."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            while True:
                try:
                    link, _ = listener.accept()
                except OSError:
                    return
                with link:
                    link.recv(1000)
                    link.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_database_url_goes_before_the_embedded_postgres(
    empty_database: str, tmp_path: Path
) -> None:
    settings = Settings(database_url=empty_database, data_dir=tmp_path / "unused")

    with shared_database(settings, lambda _sentence: None) as conninfo:
        assert conninfo == empty_database

    assert not (tmp_path / "unused").exists()


def test_preparing_twice_changes_nothing_the_second_time(empty_database: str) -> None:
    assert "eventlog/0001_log" in prepare(empty_database)
    assert prepare(empty_database) == []


def test_a_database_that_does_not_exist_is_refused(server: str) -> None:
    with pytest.raises(SetupError) as refused:
        check(make_conninfo(server, dbname="no_such_thing"))

    assert 'database "no_such_thing" does not exist' in str(refused.value)
    assert str(refused.value).endswith("create it, or name another in DATABASE_URL.")


def test_an_unreachable_server_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(SetupError) as refused:
        check(f"postgresql://ada:secret@127.0.0.1:{port}/kitchen")

    assert str(refused.value) == (
        f"The database kitchen on 127.0.0.1:{port} cannot be used (Connection refused): "
        "check that the server runs, and the host and the port in DATABASE_URL."
    )


def test_a_server_that_is_not_a_postgresql_is_refused(web_server: int) -> None:
    with pytest.raises(SetupError, match="that server is not a PostgreSQL"):
        check(f"postgresql://ada:secret@127.0.0.1:{web_server}/kitchen")


@pytest.mark.parametrize(
    "url",
    [
        "nonsense secret",
        "postgresql+psycopg://ada:secret@localhost/kitchen",
        "postgresql://ada:secret%zz@localhost/kitchen",
        "postgresql://ada:top@secret@localhost/kitchen",
        "postgresql://ada:secret/top@localhost/kitchen",
        "postgresql://ada:12/secret@localhost/kitchen",
    ],
)
def test_a_malformed_url_is_refused_without_showing_its_password(url: str) -> None:
    with pytest.raises(SetupError, match="DATABASE_URL is not a connection string") as refused:
        check(url)

    assert "secret" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_a_user_without_rights_is_refused_and_nothing_is_left_half_made(
    server: str, empty_database: str
) -> None:
    user = f"daybook_test_{uuid7().hex}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(user)))
    try:
        with pytest.raises(SetupError, match="may not set Daybook up"):
            prepare(make_conninfo(empty_database, user=user))
        with psycopg.connect(empty_database) as connection:
            found = connection.execute("SELECT to_regnamespace('daybook')").fetchone()
            assert found == (None,)
    finally:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(user)))


def test_a_read_only_database_is_refused(server: str, empty_database: str) -> None:
    name = str(conninfo_to_dict(empty_database)["dbname"])
    close = sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on")
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(close.format(sql.Identifier(name)))

    with pytest.raises(SetupError, match="is read-only"):
        prepare(empty_database)


@pytest.mark.parametrize(("number", "version"), [(130014, "13"), (100000, "10"), (90624, "9.6")])
def test_a_server_that_is_too_old_is_refused(number: int, version: str) -> None:
    with pytest.raises(SetupError, match=f"PostgreSQL {version}, and Daybook needs 14 or newer"):
        refuse_old(number)


def test_the_oldest_supported_server_is_accepted() -> None:
    # It would raise SetupError otherwise.
    refuse_old(140000)
