"""How the service connects: under its own role, in its own schema, with a limit on every wait."""

import os
import select
import socket
from contextlib import suppress

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow

from daybook.eventlog.postgres import binary_arrays
from daybook.eventlog.postgres.connection_caches import drop_caches

SCHEMA = "daybook"
SERVICE_ROLE = "daybook_service"

# What a connection that holds locks may wait for before the server ends it: a writer that was
# paused inside its transaction stalls the others for these two seconds and no longer.
_WRITER_OPTIONS = {
    "lock_timeout": "2s",
    "statement_timeout": "4s",
    "idle_in_transaction_session_timeout": "2s",
    # A writer finds its rows by their keys. While a table is small the planner would rather read
    # all of it; that took twice as long with some thousand rows, and the plan is kept as it grows.
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_seqscan": "off",
    # Row by row, a bitmap costs more than it saves.
    "enable_bitmapscan": "off",
    # Planned once and not for every execution: with the rest of these settings every plan follows
    # the same indexes whatever it is given, and to make one took longer than to run it.
    "plan_cache_mode": "force_generic_plan",
    # Before PostgreSQL 18, what is not wanted is made to look so expensive that compiling pays.
    "jit": "off",
}
# Readers and followers work through large batches, so only idling is cut short.
_READER_OPTIONS = {
    "lock_timeout": "2s",
    "statement_timeout": "60s",
    "idle_in_transaction_session_timeout": "10s",
}
# A follower reads the log in its order and takes the first of what is there. The planner, who knows
# little of the newest positions, would rather collect all that is left of the log and sort it, anew
# for every batch.
_FOLLOWER_OPTIONS = {
    **_READER_OPTIONS,
    "enable_bitmapscan": "off",
    "enable_seqscan": "off",
    "enable_sort": "off",
    # What a follower writes, it can derive again; its cursor is lost and found together with it.
    "synchronous_commit": "off",
}
_OWNER_OPTIONS: dict[str, str] = {}

_LINK: dict[str, str | int] = {
    "connect_timeout": 3,
    "application_name": "daybook",
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 8000,
}


def writer_conninfo(conninfo: str) -> str:
    return _conninfo(conninfo, SERVICE_ROLE, _WRITER_OPTIONS)


def reader_conninfo(conninfo: str) -> str:
    return _conninfo(conninfo, SERVICE_ROLE, _READER_OPTIONS)


def follower_conninfo(conninfo: str) -> str:
    return _conninfo(conninfo, SERVICE_ROLE, _FOLLOWER_OPTIONS)


def relaxed_writer_conninfo(conninfo: str) -> str:
    """For what is written before a command and counts only if that is committed: its own commit
    need not wait for the disk, because that of the command, which comes later in the same WAL,
    does."""
    return _conninfo(conninfo, SERVICE_ROLE, {**_WRITER_OPTIONS, "synchronous_commit": "off"})


def owner_conninfo(conninfo: str) -> str:
    """As the user of the connection string itself: for migrations only."""
    return _conninfo(conninfo, None, _OWNER_OPTIONS)


def _conninfo(conninfo: str, role: str | None, chosen: dict[str, str]) -> str:
    session = {"search_path": SCHEMA, "timezone": "UTC", **chosen}
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
    drop_caches()
    binary_arrays.register(connection)
    # Every statement of ours is one of a few constants: prepare each at first use, keep them all.
    connection.prepare_threshold = 0
    connection.prepared_max = None


async def check_connection(connection: AsyncConnection[TupleRow]) -> None:
    """For pools, before they hand a connection out: raises an error if the server has hung up.

    A server that goes says so and closes the socket, and hardly anybody else has something to say
    on an idle one: to look takes no time, and only then is the server asked. The pool's own check
    always asks, and takes two round trips for it.
    """
    idle = select.poll()
    idle.register(connection.fileno(), select.POLLIN)
    if idle.poll(0):
        await connection.execute("SELECT 1", prepare=False)


def connect_in_thread(conninfo: str) -> Connection[TupleRow]:
    connection = Connection.connect(conninfo, autocommit=True)
    drop_caches()
    binary_arrays.register(connection)
    return connection
