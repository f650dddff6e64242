"""Followers read the log in order and apply each event to a projection exactly once: the effects,
the cursor and its proof (see follower_proof) are written in one transaction."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from daybook.domain.event import Event
from daybook.eventlog.codec import EventMapper, FollowedEvent
from daybook.eventlog.errors import CursorAheadError, StandbyError
from daybook.eventlog.notifier import BACKGROUND_DELAY_SECONDS, Listener, Notifier
from daybook.eventlog.postgres.connections import connect, follower_conninfo
from daybook.eventlog.reading.epochs import enter_epoch
from daybook.eventlog.reading.follower_proof import FollowerCursor as FollowerCursor
from daybook.eventlog.reading.follower_proof import prove
from daybook.eventlog.reading.horizon import READ_NEWEST_POSITION, Horizon
from daybook.eventlog.reading.skip_unreadable import apply_readable

_log = logging.getLogger("daybook")

REWOUND = (
    "cursor of follower %s was ahead of the log, as after a failover or restore: "
    "moved it back from position %d to %d, and later events are processed again"
)

BATCH_MAX = 2000
# Events without payload are small, so batches may be larger.
LEAN_BATCH_MAX = 6000
POLL_SECONDS = 1.0
# Usual pause between two reads of a projection that clients wait for.
PAUSE_SECONDS = 0.015
# Interval of polls while an open write transaction holds back the horizon.
SETTLING_SECONDS = 0.005

REGISTER_FOLLOWER = """
INSERT INTO followers (name, position, count, digest)
VALUES (%(name)s, 0, 0, '')
ON CONFLICT (name) DO NOTHING
"""
# The row lock keeps a second instance from applying the same events concurrently.
LOCK_CURSOR = "SELECT position, count, digest FROM followers WHERE name = %(name)s FOR UPDATE"
_SELECT_EVENTS = """
SELECT notification_id, originator_id, originator_version, topic, state
FROM stored_events
WHERE notification_id > %(after)s AND notification_id <= %(horizon)s
"""
# The payload is three quarters of the bytes that a batch of events sends.
_SELECT_WITHOUT_PAYLOAD = """
SELECT notification_id, originator_id, originator_version, topic, ''::bytea
FROM stored_events
WHERE notification_id > %(after)s AND notification_id <= %(horizon)s
"""
_BY_POSITION = "ORDER BY notification_id\nLIMIT %(limit)s\n"
_OF_TOPICS = f"  AND topic = ANY(%(topics)s)\n{_BY_POSITION}"
READ_EVENTS = _SELECT_EVENTS + _BY_POSITION
READ_EVENTS_OF_TOPICS = _SELECT_EVENTS + _OF_TOPICS
READ_WITHOUT_PAYLOAD = _SELECT_WITHOUT_PAYLOAD + _BY_POSITION
READ_WITHOUT_PAYLOAD_OF_TOPICS = _SELECT_WITHOUT_PAYLOAD + _OF_TOPICS
MOVE_CURSOR = """
UPDATE followers
SET position = %(position)s, count = %(count)s, digest = %(digest)s, epoch = %(epoch)s,
    updated_at = clock_timestamp()
WHERE name = %(name)s
"""
# Lag of a follower as the age of its first unread event. A lag in positions says little: one second
# of jobs is tens of thousands of them, also for followers of other topics.
UNREAD_SECONDS = """
coalesce((
    SELECT extract(epoch FROM clock_timestamp() - recorded_at)::float8
    FROM stored_events
    WHERE notification_id > followers.position
    ORDER BY notification_id
    LIMIT 1
), 0)
"""
# Followers that would skip events, because positions up to their cursor are still to be drawn.
FIND_AHEAD = """
SELECT name, position - CASE WHEN is_called THEN last_value ELSE 0 END
FROM followers, stored_events_notification_id_seq
WHERE position > CASE WHEN is_called THEN last_value ELSE 0 END
ORDER BY name
"""
READ_CURSOR = "SELECT position, count, digest FROM followers WHERE name = %(name)s"

Apply = Callable[[AsyncConnection[TupleRow], Sequence[FollowedEvent]], Awaitable[None]]


class Rebuildable(Protocol):
    """A read model that can be rebuilt from the log. Its name is stored and never changes."""

    name: str
    # The events to follow; None for all.
    kinds: tuple[type[Event], ...] | None

    async def apply(
        self, connection: AsyncConnection[TupleRow], events: Sequence[FollowedEvent]
    ) -> None:
        """Runs inside the caller's transaction."""


class Projection(Rebuildable, Protocol):
    """A read model that a follower keeps up to date, under the service's role."""

    # Whether `apply` reads the events' content. If not, a follower omits it; a rebuild may not.
    needs_payload: bool
    # Pause between two reads: under load it makes batches larger and leaves the CPU to writers.
    pause_seconds: float


class Follower:
    def __init__(
        self,
        conninfo: str,
        projection: Projection,
        mapper: EventMapper,
        *,
        batch_max: int | None = None,
    ) -> None:
        self._conninfo = follower_conninfo(conninfo)
        self._projection = projection
        self._mapper = mapper
        usual_max = BATCH_MAX if projection.needs_payload else LEAN_BATCH_MAX
        self._batch_max = batch_max or usual_max
        self._horizon = Horizon()
        # The end of the log when `catch_up` last set a goal, which it reaches before it sleeps.
        self._wanted_position = 0
        self._connection: AsyncConnection[TupleRow] | None = None
        self._epoch = ""
        self._stopping = False
        kinds = projection.kinds
        self._topics = None if kinds is None else mapper.topics_of(kinds)
        self._aggregates = None if self._topics is None else mapper.aggregates_of(self._topics)
        if projection.needs_payload:
            self._query = READ_EVENTS if kinds is None else READ_EVENTS_OF_TOPICS
        else:
            self._query = READ_WITHOUT_PAYLOAD if kinds is None else READ_WITHOUT_PAYLOAD_OF_TOPICS

    async def run(self, notifier: Notifier) -> None:
        """Follows until it is stopped; reconnects when the database is lost."""
        with notifier.listener(BACKGROUND_DELAY_SECONDS, kinds=self._aggregates) as listener:
            while not self._stopping:
                try:
                    await self.catch_up()
                except (psycopg.Error, OSError, StandbyError):
                    await self.close()
                await asyncio.sleep(self._projection.pause_seconds)
                await self.wait_for_events(listener)

    async def wait_for_events(self, listener: Listener) -> None:
        """Waits until there may be more events. While settling it leaves wake-ups in the listener,
        so that a new `catch_up` follows once the present goal is reached."""
        if self.is_settling:
            await asyncio.sleep(SETTLING_SECONDS)
        else:
            await listener.wait(POLL_SECONDS)

    def stop(self) -> None:
        """Must precede a cancellation of `run`, because psycopg may turn the cancellation into a
        lost connection, which `run` survives."""
        self._stopping = True

    async def catch_up(self) -> int:
        """Processes all settled events; returns their number."""
        is_new_goal = not self.is_settling
        connection = await self._connected()
        horizon = await self._horizon.look(connection)
        if is_new_goal:
            self._wanted_position = self._horizon.last_position
        total = 0
        while count := await self._process_batch(connection, horizon):
            total += count
        return total

    async def _process_batch(self, connection: AsyncConnection[TupleRow], horizon: int) -> int:
        """If a batch cannot be applied as a whole, it is applied without its unreadable events."""
        try:
            return await self._step(connection, horizon, self._projection.apply)
        except (psycopg.OperationalError, OSError):
            raise
        except Exception:
            if connection.closed:
                raise
            return await self._step(connection, horizon, self._apply_readable)

    async def _apply_readable(
        self, connection: AsyncConnection[TupleRow], events: Sequence[FollowedEvent]
    ) -> None:
        await apply_readable(connection, self._projection, events, self._mapper)

    @property
    def is_settling(self) -> bool:
        """Whether open write transactions hold back events up to the present goal. Later events do
        not count: under load a transaction is always open, and its commit wakes the listener."""
        return self._connection is not None and not self._horizon.is_complete(self._wanted_position)

    async def close(self) -> None:
        if self._connection is not None:
            with suppress(psycopg.Error, OSError):
                await self._connection.close()
            self._connection = None

    async def cursor(self) -> FollowerCursor:
        found = await (await self._connected()).execute(
            READ_CURSOR, {"name": self._projection.name}
        )
        return FollowerCursor(*(await found.fetchone() or ()))

    async def recompute(self, upto: int) -> FollowerCursor:
        """Returns the cursor that the log implies at a position."""
        proof = await prove(await self._connected(), topics=self._topics, upto=upto)
        return FollowerCursor(upto, proof.count, proof.digest)

    async def _connected(self) -> AsyncConnection[TupleRow]:
        if self._connection is None or self._connection.closed:
            await self._connect()
        assert self._connection is not None
        return self._connection

    async def _connect(self) -> None:
        """Discards all known positions: the server may have lost some, or be another one."""
        connection = await connect(self._conninfo)
        try:
            self._epoch = await enter_epoch(connection)
            await connection.execute(REGISTER_FOLLOWER, {"name": self._projection.name})
            await self._rewind(connection)
        except BaseException:
            await connection.close()
            raise
        self._wanted_position = 0
        self._connection = connection

    async def _rewind(self, connection: AsyncConnection[TupleRow]) -> None:
        """Moves a cursor that is ahead of the newest event, after a crash, failover or upgrade,
        back to the last event that its proof covers, so that no later event is skipped."""
        name = self._projection.name
        async with connection.transaction():
            row = await connection.execute(LOCK_CURSOR, {"name": name}, binary=True)
            ahead = FollowerCursor(*(await row.fetchone() or ()))
            ((newest,),) = await (await connection.execute(READ_NEWEST_POSITION)).fetchall()
            if ahead.position <= newest:
                return
            proof = await prove(connection, topics=self._topics, upto=newest, count=ahead.count)
            if (proof.count, proof.digest) != (ahead.count, ahead.digest):
                raise CursorAheadError(name, ahead.position)
            await self._move(connection, proof)
        _log.warning(REWOUND, name, ahead.position, proof.position)

    async def _step(self, connection: AsyncConnection[TupleRow], horizon: int, apply: Apply) -> int:
        name = self._projection.name
        async with connection.transaction():
            row = await connection.execute(LOCK_CURSOR, {"name": name}, binary=True)
            cursor = FollowerCursor(*(await row.fetchone() or ()))
            if cursor.position >= horizon:
                return 0
            events = await self._read(connection, cursor.position, horizon)
            if events:
                await apply(connection, events)
            whole = len(events) < self._batch_max
            upto = horizon if whole else events[-1].position
            moved = cursor.past([event.position for event in events], upto=upto)
            await self._move(connection, moved)
        return len(events)

    async def _move(self, connection: AsyncConnection[TupleRow], to: FollowerCursor) -> None:
        name, epoch = self._projection.name, self._epoch
        where = {"name": name, "position": to.position, "epoch": epoch}
        await connection.execute(MOVE_CURSOR, {**where, "count": to.count, "digest": to.digest})

    async def _read(
        self, connection: AsyncConnection[TupleRow], after: int, horizon: int
    ) -> list[FollowedEvent]:
        wanted: dict[str, Any] = {"after": after, "horizon": horizon, "limit": self._batch_max}
        if self._topics is not None:
            wanted["topics"] = self._topics
        rows = await connection.execute(self._query, wanted, binary=True)
        return self._mapper.followed_events(await rows.fetchall())
