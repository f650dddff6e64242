"""Whose turn it is, when several processes could do the same work.

The process whose session holds an advisory lock works; PostgreSQL gives the lock back when that
session ends, however it ends. The others stand by. Processors look at the database through this
very session, so a process that has lost the lock cannot even look. All this only saves work:
that two do the same at once is harmless, and that the one on duty sleeps is noticed.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Self

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from daybook.eventlog.async_tasks import cancel_and_wait
from daybook.eventlog.notifier import BACKGROUND_DELAY_SECONDS, Listener
from daybook.eventlog.postgres.connections import connect, cut_off, reader_conninfo
from daybook.eventlog.writing.unreadable_rows import is_unloadable
from daybook.processors.database_clock import DatabaseClock
from daybook.processors.processor import POLL_SECONDS, Processor, Runtime, Session

_log = logging.getLogger("daybook")

TAKE_DUTY = "SELECT pg_try_advisory_lock(hashtextextended('daybook.processors', 0))"
# What is looked at is small, whatever the planner thinks after a flood of orders.
WORK_ALONE = "SET max_parallel_workers_per_gather = 0"

PATIENCE_SECONDS = 2.0
# When the process on duty dies, the next one has taken over after this time.
STANDBY_SECONDS = 0.5
RECONNECT_SECONDS = 0.2
# For so long nobody needs to know that a session, and with it the lock, is not to be had.
ALARM_SECONDS = 5.0
# A look takes milliseconds, and a command that it sends has its own deadline of 5 s. What takes
# longer than this has lost its server without a word.
SESSION_SECONDS_MAX = 8.0

Connection = AsyncConnection[TupleRow]


class LeaderRunner:
    """Runs the processors of this process on one session that they share."""

    def __init__(self, conninfo: str, runtime: Runtime, processors: Sequence[Processor]) -> None:
        self._conninfo = reader_conninfo(conninfo)
        self._runtime = runtime
        self._processors = processors
        self._tasks: list[asyncio.Task[None]] = []
        self._connection: Connection | None = None
        self._clock = DatabaseClock()
        self._on_duty = False
        self._entering = asyncio.Lock()
        self._closing = False
        self._shut_out_since: float | None = None
        self._has_alarmed = False

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._run(one)) for one in self._processors]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing = True
        await cancel_and_wait(self._tasks)
        for processor in self._processors:
            await processor.close()
        if self._connection is not None:
            await self._connection.close()

    async def _run(self, processor: Processor) -> None:
        """A lost database is waited for; a defect is told and outlived."""
        with self._runtime.notifier.listener(
            BACKGROUND_DELAY_SECONDS, kinds=_names(processor)
        ) as wake:
            # A cancellation that meets a lost connection in psycopg is gone: hence the question.
            while not self._closing:
                try:
                    await self._step(processor, wake)
                except (psycopg.Error, OSError) as error:
                    self._warn_no_lock(error)
                    await asyncio.sleep(RECONNECT_SECONDS)
                except Exception:
                    _log.exception("%s could not do their work and try again.", processor.name)
                    await asyncio.sleep(POLL_SECONDS)

    async def _step(self, processor: Processor, wake: Listener) -> None:
        session = await self._enter()
        self._clear_warning()
        try:
            with _limited(session.connection):
                seconds = await processor.work(self._runtime, session)
        except (psycopg.Error, OSError) as error:
            if is_unloadable(error) and await self._runtime.committer.unreadable_rows.quarantine():
                return
            await self._leave(session.connection)
            raise
        pause_seconds = processor.pause_seconds if session.is_leader else STANDBY_SECONDS
        seconds = min(seconds, POLL_SECONDS)
        min_interval_seconds = max(pause_seconds, min(seconds, processor.min_interval_seconds))
        await asyncio.sleep(min_interval_seconds)
        if seconds > min_interval_seconds:
            await wake.wait(seconds - min_interval_seconds)

    async def _enter(self) -> Session:
        async with self._entering:
            if self._connection is None:
                self._connection = await connect(self._conninfo)
            connection = self._connection
            if not self._on_duty:
                try:
                    with _limited(connection):
                        await connection.execute(WORK_ALONE)
                        ((taken,),) = await (await connection.execute(TAKE_DUTY)).fetchall()
                except (psycopg.Error, OSError):
                    await self._leave(connection)
                    raise
                self._on_duty = taken
        patience_seconds = 0 if self._on_duty else PATIENCE_SECONDS
        return Session(connection, patience_seconds, self._clock)

    def _warn_no_lock(self, error: Exception) -> None:
        """In doubt nothing is done, and somebody is told."""
        now = asyncio.get_running_loop().time()
        if self._shut_out_since is None:
            self._shut_out_since = now
        elif now > self._shut_out_since + ALARM_SECONDS and not self._has_alarmed:
            self._has_alarmed = True
            _log.error(
                "Nobody here looks after due times, leases and schedules: the lock cannot be asked "
                "for since %.0f s (%s). Look at the database; work goes on when it answers.",
                now - self._shut_out_since,
                type(error).__name__,
            )

    def _clear_warning(self) -> None:
        if self._has_alarmed:
            _log.warning("The lock can be asked for again: due times are looked after.")
        self._shut_out_since, self._has_alarmed = None, False

    async def _leave(self, connection: Connection) -> None:
        """In doubt it is not this process's turn. Another may have gone in again already."""
        if self._connection is connection:
            self._connection, self._on_duty = None, False
        with suppress(psycopg.Error, OSError):
            await connection.close()


def _names(processor: Processor) -> frozenset[str] | None:
    if processor.wakes_on is None:
        return None
    return frozenset([decider.name for decider in processor.wakes_on])


@contextmanager
def _limited(connection: Connection) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    timer = loop.call_later(SESSION_SECONDS_MAX, cut_off, connection)
    try:
        yield
    finally:
        timer.cancel()
