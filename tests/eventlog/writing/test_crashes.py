"""Crashes and pauses of real processes lose nothing acknowledged and block no writer for long."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import psycopg
import pytest
from uuid_utils.compat import uuid7

from daybook.domain.orders.bot import Bot
from daybook.domain.orders.order import Order
from daybook.eventlog.errors import OutcomeUnknownError, UnavailableError
from daybook.eventlog.postgres.connections import owner_conninfo, writer_conninfo
from daybook.eventlog.postgres.embedded import EmbeddedPostgres
from daybook.eventlog.postgres.migrate import migrate
from daybook.projections.registry import MIGRATIONS
from tests.conftest import reachable_directory
from tests.support.committer import eventually, fold_of_the_log, live_rows, open_submitter, rows
from tests.support.databases.embedded_postgres import postmaster_pid
from tests.support.databases.tcp_proxy import proxy_to
from tests.support.running.processes import Process

pytestmark = pytest.mark.anyio

# Acts as a writer that locks a bot, draws a position, and then pauses.
PAUSED_WRITER = """
import sys, psycopg
from uuid import UUID, uuid4
conninfo, bot = sys.argv[1], UUID(sys.argv[2])
connection = psycopg.connect(conninfo)
connection.execute("SELECT version FROM bots WHERE id = %s FOR UPDATE", [bot])
connection.execute(
    "INSERT INTO stored_events (originator_id, originator_version, topic, state, command_id,"
    " correlation_id, actor) VALUES (%s, 1, 'order.created', '{}', %s, %s, 'zombie')",
    [uuid4(), uuid4(), uuid4()])
print("holding", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def own_server() -> Iterator[tuple[str, Path]]:
    """A server that the test may kill."""
    directory = reachable_directory()
    try:
        with EmbeddedPostgres(directory) as postgres:
            migrate(postgres.conninfo, MIGRATIONS)
            yield postgres.conninfo, directory
    finally:
        shutil.rmtree(directory)


@pytest.mark.slow
async def test_postgres_killed_under_load_loses_nothing_acknowledged_and_the_committer_recovers(
    own_server: tuple[str, Path],
) -> None:
    conninfo, directory = own_server
    acknowledged: list[UUID] = []
    refused: list[UUID] = []
    stop = asyncio.Event()

    async with open_submitter(conninfo, writers=2, deadline_seconds=15) as submitter:

        async def create() -> None:
            while not stop.is_set():
                order_id = uuid7()
                try:
                    await submitter.order(order_id=order_id)
                    acknowledged.append(order_id)
                except UnavailableError:
                    refused.append(order_id)
                except OutcomeUnknownError:
                    pass

        callers = [asyncio.create_task(create()) for _ in range(16)]
        for _ in range(3):
            await asyncio.sleep(0.7)
            os.kill(postmaster_pid(directory), signal.SIGKILL)
            before = len(acknowledged)
            began = time.monotonic()
            while len(acknowledged) < before + 100:
                assert time.monotonic() - began < 10, "the committer did not heal"
                await asyncio.sleep(0.02)
        stop.set()
        await asyncio.gather(*callers)

    stored = [row[0] for row in rows(conninfo, "SELECT originator_id FROM stored_events")]
    assert len(acknowledged) > 300
    assert len(stored) == len(set(stored))
    assert set(acknowledged) <= set(stored)
    assert not set(refused) & set(stored)
    assert live_rows(conninfo) == fold_of_the_log(conninfo)


@contextmanager
def paused_writer(conninfo: str, bot: Bot) -> Iterator[None]:
    """Another process, stopped by SIGSTOP inside its transaction."""
    program = [sys.executable, "-c", PAUSED_WRITER, writer_conninfo(conninfo), str(bot.id)]
    with Process(program, stdin=subprocess.PIPE) as process:
        assert process.says("holding"), process.output
        process.signal(signal.SIGSTOP)
        yield
        process.kill()


@pytest.mark.slow
async def test_a_paused_writer_stalls_the_others_for_two_and_a_half_seconds_at_most(
    database: str,
) -> None:
    async with open_submitter(database) as submitter:
        bot, other = await submitter.bot(), await submitter.bot()
        for _ in range(2):
            await submitter.order()
        with paused_writer(database, bot):
            began = time.monotonic()
            first, second = await asyncio.gather(submitter.claim(bot), submitter.claim(other))
            waited = time.monotonic() - began

    assert first is not None
    assert second is not None
    assert 1.0 < waited < 2.5


async def test_a_database_that_cannot_write_is_reported_and_writing_resumes_by_itself(
    own_database: str,
) -> None:
    name = psycopg.conninfo.conninfo_to_dict(own_database)["dbname"]
    async with open_submitter(own_database) as submitter:
        with psycopg.connect(owner_conninfo(own_database), autocommit=True) as owner:
            owner.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
        with pytest.raises(UnavailableError, match="read-only"):
            await submitter.order()
        with psycopg.connect(owner_conninfo(own_database), autocommit=True) as owner:
            owner.execute("SET default_transaction_read_only = off")
            owner.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
        await submitter.order()


FIND_COMMITTING = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
FIND_ASKING = """
SELECT pid FROM pg_stat_activity
WHERE position('pg_terminate_backend' IN query) > 0 AND pid <> pg_backend_pid()
"""
AWAIT_STANDBY = "ALTER SYSTEM SET synchronous_standby_names = 'nobody'"
AWAIT_NONE = "ALTER SYSTEM RESET synchronous_standby_names"


def set_up(conninfo: str, statement: str) -> None:
    with psycopg.connect(conninfo, autocommit=True) as owner:
        owner.execute(statement.encode())
        owner.execute("SELECT pg_reload_conf()")


async def test_the_outcome_is_not_read_while_the_lost_session_may_still_commit(
    own_server: tuple[str, Path],
) -> None:
    """A writer that reads too early finds nothing, commits the command again, and reports a
    conflict."""
    conninfo, _ = own_server
    async with (
        proxy_to(conninfo) as proxy,
        open_submitter(proxy.conninfo, deadline_seconds=20) as submitter,
    ):
        await submitter.bot()
        set_up(conninfo, AWAIT_STANDBY)
        ordering = asyncio.create_task(submitter.order())
        # The session is in COMMIT, which no signal ends: the transaction is not visible yet.
        await eventually(lambda: rows(conninfo, FIND_COMMITTING))
        ((backend,),) = rows(conninfo, FIND_COMMITTING)
        os.kill(backend, signal.SIGSTOP)
        try:
            set_up(conninfo, AWAIT_NONE)
            proxy.drop_all()
            await eventually(lambda: rows(conninfo, FIND_ASKING))
            await asyncio.sleep(0.3)
            # The writer waits for the session and has not retried the command.
            assert rows(conninfo, FIND_ASKING)
            assert not ordering.done()
        finally:
            os.kill(backend, signal.SIGCONT)
        assert isinstance(await ordering, Order)

    assert rows(conninfo, "SELECT topic FROM stored_events") == [
        ("bot.created",),
        ("order.created",),
    ]


async def test_an_outcome_found_in_the_log_is_not_returned_before_the_standby_has_it(
    own_server: tuple[str, Path],
) -> None:
    """Terminating a session also ends its wait for the standby: the event is visible, not safe."""
    conninfo, _ = own_server
    async with (
        proxy_to(conninfo) as proxy,
        open_submitter(proxy.conninfo, deadline_seconds=20) as submitter,
    ):
        await submitter.bot()
        set_up(conninfo, AWAIT_STANDBY)
        ordering = asyncio.create_task(submitter.order())
        await eventually(lambda: rows(conninfo, FIND_COMMITTING))
        proxy.drop_all()
        await eventually(lambda: len(rows(conninfo, "SELECT topic FROM stored_events")) == 2)
        await asyncio.sleep(0.5)
        assert not ordering.done()
        set_up(conninfo, AWAIT_NONE)
        assert isinstance(await ordering, Order)
