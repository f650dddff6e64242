"""Who waits for the log is woken at once: in this process after a commit, in others by NOTIFY.

NOTIFY inside a write transaction would serialise all writers at COMMIT, so it is sent after it,
on a connection of its own, and many commits share one. It is a hint and nothing more: whoever
waits also looks by himself every second, so a lost one costs time and never an event.

In this process a ring says to which kinds of aggregates something happened, and who does not hear
any of them sleeps on. What comes from others says nothing of the kind, and wakes everybody.
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
# The first of many commits is announced at once, the rest together after this time.
COALESCE_SECONDS = 0.02
RECONNECT_SECONDS = 0.5
# A connection that hears nothing for this long is asked whether it is still alive.
SILENCE_SECONDS = 5.0


# Whoever keeps a read model or looks after due times lets those go first for whom somebody waits.
BACKGROUND_DELAY_SECONDS = 0.01


class Listener:
    """One waiter's bell. A ring between two waits is not lost."""

    def __init__(self, delay_seconds: float = 0.0, *, kinds: frozenset[str] | None = None) -> None:
        self._courtesy_seconds = delay_seconds
        self._hears = kinds
        self._bell = asyncio.Event()
        self._ringing: asyncio.TimerHandle | None = None

    def wants(self, kinds: frozenset[str]) -> bool:
        return self._hears is None or not self._hears.isdisjoint(kinds)

    def wake(self) -> None:
        if not self._courtesy_seconds:
            self._bell.set()
        elif self._ringing is None and not self._bell.is_set():
            loop = asyncio.get_running_loop()
            self._ringing = loop.call_later(self._courtesy_seconds, self._ring_now)

    def _ring_now(self) -> None:
        self._ringing = None
        self._bell.set()

    async def wait(self, seconds: float) -> None:
        # Not wait_for: in Python 3.11 it forgets a cancellation that comes with the ring.
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._bell.wait()
        self._bell.clear()


class Notifier:
    def __init__(self, conninfo: str) -> None:
        self._conninfo = reader_conninfo(conninfo)
        self._wakes: set[Listener] = set()
        self._committed = asyncio.Event()
        self._own_pid: int | None = None
        """Of the connection that tells the others: what it says, this process knows."""

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
        """`hears` names the kinds of aggregates, by their deciders, for which it is to be woken;
        None for all. A kind that is missing there costs a second, until the next look."""
        wake = Listener(delay_seconds, kinds=kinds)
        self._wakes.add(wake)
        try:
            yield wake
        finally:
            self._wakes.discard(wake)

    def notify(self, _position: int, kinds: frozenset[str]) -> None:
        """Called after a commit: wakes this process now and the others very soon."""
        for wake in self._wakes:
            if wake.wants(kinds):
                wake.wake()
        self._committed.set()

    def _ring_all(self) -> None:
        for wake in self._wakes:
            wake.wake()

    async def _listen(self) -> None:
        while not self._closing:
            with suppress(psycopg.Error, OSError):
                async with await connect(self._conninfo) as connection:
                    await connection.execute(LISTEN)
                    self._ring_all()  # Whatever was announced while nobody listened.
                    while not self._closing:
                        heard = connection.notifies(timeout=SILENCE_SECONDS, stop_after=1)
                        senders = {one.pid async for one in heard}
                        if senders - {self._own_pid}:
                            self._ring_all()
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
