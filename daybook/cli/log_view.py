"""`daybook log`: shows events on a terminal or as NDJSON, and follows the log."""

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from daybook.api.server.database import explain_database_errors
from daybook.api.server.signals import Stop
from daybook.cli.event_table import Pretty
from daybook.cli.terminal import say, write_lines
from daybook.eventlog.errors import SetupError, StandbyError
from daybook.eventlog.notifier import Listener, Notifier
from daybook.eventlog.postgres.connections import connect, cut_off, reader_conninfo
from daybook.eventlog.reading.epochs import LogPosition, common_position, enter_epoch
from daybook.eventlog.reading.follower import POLL_SECONDS, SETTLING_SECONDS
from daybook.eventlog.reading.horizon import Horizon
from daybook.eventlog.transfer.ndjson import PAGE_ROWS_MAX, EventFilter, LogPager, read_page
from daybook.projections.time_travel.log_search import find_span

if TYPE_CHECKING:
    from daybook.cli.main import CliContext

# Under load every commit sends a notification; the pause makes pages larger.
PAUSE_SECONDS = 0.05
RECONNECT_SECONDS = 0.5
# Wait for a silent server when stopping.
LEAVE_SECONDS = 1.0

# Lost connections are reported below.
logging.getLogger("psycopg").setLevel(logging.ERROR)

Show = Callable[[Sequence[bytes]], None]


def show_log(
    context: "CliContext",
    wanted: EventFilter,
    *,
    after: int | None,
    limit: int | None,
    follow: bool,
    as_json: bool,
) -> None:
    show = write_lines if as_json else Pretty().show

    async def work(conninfo: str) -> None:
        async with await connect(reader_conninfo(conninfo)) as connection:
            span = await find_span(connection, wanted, after or 0)
            from_now = follow and after is None and wanted.since is None
            walk = LogPager(wanted, after=span.horizon if from_now else span.after, upto=span.upto)
            left = await _show_pages(connection, walk, show, limit)
        if follow and left != 0:
            await _follow(context, conninfo, walk, show, left)

    try:
        with context.conninfo(say) as conninfo, log_sentences(conninfo), quiet_end():
            asyncio.run(work(conninfo))
    except Stop:
        # A stop signal before following began is an orderly end, too.
        if not follow:
            raise


@contextmanager
def log_sentences(conninfo: str) -> Iterator[None]:
    """Turns database errors of readers into SetupError."""
    try:
        with explain_database_errors(conninfo):
            yield
    except psycopg.errors.UndefinedTable as error:
        raise SetupError(
            "There is no log in this database: run 'daybook migrate' or 'daybook serve' to make it."
        ) from error


async def _show_pages(
    connection: AsyncConnection[TupleRow], walk: LogPager, show: Show, left: int | None
) -> int | None:
    """Shows the rest of the walk; returns the remaining part of the limit."""
    while not walk.is_over and left != 0:
        lines = await read_page(connection, walk, PAGE_ROWS_MAX if left is None else left)
        show(lines)
        left = None if left is None else left - len(lines)
    return left


async def _follow(
    context: "CliContext", conninfo: str, walk: LogPager, show: Show, left: int | None
) -> None:
    async with Notifier(conninfo) as notifier:
        with notifier.listener() as wake:
            following = Following(conninfo, walk, show, left)
            loop = asyncio.get_running_loop()
            context.signals.hand_to(lambda: _soon(loop, following.stop, wake))
            await following.run(wake)


def _soon(loop: asyncio.AbstractEventLoop, act: Callable[[Listener], None], wake: Listener) -> None:
    loop.call_soon_threadsafe(act, wake)


class Following:
    """Shows settled events as they arrive; reconnects to a lost database."""

    def __init__(self, conninfo: str, walk: LogPager, show: Show, left: int | None) -> None:
        self._conninfo = reader_conninfo(conninfo)
        self._walk = walk
        self._show = show
        self._left = left
        self._horizon = Horizon()
        self._epoch: str | None = None
        self._connection: AsyncConnection[TupleRow] | None = None
        self._is_away = False
        self._stopping = False

    def stop(self, wake: Listener) -> None:
        self._stopping = True
        wake.wake()
        asyncio.get_running_loop().call_later(LEAVE_SECONDS, self._leave)

    def _leave(self) -> None:
        if self._connection is not None:
            cut_off(self._connection)

    async def run(self, wake: Listener) -> None:
        while not self._stopping and self._left != 0:
            try:
                await self._advance()
            except (psycopg.OperationalError, StandbyError):
                self._lose()
                await wake.wait(RECONNECT_SECONDS)
            else:
                await asyncio.sleep(PAUSE_SECONDS)
                await wake.wait(SETTLING_SECONDS if self._horizon.is_waiting else POLL_SECONDS)
        if self._connection is not None:
            await self._connection.close()

    async def _advance(self) -> None:
        if self._connection is None:
            self._connection = await self._connect()
        self._walk.upto = max(self._walk.upto, await self._horizon.look(self._connection))
        self._is_away = False
        self._left = await _show_pages(self._connection, self._walk, self._show, self._left)

    async def _connect(self) -> AsyncConnection[TupleRow]:
        connection = await connect(self._conninfo)
        try:
            shown = LogPosition(self._walk.position, self._epoch)
            self._epoch = await enter_epoch(connection)
            position = await common_position(connection, shown)
        except BaseException:
            await connection.close()
            raise
        if position < shown.position:
            say(
                f"The log has changed before position {shown.position}: its database failed over "
                f"or was restored. Continuing after position {position}."
            )
            self._walk.position = self._walk.upto = position
        return connection

    def _lose(self) -> None:
        if not self._is_away and not self._stopping:
            say("The database is unavailable; reconnecting.")
        self._is_away, self._connection = True, None


@contextmanager
def quiet_end() -> Iterator[None]:
    """Ends without an error when the reader closes the pipe."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # Output that is flushed at the end of the process goes to /dev/null.
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
