"""Wakes readers of the log: in this process right after a commit, in others by NOTIFY.

NOTIFY inside a write transaction would serialise all writers at COMMIT, so a separate connection
sends one for many commits. It is only a hint: readers also poll every second, so a lost one costs
time, never an event. Local commits wake the listeners of the changed kinds, a NOTIFY wakes all.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Self

import psycopg

from daybook.eventlog.async_tasks import cancel_and_wait
from daybook.eventlog.postgres.connections import connect, reader_conninfo

CHANNEL = "daybook_log"
LISTEN = f"LISTEN {CHANNEL}"
NOTIFY = f"NOTIFY {CHANNEL}"
# The first of many commits sends NOTIFY at once, the others share one after this time.
COALESCE_SECONDS = 0.02
RECONNECT_SECONDS = 0.5
# A connection that is silent for this long is checked with a query.
SILENCE_SECONDS = 5.0
# Delay of followers and processors, which lets commands with waiting clients go first.
BACKGROUND_DELAY_SECONDS = 0.01


class Listener:
    """Waits for changes of some kinds. A wake-up between two waits is not lost."""

    def __init__(self, delay_seconds: float = 0.0, *, kinds: frozenset[str] | None = None) -> None:
        self._delay_seconds = delay_seconds
        self._kinds = kinds
        self._woken = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    def wants(self, kinds: frozenset[str]) -> bool:
        return self._kinds is None or not self._kinds.isdisjoint(kinds)

    def wake(self) -> None:
        if not self._delay_seconds:
            self._woken.set()
        elif self._timer is None and not self._woken.is_set():
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._delay_seconds, self._wake_now)

    def _wake_now(self) -> None:
        self._timer = None
        self._woken.set()

    async def wait(self, seconds: float) -> None:
        # wait_for of Python 3.11 loses a cancellation that arrives together with the wake-up.
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        self._woken.clear()


class Notifier:
    def __init__(self, conninfo: str) -> None:
        self._conninfo = reader_conninfo(conninfo)
        self._listeners: set[Listener] = set()
        self._committed = asyncio.Event()
        # Backend of the sending connection, whose own notifications are ignored.
        self._own_pid: int | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._closing = False

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._notify())]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing = True
        await cancel_and_wait(self._tasks)

    @contextmanager
    def listener(
        self, delay_seconds: float = 0.0, *, kinds: frozenset[str] | None = None
    ) -> Iterator[Listener]:
        """Yields a listener for the named deciders, or for all; a missing name delays it by up to
        one second, until its next poll."""
        listener = Listener(delay_seconds, kinds=kinds)
        self._listeners.add(listener)
        try:
            yield listener
        finally:
            self._listeners.discard(listener)

    def notify(self, _position: int, kinds: frozenset[str]) -> None:
        """Wakes listeners after a commit: here now, in other processes within COALESCE_SECONDS."""
        for listener in self._listeners:
            if listener.wants(kinds):
                listener.wake()
        self._committed.set()

    def _wake_all(self) -> None:
        for listener in self._listeners:
            listener.wake()

    async def _listen(self) -> None:
        while not self._closing:
            with suppress(psycopg.Error, OSError):
                async with await connect(self._conninfo) as connection:
                    await connection.execute(LISTEN)
                    self._wake_all()  # Notifications were lost while the connection was down.
                    while not self._closing:
                        received = connection.notifies(timeout=SILENCE_SECONDS, stop_after=1)
                        senders = {one.pid async for one in received}
                        if senders - {self._own_pid}:
                            self._wake_all()
                        elif not senders:
                            await connection.execute("SELECT 1")
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _notify(self) -> None:
        while not self._closing:
            with suppress(psycopg.Error, OSError):
                async with await connect(self._conninfo) as connection:
                    self._own_pid = connection.info.backend_pid
                    while not self._closing:
                        await self._committed.wait()
                        self._committed.clear()
                        await connection.execute(NOTIFY)
                        await asyncio.sleep(COALESCE_SECONDS)
            await asyncio.sleep(RECONNECT_SECONDS)
