"""One subscriber of the log's tail, with its position and its buffer."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from msgspec import Struct

# A subscriber with more buffered events is disconnected; it can resume from its last event.
WAITING_MAX = 10_000


class SubscriptionEndedError(Exception):
    """The message says why. A client that resubscribes from its last event misses nothing."""


class Rendered(Struct, frozen=True, gc=False):
    position: int
    data: bytes


class EventRange(Struct, frozen=True):
    """Events of the log, complete up to the position `upto`."""

    events: Sequence[Rendered]
    upto: int


class TailSource(Protocol):
    @property
    def position(self) -> int:
        """Events up to here can be read; later ones are offered."""

    async def read(self, after: int) -> EventRange:
        """Returns the next page of events after `after`, up to `position`."""


class Subscription:
    def __init__(self, source: TailSource) -> None:
        self.position = 0
        # The position that the client requested, if it had to start earlier.
        self.requested: int | None = None
        self._source = source
        self._is_live = False
        self._buffer: list[Rendered] = []
        self._woken = asyncio.Event()
        self._end: str | None = None

    def start(self, after: int, *, requested: int | None = None) -> None:
        self.position = after
        self.requested = None if requested == after else requested

    async def next(self, seconds: float) -> Sequence[Rendered]:
        """Returns the next events, or none after `seconds` without any."""
        while not self._is_live and self._end is None:
            # No await between this check and joining, so no event can come in between.
            if self.position >= self._source.position:
                self._is_live = True
                break
            page = await self._source.read(self.position)
            self.position = page.upto
            if page.events:
                return page.events
        if not self._buffer and self._end is None:
            # wait_for of Python 3.11 loses a cancellation that arrives together with the wake-up.
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._woken.wait()
        return self._fetch()

    def offer(self, events: Sequence[Rendered]) -> None:
        if not self._is_live or self._end is not None:
            return
        # A client that another process served before may be ahead of this process.
        self._buffer += [event for event in events if event.position > self.position]
        if len(self._buffer) > WAITING_MAX:
            self._buffer.clear()
            self.end("You fell behind: come again with the id of the last event you have.")
        elif self._buffer:
            self._woken.set()

    def end(self, why: str) -> None:
        self._end = self._end or why
        self._woken.set()

    def _fetch(self) -> Sequence[Rendered]:
        self._woken.clear()
        fetched, self._buffer = self._buffer, []
        if fetched:
            self.position = fetched[-1].position
        elif self._end is not None:
            raise SubscriptionEndedError(self._end)
        return fetched
