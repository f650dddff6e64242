"""One subscriber of the log's tail: how far it is, and what waits for it."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from msgspec import Struct

# A subscriber that does not fetch what waits for it is let go: it can come back and read on.
WAITING_MAX = 10_000


class SubscriptionEndedError(Exception):
    """Nothing more will come; the sentence says why. Whoever subscribes anew misses nothing."""


class Rendered(Struct, frozen=True, gc=False):
    position: int
    data: bytes


class EventRange(Struct, frozen=True):
    """A part of the log: its events, and up to where that is everything."""

    events: Sequence[Rendered]
    upto: int


class TailSource(Protocol):
    @property
    def position(self) -> int:
        """Everything up to here is in the log to be read; what comes after it is offered."""

    async def read(self, after: int) -> EventRange:
        """A stretch from behind `after`, up to the position or as much as is read at once."""


class Subscription:
    def __init__(self, source: TailSource) -> None:
        self.position = 0
        self.requested: int | None = None
        """From behind where it wanted to start, if the log is no longer the same up to there."""

        self._source = source
        self._is_joined = False
        self._waiting: list[Rendered] = []
        self._bell = asyncio.Event()
        self._end: str | None = None

    def start(self, after: int, *, requested: int | None = None) -> None:
        self.position = after
        self.requested = None if requested == after else requested

    async def next(self, seconds: float) -> Sequence[Rendered]:
        """What comes next; nothing, when nothing came for so long."""
        while not self._is_joined and self._end is None:
            # Between this look and being joined nobody else has a turn.
            if self.position >= self._source.position:
                self._is_joined = True
                break
            stretch = await self._source.read(self.position)
            self.position = stretch.upto
            if stretch.events:
                return stretch.events
        if not self._waiting and self._end is None:
            # Not wait_for: Python 3.11's forgets a cancellation that comes together with the bell.
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._bell.wait()
        return self._fetch()

    def offer(self, events: Sequence[Rendered]) -> None:
        if not self._is_joined or self._end is not None:
            return
        # A client knows more than this process has read yet if it was served by another before.
        self._waiting += [event for event in events if event.position > self.position]
        if len(self._waiting) > WAITING_MAX:
            self._waiting.clear()
            self.end("You fell behind: come again with the id of the last event you have.")
        elif self._waiting:
            self._bell.set()

    def end(self, why: str) -> None:
        self._end = self._end or why
        self._bell.set()

    def _fetch(self) -> Sequence[Rendered]:
        self._bell.clear()
        fetched, self._waiting = self._waiting, []
        if fetched:
            self.position = fetched[-1].position
        elif self._end is not None:
            raise SubscriptionEndedError(self._end)
        return fetched
