"""How the service connects: under its own role, in its own schema, with a limit on every wait."""

import os
import socket
from contextlib import suppress

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow

from eventlog import arrays

SCHEMA = "daybook"
SERVICE_ROLE = "daybook_service"

# What a connection that holds locks may wait for before the server ends it: a writer that was
# paused inside its transaction stalls the others for these two seconds and no longer.
_WRITER_LIMITS = {
    "lock_timeout": "2s",
    "statement_timeout": "4s",
    "idle_in_transaction_session_timeout": "2s",
}
# Readers and followers work through large batches, so only idling is cut short.
_READER_LIMITS = {
    "lock_timeout": "2s",
    "statement_timeout": "60s",
    "idle_in_transaction_session_timeout": "10s",
}
_OWNER_LIMITS: dict[str, str] = {}

_LINK: dict[str, str | int] = {
    "connect_timeout": 3,
    "application_name": "daybook",
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 8000,
}


def writer_conninfo(conninfo: str) -> str:
    return _conninfo(conninfo, SERVICE_ROLE, _WRITER_LIMITS)


def reader_conninfo(conninfo: str) -> str:
    return _conninfo(conninfo, SERVICE_ROLE, _READER_LIMITS)


def follower_conninfo(conninfo: str) -> str:
    """As a reader, but a commit need not wait for the disk: what a follower writes, it can derive
    again, and its cursor is lost and found together with its effects."""
    return _conninfo(conninfo, SERVICE_ROLE, {**_READER_LIMITS, "synchronous_commit": "off"})


def noting_conninfo(conninfo: str) -> str:
    """For what is written before a command and counts only if that is committed: its own commit
    need not wait for the disk, because that of the command, which comes later in the same WAL,
    does."""
    return _conninfo(conninfo, SERVICE_ROLE, {**_WRITER_LIMITS, "synchronous_commit": "off"})


def owner_conninfo(conninfo: str) -> str:
    """As the user of the connection string itself: for migrations only."""
    return _conninfo(conninfo, None, _OWNER_LIMITS)


def _conninfo(conninfo: str, role: str | None, limits: dict[str, str]) -> str:
    session = {"search_path": SCHEMA, "timezone": "UTC", **limits}
    if role is not None:
        session["role"] = role
    given = psycopg.conninfo.conninfo_to_dict(conninfo)
    options = [str(given.pop("options", ""))] + [f"-c {k}={v}" for k, v in session.items()]
    defaults = {key: value for key, value in _LINK.items() if key not in given}
    return make_conninfo(make_conninfo("", **given), **defaults, options=" ".join(options).strip())


def cut_off(connection: AsyncConnection[TupleRow]) -> None:
    """Ends the connection under the coroutine that waits on it, which then finds it lost.

    Cancelling would make psycopg wait for the server's answer, which may never come.
    """
    with suppress(OSError, psycopg.Error):
        duplicate = os.dup(connection.fileno())
        with socket.socket(fileno=duplicate) as link:
            link.shutdown(socket.SHUT_RDWR)


async def connect(conninfo: str) -> AsyncConnection[TupleRow]:
    connection = await AsyncConnection.connect(conninfo, autocommit=True)
    await configure(connection)
    return connection


async def configure(connection: AsyncConnection[TupleRow]) -> None:
    """What every connection of ours knows; also for those that a pool makes."""
    arrays.register(connection)
    # Every statement of ours is one of a few constants: prepare each at first use, keep them all.
    connection.prepare_threshold = 0
    connection.prepared_max = None


def connect_in_thread(conninfo: str) -> Connection[TupleRow]:
    connection = Connection.connect(conninfo, autocommit=True)
    arrays.register(connection)
    return connection
