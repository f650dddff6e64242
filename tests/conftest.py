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

import psycopg
import pytest
from hypothesis import settings
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from uuid_utils.compat import uuid7

from daybook.eventlog.postgres.embedded import EmbeddedPostgres
from daybook.eventlog.postgres.migrate import migrate
from daybook.projections.registry import MIGRATIONS

# Hypothesis must not fail an example for the time it took: a busy machine is no defect. A test that
# hangs is ended by pytest-timeout.
settings.register_profile("daybook", deadline=None)
settings.load_profile("daybook")

END_SESSIONS = """
SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %(name)s
"""
# As a replica, the session is not stopped by the trigger that keeps history from being rewritten.
EMPTY_ALL = """
DO $$
DECLARE
    one text;
BEGIN
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

# This server only ever loses what the test run loses with it; those that are killed on purpose
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
def database(server: str, shared_database: str) -> Iterator[str]:
    """Conninfo of a migrated database without rows."""
    yield shared_database
    empty(server, shared_database)


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
    yield make_conninfo(server, dbname=name)
    _drop_database(server, name)


def empty(server: str, conninfo: str) -> None:
    """Leaves no session and no row behind."""
    name = conninfo_to_dict(conninfo)["dbname"]
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(END_SESSIONS, {"name": name})
    options = "-c search_path=daybook -c session_replication_role=replica"
    with psycopg.connect(conninfo, options=options, autocommit=True) as connection:
        connection.execute(EMPTY_ALL)


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
