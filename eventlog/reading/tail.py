"""The tail of the log, read and rendered once for any number of subscribers.

One task reads new events up to the settled horizon, only while there are subscribers. A subscriber
with an older position reads pages until it reaches the task's position, and joins in the same step
of the event loop, so it misses no event and gets none twice.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import Self

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool

from daybook.domain.event import Event
from daybook.eventlog.async_tasks import cancel_and_wait
from daybook.eventlog.codec import EventMapper, RecordedEvent
from daybook.eventlog.errors import StandbyError, UnavailableError
from daybook.eventlog.notifier import Notifier
from daybook.eventlog.postgres.connections import connect, reader_conninfo
from daybook.eventlog.reading.epochs import LogPosition, common_position, enter_epoch, epoch_of
from daybook.eventlog.reading.follower import POLL_SECONDS, SETTLING_SECONDS
from daybook.eventlog.reading.horizon import READ_NEWEST_POSITION, Horizon
from daybook.eventlog.reading.subscription import (
    EventRange,
    Rendered,
    Subscription,
    SubscriptionEndedError,
)

_log = logging.getLogger("daybook")

READ_MAX = 500
SUBSCRIPTIONS_MAX = 200
START_SECONDS_MAX = 1.0
# Under load every commit wakes the task. The first event goes out at once, later ones together
# after this time.
PAUSE_SECONDS = 0.02

READ_RECORDED = """
SELECT notification_id, originator_id, originator_version, topic, state,
       recorded_at, actor, command_id, correlation_id, causation_id
FROM stored_events
WHERE notification_id > %(after)s AND notification_id <= %(horizon)s AND topic = ANY(%(topics)s)
ORDER BY notification_id
LIMIT %(limit)s
"""

ANOTHER_EPOCH = (
    "The database has failed over or was restored: reconnect with the id of the last event you "
    "have to resume from the last common position."
)
DIVERGED = (
    "the log was published up to position %s of epoch %s and now ends at %s of epoch %s, as after "
    "a failover or restore: ended all streams, and clients resume from the last common position"
)

Readers = AsyncConnectionPool[AsyncConnection[TupleRow]]
Render = Callable[[AsyncConnection[TupleRow], Sequence[RecordedEvent]], Awaitable[Sequence[bytes]]]


class TooManySubscriptionsError(Exception):
    def __init__(self) -> None:
        super().__init__(f"There are {SUBSCRIPTIONS_MAX} streams already.")


class Tail:
    def __init__(
        self,
        conninfo: str,
        *,
        mapper: EventMapper,
        kinds: Iterable[type[Event]],
        render: Render,
        notifier: Notifier,
        readers: Readers,
    ) -> None:
        """`readers` serve subscribers with older positions; the task has its own connection."""
        self._conninfo = reader_conninfo(conninfo)
        self._mapper = mapper
        self._topics = mapper.topics_of(kinds)
        self._render = render
        self._notifier = notifier
        self._readers = readers
        self._subscriptions: set[Subscription] = set()
        self._connection: AsyncConnection[TupleRow] | None = None
        self._horizon = Horizon()
        self._position: int | None = None
        self._epoch: str | None = None
        # Message of a StandbyError, which only the operator can resolve.
        self._standby: str | None = None
        self._started = asyncio.Event()
        self._closing = False
        self._exit_stack = ExitStack()

    async def __aenter__(self) -> Self:
        self._listener = self._exit_stack.enter_context(self._notifier.listener())
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.end()
        await cancel_and_wait([self._task])
        self._exit_stack.close()
        await self._disconnect()

    @property
    def position(self) -> int:
        assert self._position is not None, "no subscription has started"
        return self._position

    @property
    def epoch(self) -> str:
        assert self._epoch is not None, "no subscription has started"
        return self._epoch

    def log_position(self, position: int) -> LogPosition:
        return LogPosition(position, self.epoch)

    @property
    def subscriptions_count(self) -> int:
        return len(self._subscriptions)

    def end(self) -> None:
        """Ends all subscriptions for good, because a stopping server waits for them."""
        self._closing = True
        for subscription in self._subscriptions:
            subscription.end("The service stops.")

    @asynccontextmanager
    async def subscription(self, after: LogPosition | None = None) -> AsyncIterator[Subscription]:
        """Subscribes to the events after a position, or to new events. If the log lacks the
        position, the subscription starts at the last common one and keeps `requested`."""
        if self._closing:
            raise UnavailableError("The service stops.")
        if len(self._subscriptions) >= SUBSCRIPTIONS_MAX:
            raise TooManySubscriptionsError
        subscription = Subscription(self)
        self._subscriptions.add(subscription)
        try:
            await self._wait_started()
            if after is None:
                subscription.start(self.position)
            else:
                subscription.start(await self._common(after), requested=after.position)
            yield subscription
        finally:
            self._subscriptions.discard(subscription)
            if not self._subscriptions:
                self._reset()

    async def read(self, after: int) -> EventRange:
        """Returns a page of published events."""
        try:
            async with self._readers.connection() as connection:
                if await epoch_of(connection) != self.epoch:
                    raise SubscriptionEndedError(ANOTHER_EPOCH)
                return await self._read(connection, after, self.position)
        except (psycopg.Error, OSError, StandbyError) as error:
            raise SubscriptionEndedError("The database is unavailable; reconnect.") from error

    async def _common(self, requested: LogPosition) -> int:
        try:
            async with self._readers.connection() as connection:
                if await epoch_of(connection) != self.epoch:
                    raise UnavailableError(ANOTHER_EPOCH)
                return await common_position(connection, requested)
        except (psycopg.Error, OSError) as error:
            raise UnavailableError("The log could not be read in time.") from error

    async def _wait_started(self) -> None:
        self._listener.wake()
        try:
            async with asyncio.timeout(START_SECONDS_MAX):
                await self._started.wait()
        except TimeoutError:
            reason = self._standby or "The log could not be read in time."
            raise UnavailableError(reason) from None

    def _reset(self) -> None:
        """Makes the next first subscriber start at the horizon of its own time."""
        self._position = None
        self._standby = None
        self._horizon = Horizon()
        self._started.clear()

    async def _run(self) -> None:
        try:
            # The flag is needed because psycopg may turn a cancellation into a lost connection.
            while not self._closing:
                try:
                    await self._advance()
                except StandbyError as error:
                    self._standby = str(error)
                except (psycopg.Error, OSError):
                    pass
                await asyncio.sleep(PAUSE_SECONDS if self._started.is_set() else 0)
                is_settling = self._subscriptions and self._horizon.is_waiting
                await self._listener.wait(SETTLING_SECONDS if is_settling else POLL_SECONDS)
        except Exception:
            _log.exception("event streams stopped in this process; restart it")
            raise
        finally:
            self.end()

    async def _advance(self) -> None:
        if not self._subscriptions:
            return
        connection = await self._connected()
        if not self._subscriptions:
            return
        horizon = self._horizon
        settled = await horizon.look(connection)
        if horizon is not self._horizon:
            return  # All subscribers have left; newer ones start at another horizon.
        if self._position is None:
            self._start(settled)
        while self._position is not None and self._position < settled:
            page = await self._read(connection, self._position, settled)
            self._publish(page)

    def _start(self, settled: int) -> None:
        """Starts the first subscriber at the first position known to be settled."""
        is_known = settled > 0 or not self._horizon.is_waiting
        if self._subscriptions and is_known:
            self._position = settled
            self._started.set()

    def _publish(self, page: EventRange) -> None:
        if self._position is None:
            return  # The last subscriber left while the page was read.
        self._position = page.upto
        for subscription in self._subscriptions:
            subscription.offer(page.events)

    async def _read(
        self, connection: AsyncConnection[TupleRow], after: int, upto: int
    ) -> EventRange:
        wanted = {"after": after, "horizon": upto, "limit": READ_MAX, "topics": self._topics}
        rows = await connection.execute(READ_RECORDED, wanted, binary=True)
        events = [self._mapper.recorded_event(row) for row in await rows.fetchall()]
        contents = await self._render(connection, events)
        rendered = [Rendered(e.position, data) for e, data in zip(events, contents, strict=True)]
        return EventRange(rendered, upto if len(events) < READ_MAX else events[-1].position)

    async def _connected(self) -> AsyncConnection[TupleRow]:
        if self._connection is None or self._connection.closed:
            connection = await connect(self._conninfo)
            try:
                await self._check_diverged(connection)
            except BaseException:
                await connection.close()
                raise
            self._connection = connection
        return self._connection

    async def _check_diverged(self, connection: AsyncConnection[TupleRow]) -> None:
        """Ends all subscriptions if the log is another one than was published, or is shorter."""
        epoch = await enter_epoch(connection)
        ((newest,),) = await (await connection.execute(READ_NEWEST_POSITION)).fetchall()
        is_shorter = self._position is not None and newest < self._position
        if is_shorter or self._epoch not in (None, epoch):
            _log.warning(DIVERGED, self._position, self._epoch, newest, epoch)
            for subscription in self._subscriptions:
                subscription.end(ANOTHER_EPOCH)
            self._reset()
        self._epoch = epoch

    async def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(psycopg.Error, OSError):
                await self._connection.close()
