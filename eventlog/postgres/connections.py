"""Connections of the service: own role, own schema, and a timeout for every wait."""

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

# Timeouts limit the time that a writer holds locks: one that is paused inside its transaction
# stalls the others for at most 2 seconds.
_WRITER_OPTIONS = {
    "lock_timeout": "2s",
    "statement_timeout": "4s",
    "idle_in_transaction_session_timeout": "2s",
    # Force lookups by key. The planner prefers to scan small tables, which took twice as long with
    # some thousand rows, and the cached plan stays as the table grows.
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_seqscan": "off",
    # For single rows a bitmap costs more than it saves.
    "enable_bitmapscan": "off",
    # Plan once: with these settings each plan uses the same indexes for all parameters, and
    # planning took longer than execution.
    "plan_cache_mode": "force_generic_plan",
    # Before PostgreSQL 18 the costs of disabled plan nodes trigger JIT compilation.
    "jit": "off",
}
# Readers and followers process large batches, so their statements may take longer.
_READER_OPTIONS = {
    "lock_timeout": "2s",
    "statement_timeout": "60s",
    "idle_in_transaction_session_timeout": "10s",
}
# A follower reads the next events in log order. Without current statistics of the newest positions,
# the planner would fetch and sort the whole rest of the log for every batch.
_FOLLOWER_OPTIONS = {
    **_READER_OPTIONS,
    "enable_bitmapscan": "off",
    "enable_seqscan": "off",
    "enable_sort": "off",
    # A follower's writes can be derived again, and its cursor is lost together with them.
    "synchronous_commit": "off",
}

_TRANSPORT_OPTIONS: dict[str, str | int] = {
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
    """For writes that count only if a later command commits: they need not wait for the disk,
    because the command's commit flushes the same WAL."""
    return _conninfo(conninfo, SERVICE_ROLE, {**_WRITER_OPTIONS, "synchronous_commit": "off"})


def owner_conninfo(conninfo: str) -> str:
    """For migrations, import and setup, as the user of the connection string."""
    return _conninfo(conninfo, None, {})


def _conninfo(conninfo: str, role: str | None, chosen: dict[str, str]) -> str:
    session = {"search_path": SCHEMA, "timezone": "UTC", **chosen}
    if role is not None:
        session["role"] = role
    given = psycopg.conninfo.conninfo_to_dict(conninfo)
    options = [str(given.pop("options", ""))] + [f"-c {k}={v}" for k, v in session.items()]
    defaults = {key: value for key, value in _TRANSPORT_OPTIONS.items() if key not in given}
    return make_conninfo(make_conninfo("", **given), **defaults, options=" ".join(options).strip())


def cut_off(connection: AsyncConnection[TupleRow]) -> None:
    """Shuts the socket down, so that the waiting coroutine finds the connection lost. Cancellation
    would make psycopg wait for a response that may never come."""
    with suppress(OSError, psycopg.Error):
        duplicate = os.dup(connection.fileno())
        with socket.socket(fileno=duplicate) as connected:
            connected.shutdown(socket.SHUT_RDWR)


async def connect(conninfo: str) -> AsyncConnection[TupleRow]:
    connection = await AsyncConnection.connect(conninfo, autocommit=True)
    await configure(connection)
    return connection


async def configure(connection: AsyncConnection[TupleRow]) -> None:
    """Sets up a connection; also the `configure` callback of pools."""
    drop_caches()
    binary_arrays.register(connection)
    # All statements are constants: prepare each at its first use and keep it.
    connection.prepare_threshold = 0
    connection.prepared_max = None


async def check_connection(connection: AsyncConnection[TupleRow]) -> None:
    """The `check` callback of pools: raises an error if the server has closed the connection. It
    queries the server only if the idle socket is readable, as after a shutdown; the pool's own
    check always takes two round trips."""
    idle = select.poll()
    idle.register(connection.fileno(), select.POLLIN)
    if idle.poll(0):
        await connection.execute("SELECT 1", prepare=False)


def connect_in_thread(conninfo: str) -> Connection[TupleRow]:
    connection = Connection.connect(conninfo, autocommit=True)
    drop_caches()
    binary_arrays.register(connection)
    return connection
