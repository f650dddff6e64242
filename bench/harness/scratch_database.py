"""Temporary databases of benchmarks, dropped afterwards."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow
from uuid_utils.compat import uuid7

from daybook.eventlog.notifier import NOTIFY
from daybook.eventlog.postgres.migrate import migrate
from daybook.projections.registry import MIGRATIONS

HAS_FOLLOWERS = "SELECT to_regclass('daybook.followers') IS NOT NULL"
IS_BEHIND = """
SELECT EXISTS (
    SELECT FROM daybook.followers
    WHERE position < (SELECT max(notification_id) FROM daybook.stored_events))
"""
TIDY_SECONDS_MAX = 120


@contextmanager
def scratch_database(server: str, *, migrated: bool = True) -> Iterator[str]:
    name = sql.Identifier(f"daybook_bench_{uuid7().hex}")
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(name))
    try:
        conninfo = make_conninfo(server, dbname=name.as_string().strip('"'))
        if migrated:
            migrate(conninfo, MIGRATIONS)
        yield conninfo
    finally:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


def tidy(conninfo: str) -> None:
    """Waits for followers and vacuums, so that no work runs into the next round."""
    until = time.monotonic() + TIDY_SECONDS_MAX
    with psycopg.connect(conninfo, autocommit=True) as connection:
        # Wakes followers, which would otherwise poll only a second later.
        connection.execute(NOTIFY)
        while _is_behind(connection):
            assert time.monotonic() < until, "a follower does not catch up"
            time.sleep(0.05)
        connection.execute("VACUUM")


def _is_behind(connection: psycopg.Connection[TupleRow]) -> bool:
    """Whether a follower lags; databases of peers have none."""
    (has_followers,) = connection.execute(HAS_FOLLOWERS).fetchone() or (False,)
    if not has_followers:
        return False
    (is_behind,) = connection.execute(IS_BEHIND).fetchone() or (False,)
    return bool(is_behind)


def describe_server(server: str) -> str:
    """Returns the version and the durability settings, on which figures depend."""
    with psycopg.connect(server) as connection:
        shown = [
            connection.execute(f"SHOW {name}".encode()).fetchone() or ("?",)
            for name in ("server_version", "fsync", "synchronous_commit")
        ]
    version, fsync, synchronous = (value for (value,) in shown)
    return f"PostgreSQL {version}, fsync {fsync}, synchronous_commit {synchronous}"
