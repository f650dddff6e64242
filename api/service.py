"""The running service: everything that lives as long as the process and works on the log.

Owns the order of starting and stopping. The committer stops early, so that what was accepted is
committed and announced; followers can stop at any moment, because their cursors are stored.
Process managers stop before it: what they leave undone is found by whoever looks next.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Self, TypeVar

import psycopg
from msgspec import Struct
from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool
from uuid_utils.compat import uuid7

from api.admission import Admission, Thresholds
from api.bell import JobBell
from api.stream import changes
from eventlog.committer import Committer
from eventlog.database import configure, reader_conninfo
from eventlog.follower import Follower, Projection
from eventlog.horizon import READ_LAST_POSITION
from eventlog.mapper import EventMapper
from eventlog.tail import Readers
from eventlog.tasks import end
from eventlog.wakeups import Wakeups
from processors.duty import Duty
from processors.qstash import QStash
from processors.registry import all_processors
from processors.runtime import STANDARD_KITCHEN, Kitchen, Processor, Runtime
from processors.upstream_feeds import Feeds
from projections.registry import DECIDERS, LIVE_TABLES, READ_MODELS

_log = logging.getLogger("daybook")
# Whoever asks for a reader in vain is told; the pool would say it again at every attempt.
logging.getLogger("psycopg.pool").setLevel(logging.ERROR)

READERS_MIN = 1
READERS_MAX = 4
# Less than what readiness allows, so that it can say why.
READER_WAIT_SECONDS = 0.8
# The pool doubles its pause after each failure up to this time and starts afresh with the next
# reader: kept short, a database that comes back is found at once.
RECONNECT_SECONDS = 2.0
READY_SECONDS_MAX = 1.0
# A database that is away is noticed by the pool, after less than a second. This is for one that
# is there and does not answer.
READ_SECONDS_MAX = 2.0

USUAL_THRESHOLDS = Thresholds()

T = TypeVar("T")


class Readiness(Struct, frozen=True):
    """Whether the service can do its work: the last position of the log, or why it cannot."""

    position: int = 0
    trouble: str | None = None


class Service:
    def __init__(
        self,
        conninfo: str,
        *,
        kitchen: Kitchen = STANDARD_KITCHEN,
        qstash: QStash | None = None,
        feeds: Feeds | None = None,
        read_models: Sequence[Projection] = READ_MODELS,
        processors: Sequence[Processor] | None = None,
        thresholds: Thresholds = USUAL_THRESHOLDS,
    ) -> None:
        """`qstash`, if there is one, becomes the service's own; no `processors` means all."""
        mapper = EventMapper(DECIDERS)
        self.kitchen = kitchen
        self.wakeups = Wakeups(conninfo)
        self.committer = Committer(
            conninfo, tables=LIVE_TABLES, mapper=mapper, on_commit=self.wakeups.announce
        )
        self.readers = _readers(conninfo)
        self._reading = asyncio.Semaphore(READERS_MAX)
        self.tail = changes(conninfo, mapper=mapper, wakeups=self.wakeups, readers=self.readers)
        self.bell = JobBell(self.readers, self.wakeups)
        self.admission = Admission(self.committer, self.readers, thresholds)
        runtime = Runtime(
            instance=uuid7(),
            conninfo=conninfo,
            committer=self.committer,
            wakeups=self.wakeups,
            kitchen=kitchen,
        )
        chosen = all_processors(qstash, feeds) if processors is None else processors
        self._duty = Duty(conninfo, runtime, chosen)
        self._followers = {model.name: Follower(conninfo, model, mapper) for model in read_models}
        self._following: dict[str, asyncio.Task[None]] = {}
        self._probe: asyncio.Task[Readiness] | None = None
        self._running = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as starting:
            await starting.enter_async_context(self.readers)
            await starting.enter_async_context(self.wakeups)
            await starting.enter_async_context(self.tail)
            await starting.enter_async_context(self.bell)
            await starting.enter_async_context(self.admission)
            starting.push_async_callback(self._stop_following)
            for name, follower in self._followers.items():
                self._following[name] = asyncio.create_task(self._follow(name, follower))
            await starting.enter_async_context(self.committer)
            await starting.enter_async_context(self._duty)
            self._running = starting.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._running.aclose()

    async def read(self, query: Callable[[AsyncConnection[TupleRow]], Awaitable[T]]) -> T:
        """Lets a query read the database, for as long as somebody may be expected to wait."""

        async def ask() -> T:
            # Who waits for others to finish may wait longer than who waits for a lost database.
            async with self._reading, self.readers.connection() as reader:
                return await query(reader)

        # Not cancelled when it takes too long: psycopg would wait for the server's consent, and
        # a server that hangs gives none. It keeps its connection, of which there are only a few.
        asking = asyncio.create_task(ask())
        await asyncio.wait({asking}, timeout=READ_SECONDS_MAX)
        if not asking.done():
            asking.add_done_callback(_forget)
            raise TimeoutError
        return asking.result()

    async def readiness(self) -> Readiness:
        for name, task in self._following.items():
            if task.done():
                return Readiness(trouble=f"The read model {name} has stopped following the log.")
        # One probe at a time, shared by all who ask, and not cancelled when it takes too long:
        # psycopg would wait for the server's consent, and a server that hangs gives none.
        if self._probe is None or self._probe.done():
            self._probe = asyncio.create_task(self._ask_database())
        probe = self._probe
        await asyncio.wait({probe}, timeout=READY_SECONDS_MAX)
        if not probe.done():
            return Readiness(trouble="The database does not answer.")
        return probe.result()

    async def _ask_database(self) -> Readiness:
        try:
            async with self.readers.connection() as connection:
                ((position,),) = await (await connection.execute(READ_LAST_POSITION)).fetchall()
        except (psycopg.Error, OSError):
            return Readiness(trouble="The database cannot be reached.")
        return Readiness(position=position)

    async def _follow(self, name: str, follower: Follower) -> None:
        try:
            await follower.run(self.wakeups)
        except Exception:
            _log.exception("The read model %s has stopped following the log.", name)
            raise

    async def _stop_following(self) -> None:
        for follower in self._followers.values():
            follower.stop()
        await end(self._following.values())
        for follower in self._followers.values():
            await follower.close()


def _forget(asking: "asyncio.Task[T]") -> None:
    if not asking.cancelled():
        asking.exception()


def _readers(conninfo: str) -> Readers:
    return AsyncConnectionPool(
        reader_conninfo(conninfo),
        name="readers",
        kwargs={"autocommit": True},
        min_size=READERS_MIN,
        # Reads have a limit of their own; one more is for looking at what was accepted.
        max_size=READERS_MAX + 1,
        timeout=READER_WAIT_SECONDS,
        reconnect_timeout=RECONNECT_SECONDS,
        configure=configure,
        check=AsyncConnectionPool.check_connection,
        open=False,
    )
