"""Databases of a measurement's own, beside whatever else the server holds, and dropped after it."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo
from uuid_utils.compat import uuid7

from eventlog.migrate import migrate
from projections.registry import MIGRATIONS


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


def describe_server(server: str) -> str:
    """What a figure depends on: the version, and whether a commit waits for the disk."""
    with psycopg.connect(server) as connection:
        shown = [
            connection.execute(f"SHOW {name}".encode()).fetchone() or ("?",)
            for name in ("server_version", "fsync", "synchronous_commit")
        ]
    version, fsync, synchronous = (value for (value,) in shown)
    return f"PostgreSQL {version}, fsync {fsync}, synchronous_commit {synchronous}"
