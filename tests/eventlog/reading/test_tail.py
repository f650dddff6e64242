"""Every subscriber of the tail gets every event once, in order, from its requested position."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime

import pytest
from psycopg import AsyncConnection
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool
from uuid_utils.compat import uuid7

import daybook.eventlog.reading.subscription
import daybook.eventlog.reading.tail
from daybook.domain.deciders import DECIDERS
from daybook.domain.orders.order import Order, OrderKind
from daybook.eventlog.codec import RecordedEvent
from daybook.eventlog.errors import UnavailableError
from daybook.eventlog.notifier import Notifier
from daybook.eventlog.postgres.connections import reader_conninfo, writer_conninfo
from daybook.eventlog.reading.epochs import LogPosition
from daybook.eventlog.reading.subscription import Subscription, SubscriptionEndedError
from daybook.eventlog.reading.tail import Tail, TooManySubscriptionsError
from daybook.eventlog.writing.committer import Committer
from daybook.projections.registry import LIVE_TABLES
from tests.support.committer import MAPPER, Submitter, open_submitter, rows
from tests.support.databases.tcp_proxy import proxy_to

pytestmark = pytest.mark.anyio

KINDS = [kind for decider in DECIDERS for kind in decider.events]
TAIL_QUERIES = """
SELECT query_start FROM pg_stat_activity WHERE application_name = 'tail' AND datname = %(name)s
"""


async def render(_: AsyncConnection[TupleRow], events: Sequence[RecordedEvent]) -> list[bytes]:
    return [b"%d %b" % (event.position, event.topic.encode()) for event in events]


@asynccontextmanager
async def open_tail(conninfo: str) -> AsyncIterator[tuple[Tail, Submitter]]:
    """A tail with a named connection, and a committer that wakes it."""
    named = make_conninfo(conninfo, application_name="tail")
    async with (
        Notifier(conninfo) as notifier,
        AsyncConnectionPool(
            reader_conninfo(conninfo), kwargs={"autocommit": True}, open=False, max_size=4
        ) as readers,
        Tail(
            named, mapper=MAPPER, kinds=KINDS, render=render, notifier=notifier, readers=readers
        ) as tail,
        Committer(
            conninfo, tables=LIVE_TABLES, mapper=MAPPER, writers=2, on_commit=notifier.notify
        ) as committer,
    ):
        yield tail, Submitter(committer)


async def take(subscription: Subscription, upto: int) -> list[int]:
    """Returns positions up to a given one."""
    taken: list[int] = []
    while not taken or taken[-1] < upto:
        events = await subscription.next(5)
        assert events, f"nothing came after {taken[-1:]}"
        assert [event.data.split()[0] for event in events] == [b"%d" % e.position for e in events]
        taken += [event.position for event in events]
    return taken


async def write(submitter: Submitter, count: int) -> None:
    for _ in range(count // 10):
        await asyncio.gather(*(submitter.order() for _ in range(10)))


INSERT_LATE = """
INSERT INTO stored_events (originator_id, originator_version, topic, state,
                           command_id, actor, correlation_id)
VALUES (%(id)s, 1, %(topic)s, %(state)s, %(id)s, 'late', %(id)s)
"""


async def late_writer(conninfo: str) -> AsyncConnection[TupleRow]:
    """A transaction that has drawn its position and is still open."""
    order_id = uuid7()
    created = Order.Created(
        at=datetime.now(UTC), order_id=order_id, number=0, kind=OrderKind.VIP, attempts_max=3
    )
    topic, state = MAPPER.encode(created)
    connection = await AsyncConnection.connect(writer_conninfo(conninfo))
    await connection.execute(INSERT_LATE, {"id": order_id, "topic": topic, "state": state})
    return connection


def log_end(conninfo: str) -> int:
    return int(rows(conninfo, "SELECT coalesce(max(notification_id), 0) FROM stored_events")[0][0])


async def test_a_new_subscriber_gets_new_events_in_order(database: str) -> None:
    async with open_tail(database) as (tail, submitter):
        await write(submitter, 20)
        async with tail.subscription() as subscription:
            assert await subscription.next(0.1) == []
            await write(submitter, 30)
            assert await take(subscription, 50) == [*range(21, 51)]


async def test_a_subscriber_that_returns_gets_missed_events_and_then_new_ones(
    database: str,
) -> None:
    async with open_tail(database) as (tail, submitter):
        await write(submitter, 1200)
        async with tail.subscription(LogPosition(5)) as subscription:
            assert await take(subscription, 1200) == [*range(6, 1201)]
            await write(submitter, 10)
            assert await take(subscription, 1210) == [*range(1201, 1211)]


async def test_subscribers_that_come_and_go_under_load_miss_and_repeat_no_event(
    database: str,
) -> None:
    async def restless(tail: Tail, name: int) -> list[int]:
        """Resubscribes after every few events."""
        taken: list[int] = []
        while not taken or taken[-1] < 4000:
            async with tail.subscription(LogPosition(taken[-1] if taken else 0)) as subscription:
                for _ in range(1 + name):
                    taken += [event.position for event in await subscription.next(0.2)]
        return taken

    async with open_tail(database) as (tail, submitter):
        writing = asyncio.create_task(write(submitter, 4000))
        streams = await asyncio.gather(*(restless(tail, name) for name in range(6)))
        await writing

    assert log_end(database) == 4000
    for taken in streams:
        assert taken == [*range(1, 4001)]


async def test_a_subscriber_ahead_of_this_process_gets_no_event_twice(
    database: str,
) -> None:
    async with (
        open_tail(database) as (tail, submitter),
        tail.subscription() as first,
        await late_writer(database) as late,
    ):
        await write(submitter, 20)
        # This process waits for the writer, and the one that served the client before did not.
        async with tail.subscription(tail.log_position(15)) as ahead:
            assert ahead.requested is None
            assert await ahead.next(0.05) == []
            await late.commit()
            assert await take(first, 21) == [*range(1, 22)]
            assert await take(ahead, 21) == [*range(16, 22)]


async def test_a_subscriber_that_falls_behind_is_ended_and_can_resume(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daybook.eventlog.reading.subscription, "WAITING_MAX", 50)
    async with open_tail(database) as (tail, submitter):
        async with tail.subscription() as slow, tail.subscription() as quick:
            await slow.next(0.01)
            reading = asyncio.create_task(take(quick, 100))
            for _ in range(10):
                await write(submitter, 10)
                await asyncio.sleep(0.05)
            assert await reading == [*range(1, 101)]
            with pytest.raises(SubscriptionEndedError, match="fell behind"):
                await slow.next(1)
        async with tail.subscription(tail.log_position(slow.position)) as again:
            assert await take(again, 100) == [*range(1, 101)]


async def test_without_subscribers_the_log_is_not_read(database: str) -> None:
    name = {"name": rows(database, "SELECT current_database()")[0][0]}
    async with open_tail(database) as (tail, submitter):
        await write(submitter, 20)
        assert rows(database, TAIL_QUERIES, name) == []
        async with tail.subscription() as subscription:
            await submitter.order()
            await take(subscription, 21)
        await asyncio.sleep(0.05)
        before = rows(database, TAIL_QUERIES, name)
        await write(submitter, 20)
        await asyncio.sleep(1.2)

        assert len(before) == 1
        assert rows(database, TAIL_QUERIES, name) == before


async def test_after_a_pause_a_new_subscriber_starts_at_the_current_horizon(database: str) -> None:
    async with open_tail(database) as (tail, submitter):
        async with tail.subscription():
            await submitter.order()
        await write(submitter, 50)
        async with tail.subscription() as subscription:
            await submitter.order()
            assert await take(subscription, 52) == [52]


async def test_a_late_commit_is_waited_for_and_not_skipped(database: str) -> None:
    """It drew its position early and commits after others."""
    async with open_tail(database) as (tail, submitter), tail.subscription() as subscription:
        async with await late_writer(database) as late:
            await write(submitter, 10)
            assert await subscription.next(0.2) == []
            await late.commit()
        assert await take(subscription, 11) == [*range(1, 12)]


async def test_a_subscriber_waits_for_a_horizon_that_is_not_settled_yet(database: str) -> None:
    async with open_tail(database) as (tail, submitter), AsyncExitStack() as stack:
        await write(submitter, 20)
        async with await late_writer(database) as late:
            arriving = asyncio.create_task(stack.enter_async_context(tail.subscription()))
            await asyncio.sleep(0.1)
            assert not arriving.done()
            await late.commit()
        subscription = await arriving
        await submitter.order()

        assert await take(subscription, 22) == [22]


async def test_a_tail_reconnects_when_its_connections_are_cut(database: str) -> None:
    async with (
        proxy_to(database) as proxy,
        open_tail(proxy.conninfo) as (tail, _),
        tail.subscription() as subscription,
        open_submitter(database) as submitter,
    ):
        await write(submitter, 10)
        assert await take(subscription, 10) == [*range(1, 11)]
        proxy.drop_all()
        await write(submitter, 10)
        assert await take(subscription, 20) == [*range(11, 21)]


async def test_the_number_of_subscribers_is_limited(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daybook.eventlog.reading.tail, "SUBSCRIPTIONS_MAX", 1)
    async with open_tail(database) as (tail, _):
        async with tail.subscription():
            with pytest.raises(TooManySubscriptionsError):
                await tail.subscription().__aenter__()
        async with tail.subscription():
            assert tail.subscriptions_count == 1


async def test_an_unreachable_database_is_reported_within_about_a_second(database: str) -> None:
    async with proxy_to(database) as proxy:
        proxy.refusing = True
        async with open_tail(proxy.conninfo) as (tail, _):
            began = asyncio.get_running_loop().time()
            with pytest.raises(UnavailableError):
                await tail.subscription().__aenter__()
            assert asyncio.get_running_loop().time() - began < 1.5
            assert tail.subscriptions_count == 0


async def test_closing_the_tail_ends_its_subscriptions_at_once(database: str) -> None:
    async with open_tail(database) as (tail, _):
        async with tail.subscription() as subscription:
            waiting = asyncio.create_task(subscription.next(60))
            await asyncio.sleep(0.05)
            tail.end()
            with pytest.raises(SubscriptionEndedError, match="stops"):
                await asyncio.wait_for(waiting, 1)
        with pytest.raises(UnavailableError):
            await tail.subscription().__aenter__()


@pytest.mark.parametrize(
    ("after", "start"),
    [
        (LogPosition(7, "current"), 7),  # nothing has happened
        (LogPosition(7, "a.1"), 5),  # a later epoch differs behind 5
        (LogPosition(3, "a.1"), 3),
        (LogPosition(8, "a.2"), 6),
        (LogPosition(2, "f.9"), 0),  # of another log
        (LogPosition(7), 7),  # from an older version
        (LogPosition(12), 6),  # the same, ahead of the log: the last epoch is gone through again
        (LogPosition(12, "current"), 6),
    ],
)
async def test_a_subscriber_resumes_from_the_last_common_position_of_both_logs(
    database: str, after: LogPosition, start: int
) -> None:
    async with open_tail(database) as (tail, submitter), tail.subscription():
        current = tail.epoch
        rows(database, "DELETE FROM log_epochs")
        rows(
            database,
            "INSERT INTO log_epochs (number, epoch, position)"
            f" VALUES (1, 'a.1', 0), (2, 'a.2', 5), (3, '{current}', 6)",
        )
        await write(submitter, 10)
        requested = LogPosition(
            after.position, current if after.epoch == "current" else after.epoch
        )
        async with tail.subscription(requested) as subscription:
            assert subscription.position == start
            assert subscription.requested == (None if start == after.position else after.position)
            assert await take(subscription, 10) == [*range(start + 1, 11)]


async def test_streams_end_when_the_database_has_failed_over(database: str) -> None:
    async with (
        proxy_to(database) as proxy,
        open_tail(proxy.conninfo) as (tail, submitter),
        tail.subscription() as subscription,
    ):
        await write(submitter, 10)
        assert await take(subscription, 10) == [*range(1, 11)]
        # The epoch that this process knows belongs to another server than the next one.
        tail._epoch = "a.1"
        proxy.drop_all()
        with pytest.raises(SubscriptionEndedError, match="failed over"):
            await take(subscription, 99)


async def test_streams_end_when_the_log_has_become_shorter(database: str) -> None:
    """As after a restored disk snapshot, which starts no new timeline."""
    async with (
        proxy_to(database) as proxy,
        open_tail(proxy.conninfo) as (tail, submitter),
        tail.subscription() as subscription,
    ):
        await write(submitter, 10)
        assert await take(subscription, 10) == [*range(1, 11)]
        tail._position = 30
        proxy.drop_all()
        with pytest.raises(SubscriptionEndedError, match="restored"):
            await take(subscription, 99)


async def test_a_subscriber_far_behind_reads_nothing_of_another_epoch(database: str) -> None:
    """Its connection may lead to the new primary, and the tail's to the old one."""
    async with open_tail(database) as (tail, submitter):
        await write(submitter, 10)
        async with tail.subscription(LogPosition(0)) as subscription:
            tail._epoch = "a.1"
            with pytest.raises(SubscriptionEndedError, match="failed over"):
                await take(subscription, 10)
        with pytest.raises(UnavailableError, match="failed over"):
            await tail.subscription(LogPosition(3)).__aenter__()
