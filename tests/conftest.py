"""A real PostgreSQL for every test that needs one: one server a run, one database a test.

The server is TEST_DATABASE_URL's, or one made from the wheel for this run. A template database
is migrated once. Most tests share a copy of it, which is emptied after each: that takes a
thirtieth of the time of a new copy. Those that change more than rows ask for a copy of their own.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import settings
from psycopg import sql
from psycopg.conninfo import make_conninfo
from uuid_utils.compat import uuid7

from daybook.eventlog.postgres.embedded import EmbeddedPostgres
from daybook.eventlog.postgres.migrate import migrate
from daybook.projections.registry import MIGRATIONS

# Hypothesis must not fail an example for the time it took: a busy machine is no defect. A test that
# hangs is ended by pytest-timeout.
settings.register_profile("daybook", deadline=None)
settings.load_profile("daybook")

# As a replica, the session is not stopped by the trigger that keeps history from being rewritten.
EMPTYING_OPTIONS = "-c search_path=daybook -c session_replication_role=replica"
EMPTY_ALL = """
DO $$
DECLARE
    one text;
BEGIN
    -- The waiting form of pg_terminate_backend looks only every 100 ms.
    FOR attempt IN 1..5000 LOOP
        PERFORM pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid();
        EXIT WHEN NOT FOUND;
        PERFORM pg_sleep(0.001), pg_stat_clear_snapshot();
    END LOOP;
    -- Tables are small: to delete their rows takes a hundredth of the time of TRUNCATE.
    FOR one IN SELECT format('%I.%I', schemaname, tablename) FROM pg_tables
               WHERE schemaname IN ('daybook', 'daybook_past') AND tablename <> 'migrations'
    LOOP
        EXECUTE 'DELETE FROM ' || one;
    END LOOP;
    PERFORM setval(format('%I', sequencename)::regclass, 1, false)
    FROM pg_sequences WHERE schemaname = 'daybook';
END $$
"""

# This server keeps no data beyond the test run. Servers that are killed on purpose
# are servers of their own, and write through to the disk.
SERVER_SETTINGS = {
    "max_connections": "200",
    "max_prepared_transactions": "4",
    "fsync": "off",
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """Conninfo of a server on which databases may be made."""
    if url := os.environ.get("TEST_DATABASE_URL"):
        yield make_conninfo(url)
        return
    directory = reachable_directory()
    try:
        with EmbeddedPostgres(directory, settings=SERVER_SETTINGS) as postgres:
            yield postgres.conninfo
    finally:
        shutil.rmtree(directory)


@pytest.fixture(scope="session")
def template(server: str) -> Iterator[str]:
    """Name of a database that has everything but rows."""
    name = _create_database(server, "template0")
    migrate(make_conninfo(server, dbname=name), MIGRATIONS)
    yield name
    _drop_database(server, name)


@pytest.fixture(scope="session")
def shared_database(server: str, template: str) -> Iterator[str]:
    with fresh_database(server, template) as conninfo:
        yield conninfo


@pytest.fixture
def database(shared_database: str) -> Iterator[str]:
    """Conninfo of a migrated database without rows."""
    yield shared_database
    empty(shared_database)


@pytest.fixture
def own_database(server: str, template: str) -> Iterator[str]:
    """The same, for a test that changes tables, rights or settings."""
    with fresh_database(server, template) as conninfo:
        yield conninfo


@pytest.fixture
def empty_database(server: str) -> Iterator[str]:
    with fresh_database(server, "template0") as conninfo:
        yield conninfo


@contextmanager
def fresh_database(server: str, template: str) -> Iterator[str]:
    name = _create_database(server, template)
    conninfo = make_conninfo(server, dbname=name)
    yield conninfo
    if connection := _emptying.pop(conninfo, None):
        connection.close()
    _drop_database(server, name)


# Kept between tests: a new session reads the catalog of 54 tables first, which takes 15 ms.
_emptying: dict[str, psycopg.Connection[Any]] = {}


def empty(conninfo: str) -> None:
    """Ends every other session of the database and deletes every row."""
    if conninfo not in _emptying:
        _emptying[conninfo] = psycopg.connect(conninfo, options=EMPTYING_OPTIONS, autocommit=True)
    try:
        _emptying[conninfo].execute(EMPTY_ALL)
    except psycopg.OperationalError:
        # The test has ended all sessions, this one too.
        _emptying.pop(conninfo).close()
        empty(conninfo)


def reachable_directory() -> Path:
    """A directory that the user PostgreSQL runs as can reach, which pytest's own is not."""
    directory = Path(tempfile.mkdtemp(prefix="daybook-test-"))
    directory.chmod(0o755)
    return directory


def _create_database(server: str, template: str) -> str:
    name = f"daybook_test_{uuid7().hex}"
    create = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(create.format(sql.Identifier(name), sql.Identifier(template)))
    return name


def _drop_database(server: str, name: str) -> None:
    drop = sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name))
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(drop)
