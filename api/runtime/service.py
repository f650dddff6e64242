"""The running service: all components that live as long as the process.

Owns the order of start and stop. Processors stop first; the next leader finds their unfinished
work. Then the committer stops, so that accepted commands are committed and notified. Followers can
stop at any moment, because their cursors are stored.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any, Self, TypeVar

import psycopg
from msgspec import Struct
from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool
from uuid_utils.compat import uuid7

from daybook.api.http.read_position import (
    AT_LEAST,
    POLL_SECONDS,
    WAIT_SECONDS_MAX,
    AtLeast,
    PositionNotReachedError,
    is_visible,
)
from daybook.api.keys.key_cache import ApiKeyCache
from daybook.api.runtime.background.task import BackgroundTasks
from daybook.api.runtime.change_feed import open_change_feed
from daybook.api.runtime.guest_encryption import GuestVault
from daybook.api.runtime.guest_master_key import ServiceKey
from daybook.api.runtime.job_waiters import JobWaiters
from daybook.api.runtime.load_shedding import LoadShedder, Thresholds
from daybook.domain.deciders import DECIDERS
from daybook.eventlog.async_tasks import cancel_and_wait
from daybook.eventlog.codec import EventMapper
from daybook.eventlog.errors import StorageFullError, UnavailableError
from daybook.eventlog.notifier import Notifier
from daybook.eventlog.postgres.connections import (
    check_connection,
    configure,
    reader_conninfo,
    relaxed_writer_conninfo,
)
from daybook.eventlog.reading.follower import FIND_AHEAD, Follower, Projection
from daybook.eventlog.reading.horizon import READ_NEWEST_POSITION
from daybook.eventlog.reading.tail import Readers
from daybook.eventlog.writing.committer import Committer
from daybook.eventlog.writing.unreadable_rows import is_unloadable
from daybook.processors.leader import LeaderRunner
from daybook.processors.processor import (
    STANDARD_ORDER_RULES,
    STANDARD_RETENTION_RULES,
    OrderRules,
    Processor,
    RetentionRules,
    Runtime,
)
from daybook.processors.qstash.client import QStash
from daybook.processors.qstash.publisher import GRACE_SECONDS
from daybook.processors.registry import all_processors
from daybook.processors.upstreams.poller import Upstreams
from daybook.processors.webhooks.deliveries import Deliveries
from daybook.processors.webhooks.webhook import Webhook
from daybook.projections.registry import LIVE_TABLES, NOTIFICATIONS, READ_MODELS

_log = logging.getLogger("daybook")
# Callers get an error when no connection is free; the pool would also log each attempt.
logging.getLogger("psycopg.pool").setLevel(logging.ERROR)

READERS_MIN = 1
READERS_MAX = 4
RELAXED_WRITERS_MAX = 4
# Below READY_SECONDS_MAX, so that readiness can report the reason.
READER_WAIT_SECONDS = 0.8
# The pool doubles its pause after each failure up to this time, and starts anew with the next
# reader. A short limit finds a recovered database quickly.
RECONNECT_SECONDS = 2.0
READY_SECONDS_MAX = 1.0
# The pool detects an unreachable database in less than a second. This limit is for a database that
# accepts connections and does not respond.
READ_SECONDS_MAX = 2.0
# The database is unreachable, slow, full or read-only.
CANNOT_WRITE = (
    psycopg.OperationalError,
    psycopg.errors.ReadOnlySqlTransaction,
    TimeoutError,
    OSError,
)

DISK_FULL = "The database is not accepting writes: its disk is full. Free some space."
# Writes about 0.5 MB to a temporary table: only a write that extends a file detects a full disk.
PROBE_DISK = """
CREATE TEMPORARY TABLE write_probe ON COMMIT DROP AS
SELECT md5(number::text) FROM generate_series(1, 8192) AS number
"""
# Rolled back: it leaves a gap in the positions, like every failed write.
PROBE_LOG = """
INSERT INTO stored_events (originator_id, originator_version, topic, state,
                           command_id, correlation_id, actor)
SELECT id, 1, 'probe', '', id, id, 'system:readiness' FROM gen_random_uuid() AS id
"""

DEFAULT_THRESHOLDS = Thresholds()

T = TypeVar("T")
Query = Callable[[AsyncConnection[TupleRow]], Awaitable[T]]


class Readiness(Struct, frozen=True):
    """The last position of the log, or the reason why the service is not ready."""

    position: int = 0
    trouble: str | None = None


class Service:
    def __init__(
        self,
        conninfo: str,
        *,
        order_rules: OrderRules = STANDARD_ORDER_RULES,
        retention_rules: RetentionRules = STANDARD_RETENTION_RULES,
        qstash: QStash | None = None,
        upstreams: Upstreams | None = None,
        guest_key: ServiceKey | None = None,
        webhook: Webhook | None = None,
        read_models: Sequence[Projection] = READ_MODELS,
        processors: Sequence[Processor] | None = None,
        callback_grace_seconds: float = GRACE_SECONDS,
        with_keys: bool = False,
        thresholds: Thresholds = DEFAULT_THRESHOLDS,
    ) -> None:
        """Takes ownership of `qstash`; `processors` defaults to all. Without a `guest_key` no guest
        can join a waitlist."""
        mapper = EventMapper(DECIDERS)
        self.notifier = Notifier(conninfo)
        self.committer = Committer(
            conninfo, tables=LIVE_TABLES, mapper=mapper, on_commit=self.notifier.notify
        )
        self.key_cache = ApiKeyCache(conninfo) if with_keys else None
        # One connection more than the limit of reads: load shedding polls with it.
        self.readers = _pool("readers", reader_conninfo(conninfo), size_max=READERS_MAX + 1)
        self._reading = asyncio.Semaphore(READERS_MAX)
        self._relaxed_writers = _pool(
            "relaxed writers", relaxed_writer_conninfo(conninfo), size_max=RELAXED_WRITERS_MAX
        )
        self._relaxed_writing = asyncio.Semaphore(RELAXED_WRITERS_MAX)
        self.guests = GuestVault(guest_key, self.run_on_relaxed_connection)
        self.tail = open_change_feed(
            conninfo, mapper=mapper, notifier=self.notifier, readers=self.readers
        )
        self.job_waiters = JobWaiters(self.readers, self.notifier)
        self.followers_off = () if webhook else (NOTIFICATIONS,)
        self.background_tasks = BackgroundTasks(conninfo, followers_off=self.followers_off)
        self.load_shedder = LoadShedder(self.committer, self.readers, thresholds)
        runtime = Runtime(
            instance=uuid7(),
            conninfo=conninfo,
            committer=self.committer,
            notifier=self.notifier,
            order_rules=order_rules,
            retention_rules=retention_rules,
        )
        deliveries = Deliveries(webhook, self.guests.decrypt_each) if webhook else None
        chosen = processors
        if chosen is None:
            chosen = all_processors(
                qstash, upstreams, deliveries, callback_grace_seconds=callback_grace_seconds
            )
        self._leader = LeaderRunner(conninfo, runtime, chosen)
        self._followers = {model.name: Follower(conninfo, model, mapper) for model in read_models}
        self._following: dict[str, asyncio.Task[None]] = {}
        self._probe: asyncio.Task[Readiness] | None = None
        self._running = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as starting:
            if self.key_cache is not None:
                await starting.enter_async_context(self.key_cache)
            await starting.enter_async_context(self.readers)
            await starting.enter_async_context(self._relaxed_writers)
            await starting.enter_async_context(self.notifier)
            await starting.enter_async_context(self.tail)
            await starting.enter_async_context(self.job_waiters)
            starting.push_async_callback(self.background_tasks.end)
            await starting.enter_async_context(self.load_shedder)
            starting.push_async_callback(self._stop_following)
            for name, follower in self._followers.items():
                self._following[name] = asyncio.create_task(self._follow(name, follower))
            await starting.enter_async_context(self.committer)
            await starting.enter_async_context(self._leader)
            self._running = starting.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._running.aclose()

    async def read(self, query: Query[T]) -> T:
        """Runs a query on a reader; raises TimeoutError after READ_SECONDS_MAX."""
        try:
            return await self._read(query)
        except psycopg.DataError as error:
            # A row that no version can load: quarantine it and read again.
            if not is_unloadable(error) or not await self.committer.unreadable_rows.quarantine():
                raise
            return await self._read(query)

    async def execute_outside_log(self, statement: Query[T]) -> T:
        """Runs a statement that changes rows outside the log, such as a lease extension. It shares
        the connections and the time limit of reads."""
        return await self.read(statement)

    async def _read(self, query: Query[T]) -> T:
        wanted = AT_LEAST.get()
        if wanted is None:
            return await _with_timeout(_run_query(self.readers, self._reading, query))
        return await _with_timeout(self._read_at_least(wanted, query))

    async def run_on_relaxed_connection(self, query: Query[T]) -> T:
        """Reads or writes rows that are no events and must exist before a command: rate limit
        charges, guests' keys. Commits asynchronously; the command's commit makes them durable."""
        try:
            return await _with_timeout(
                _run_query(self._relaxed_writers, self._relaxed_writing, query)
            )
        except CANNOT_WRITE as error:
            raise UnavailableError("The database is not accepting writes; retry.") from error

    async def _read_at_least(self, wanted: AtLeast, query: Query[T]) -> T:
        """Waits for the position without a connection, of which there are only a few."""
        until = asyncio.get_running_loop().time() + WAIT_SECONDS_MAX
        with self.notifier.listener() as wake:
            while True:
                async with self._reading, self.readers.connection() as reader:
                    if await is_visible(reader, wanted):
                        return await query(reader)
                if not wanted.may_wait or asyncio.get_running_loop().time() >= until:
                    raise PositionNotReachedError(wanted.position)
                await wake.wait(POLL_SECONDS)

    async def readiness(self) -> Readiness:
        for name, task in self._following.items():
            if task.done():
                return Readiness(trouble=f"The read model {name} has stopped following the log.")
        # One probe at a time, shared by all requests. It is not cancelled on timeout, because
        # psycopg would wait for the server to confirm, and a hanging server never does.
        if self._probe is None or self._probe.done():
            self._probe = asyncio.create_task(self._probe_database())
        probe = self._probe
        await asyncio.wait({probe}, timeout=READY_SECONDS_MAX)
        if not probe.done():
            return Readiness(trouble="The database does not respond.")
        return probe.result()

    async def _probe_database(self) -> Readiness:
        try:
            async with self.readers.connection() as connection:
                ((position,),) = await (await connection.execute(READ_NEWEST_POSITION)).fetchall()
                ahead = await (await connection.execute(FIND_AHEAD)).fetchall()
        except (psycopg.Error, OSError):
            return Readiness(trouble="The database cannot be reached.")
        if ahead:
            names = ", ".join([name for name, _ in ahead])
            return Readiness(trouble=f"Cursors are ahead of the log, and skip events: {names}.")
        return Readiness(position=position, trouble=await self._find_write_trouble())

    async def _find_write_trouble(self) -> str | None:
        """The reason why the last write failed, until a probe succeeds. A load balancer sends no
        requests to a service that is not ready, so only a probe can detect the recovery."""
        trouble = self.committer.write_error
        if trouble is None:
            return None
        try:
            await self.run_on_relaxed_connection(_probe_writing)
        except UnavailableError:
            is_full = isinstance(trouble, StorageFullError)
            return DISK_FULL if is_full else "The database is not accepting writes."
        self.committer.write_error = None
        return None

    async def _follow(self, name: str, follower: Follower) -> None:
        try:
            await follower.run(self.notifier)
        except Exception:
            _log.exception(
                "The read model %s stopped following the log and is out of date: restart the "
                "service.",
                name,
            )
            raise

    async def _stop_following(self) -> None:
        for follower in self._followers.values():
            follower.stop()
        await cancel_and_wait(self._following.values())
        for follower in self._followers.values():
            await follower.close()


async def _probe_writing(connection: AsyncConnection[TupleRow]) -> None:
    async with connection.transaction(force_rollback=True):
        await connection.execute(PROBE_LOG)
    # An operator may have revoked the right to create temporary tables.
    with suppress(psycopg.errors.InsufficientPrivilege):
        await connection.execute(PROBE_DISK)


async def _run_query(pool: Readers, slot: asyncio.Semaphore, query: Query[T]) -> T:
    # The semaphore first: waiting for other queries may take longer than the pool's timeout, which
    # is for an unreachable database.
    async with slot, pool.connection() as connection:
        return await query(connection)


async def _with_timeout(query: Coroutine[Any, Any, T]) -> T:
    """Raises TimeoutError after READ_SECONDS_MAX. The query is not cancelled, because psycopg would
    wait for the server to confirm; it keeps its connection until it ends."""
    task = asyncio.create_task(query)
    await asyncio.wait({task}, timeout=READ_SECONDS_MAX)
    if not task.done():
        task.add_done_callback(_ignore_result)
        raise TimeoutError
    return task.result()


def _ignore_result(task: "asyncio.Task[T]") -> None:
    if not task.cancelled():
        task.exception()


def _pool(name: str, conninfo: str, *, size_max: int) -> Readers:
    return AsyncConnectionPool(
        conninfo,
        name=name,
        kwargs={"autocommit": True},
        min_size=READERS_MIN,
        max_size=size_max,
        timeout=READER_WAIT_SECONDS,
        reconnect_timeout=RECONNECT_SECONDS,
        configure=configure,
        check=check_connection,
        open=False,
    )
