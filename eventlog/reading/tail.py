"""The end of the log as it grows, read once and handed to any number of subscribers.

One task looks at the settled horizon whenever it is woken, reads what is new and renders it once.
A subscriber that comes from further back reads the log by itself until it has reached the task's
position, and joins at that very moment: nothing can come in between, so nothing is missed and
nothing comes twice. Without subscribers the log is not looked at.
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
# Under load every commit rings, and every event handed out wakes every subscriber. The first of
# many goes out at once, the rest together after this time.
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
    "The database has failed over, or was restored: come again with the id of the last event you "
    "have, and be told what is different."
)
TOLD_OTHERWISE = (
    "Streams were told the log up to position %s of epoch %s, and it now ends at %s of epoch %s: "
    "they are ended, and read on from where both are the same."
)

Readers = AsyncConnectionPool[AsyncConnection[TupleRow]]
Render = Callable[[AsyncConnection[TupleRow], Sequence[RecordedEvent]], Awaitable[Sequence[bytes]]]
"""Makes of each event what is handed out, and may look up what else is to be told of it."""


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
        """`readers` serve those who come from further back; the task has its own connection."""
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
        self._standby: str | None = None
        """Why there is nothing to be read, where that will not change by itself."""

        self._placed = asyncio.Event()
        self._closing = False
        self._listening = ExitStack()

    async def __aenter__(self) -> Self:
        self._wake = self._listening.enter_context(self._notifier.listener())
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.end()
        await cancel_and_wait([self._task])
        self._listening.close()
        await self._disconnect()

    @property
    def position(self) -> int:
        """Up to where the log has been handed out."""
        assert self._position is not None, "nobody has subscribed"
        return self._position

    @property
    def epoch(self) -> str:
        """Of the log that is handed out."""
        assert self._epoch is not None, "nobody has subscribed"
        return self._epoch

    def log_position(self, position: int) -> LogPosition:
        return LogPosition(position, self.epoch)

    @property
    def subscriptions_count(self) -> int:
        return len(self._subscriptions)

    def end(self) -> None:
        """Ends every subscription, now and for good: a server that stops waits for them."""
        self._closing = True
        for subscription in self._subscriptions:
            subscription.end("The service stops.")

    @asynccontextmanager
    async def subscription(self, after: LogPosition | None = None) -> AsyncIterator[Subscription]:
        """Subscribes from behind a place, or from the present on. If the log has never reached the
        place, or has lost it, the subscription starts at an earlier common position, and tells
        the client so."""
        if self._closing:
            raise UnavailableError("The service stops.")
        if len(self._subscriptions) >= SUBSCRIPTIONS_MAX:
            raise TooManySubscriptionsError
        subscription = Subscription(self)
        self._subscriptions.add(subscription)
        try:
            await self._started()
            if after is None:
                subscription.start(self.position)
            else:
                subscription.start(await self._common(after), requested=after.position)
            yield subscription
        finally:
            self._subscriptions.discard(subscription)
            if not self._subscriptions:
                self._rest()

    async def read(self, after: int) -> EventRange:
        """A stretch of what has been handed out already."""
        try:
            async with self._readers.connection() as connection:
                if await epoch_of(connection) != self.epoch:
                    raise SubscriptionEndedError(ANOTHER_EPOCH)
                return await self._read(connection, after, self.position)
        except (psycopg.Error, OSError, StandbyError) as error:
            raise SubscriptionEndedError("The database is away.") from error

    async def _common(self, place: LogPosition) -> int:
        try:
            async with self._readers.connection() as connection:
                if await epoch_of(connection) != self.epoch:
                    raise UnavailableError(ANOTHER_EPOCH)
                return await common_position(connection, place)
        except (psycopg.Error, OSError) as error:
            raise UnavailableError("The log could not be read in time.") from error

    async def _started(self) -> None:
        self._wake.wake()
        try:
            async with asyncio.timeout(START_SECONDS_MAX):
                await self._placed.wait()
        except TimeoutError:
            sentence = self._standby or "The log could not be read in time."
            raise UnavailableError(sentence) from None

    def _rest(self) -> None:
        """The next one starts at its own present, however long that is from now."""
        self._position = None
        self._standby = None
        self._horizon = Horizon()
        self._placed.clear()

    async def _run(self) -> None:
        try:
            # Beside the cancellation, which psycopg may turn into a lost connection.
            while not self._closing:
                try:
                    await self._advance()
                except StandbyError as refused:
                    self._standby = str(refused)
                except (psycopg.Error, OSError):
                    pass
                await asyncio.sleep(PAUSE_SECONDS if self._placed.is_set() else 0)
                is_settling = self._subscriptions and self._horizon.is_waiting
                await self._wake.wait(SETTLING_SECONDS if is_settling else POLL_SECONDS)
        except Exception:
            _log.exception("The tail of the log is no longer read.")
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
            return  # Everybody left meanwhile, and who came since wants another present.
        if self._position is None:
            self._place(settled)
        while self._position is not None and self._position < settled:
            stretch = await self._read(connection, self._position, settled)
            self._publish(stretch)

    def _place(self, settled: int) -> None:
        """Where the first of the subscribers starts: at the first position known to be settled."""
        is_known = settled > 0 or not self._horizon.is_waiting
        if self._subscriptions and is_known:
            self._position = settled
            self._placed.set()

    def _publish(self, stretch: EventRange) -> None:
        if self._position is None:
            return  # The last subscriber left while this was read.
        self._position = stretch.upto
        for subscription in self._subscriptions:
            subscription.offer(stretch.events)

    async def _read(
        self, connection: AsyncConnection[TupleRow], after: int, upto: int
    ) -> EventRange:
        wanted = {"after": after, "horizon": upto, "limit": READ_MAX, "topics": self._topics}
        rows = await connection.execute(READ_RECORDED, wanted, binary=True)
        events = [self._mapper.recorded_event(row) for row in await rows.fetchall()]
        rendered = await self._render(connection, events)
        told = [Rendered(e.position, data) for e, data in zip(events, rendered, strict=True)]
        return EventRange(told, upto if len(events) < READ_MAX else events[-1].position)

    async def _connected(self) -> AsyncConnection[TupleRow]:
        if self._connection is None or self._connection.closed:
            connection = await connect(self._conninfo)
            try:
                await self._compare(connection)
            except BaseException:
                await connection.close()
                raise
            self._connection = connection
        return self._connection

    async def _compare(self, connection: AsyncConnection[TupleRow]) -> None:
        """With the log that was told of before: if this is another one, or ends earlier, all come
        again and are told from where on."""
        epoch = await enter_epoch(connection)
        ((newest,),) = await (await connection.execute(READ_NEWEST_POSITION)).fetchall()
        is_shorter = self._position is not None and newest < self._position
        if is_shorter or self._epoch not in (None, epoch):
            _log.warning(TOLD_OTHERWISE, self._position, self._epoch, newest, epoch)
            for subscription in self._subscriptions:
                subscription.end(ANOTHER_EPOCH)
            self._rest()
        self._epoch = epoch

    async def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(psycopg.Error, OSError):
                await self._connection.close()
