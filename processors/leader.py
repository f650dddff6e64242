"""Leader election by a PostgreSQL advisory lock, and the loop that runs the processors.

The leader's session holds the lock, and PostgreSQL releases it when that session ends. Processors
query through the same session, so a process that lost the lock reads nothing. Election only saves
work: duplicate commands are refused, and a standby process takes over work left undone for 2 s.
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

TRY_LEADER_LOCK = "SELECT pg_try_advisory_lock(hashtextextended('daybook.processors', 0))"
# Processors read few rows. After a burst of orders the planner would start parallel workers.
DISABLE_PARALLEL_QUERY = "SET max_parallel_workers_per_gather = 0"

STANDBY_DELAY_SECONDS = 2.0
# A standby process takes over from a dead leader within this time.
STANDBY_SECONDS = 0.5
RECONNECT_SECONDS = 0.2
# A missing lock or session is logged only after this time.
ALARM_SECONDS = 5.0
# A run takes milliseconds, and its commands have a deadline of 5 s. A longer one means that the
# server is gone without closing the connection.
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
        self._is_leader = False
        self._entering = asyncio.Lock()
        self._closing = False
        self._no_lock_since: float | None = None
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
        """Retries after a lost connection, and after an unexpected error, which it logs."""
        with self._runtime.notifier.listener(
            BACKGROUND_DELAY_SECONDS, kinds=_names(processor)
        ) as wake:
            # psycopg swallows a cancellation that meets a lost connection, hence the flag.
            while not self._closing:
                try:
                    await self._step(processor, wake)
                except (psycopg.Error, OSError) as error:
                    self._warn_no_lock(error)
                    await asyncio.sleep(RECONNECT_SECONDS)
                except Exception:
                    _log.exception(
                        "processor %s failed and is retried in %g s", processor.name, POLL_SECONDS
                    )
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
            if not self._is_leader:
                try:
                    with _limited(connection):
                        await connection.execute(DISABLE_PARALLEL_QUERY)
                        result = await connection.execute(TRY_LEADER_LOCK)
                        ((is_locked,),) = await result.fetchall()
                except (psycopg.Error, OSError):
                    await self._leave(connection)
                    raise
                self._is_leader = is_locked
        standby_delay_seconds = 0 if self._is_leader else STANDBY_DELAY_SECONDS
        return Session(connection, standby_delay_seconds, self._clock)

    def _warn_no_lock(self, error: Exception) -> None:
        now = asyncio.get_running_loop().time()
        if self._no_lock_since is None:
            self._no_lock_since = now
        elif now > self._no_lock_since + ALARM_SECONDS and not self._has_alarmed:
            self._has_alarmed = True
            _log.error(
                "leader lock unavailable for %.0f s (%s): timers, leases and schedules are paused "
                "in this process until the database answers",
                now - self._no_lock_since,
                type(error).__name__,
            )

    def _clear_warning(self) -> None:
        if self._has_alarmed:
            _log.warning("leader lock available again: timers, leases and schedules continue")
        self._no_lock_since, self._has_alarmed = None, False

    async def _leave(self, connection: Connection) -> None:
        """Gives up leadership, unless another processor has already reconnected."""
        if self._connection is connection:
            self._connection, self._is_leader = None, False
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
