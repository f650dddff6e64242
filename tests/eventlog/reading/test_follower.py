"""Followers process each event exactly once and in order, and prove it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import psycopg
import pytest
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from daybook.domain.event import Event
from daybook.domain.orders.order import Order
from daybook.eventlog.codec import FollowedEvent
from daybook.eventlog.errors import CursorAheadError
from daybook.eventlog.notifier import Notifier
from daybook.eventlog.postgres.connections import follower_conninfo, owner_conninfo
from daybook.eventlog.reading import follower as follower_module
from daybook.eventlog.reading.follower import (
    PAUSE_SECONDS,
    READ_EVENTS_OF_TOPICS,
    Follower,
    FollowerCursor,
)
from tests.support.committer import MAPPER, eventually, open_submitter, rows
from tests.support.databases.tcp_proxy import proxy_to

pytestmark = pytest.mark.anyio

CREATE_SEEN = "CREATE TABLE seen (position bigint PRIMARY KEY)"
GRANT_SEEN = "GRANT ALL ON seen TO daybook_service"
FOR_EVER_SECONDS = 60.0
INSERT_SEEN = "INSERT INTO seen SELECT unnest(%(positions)s::bigint[])"


class Seen:
    """A projection that stores every position; a repeated one violates its primary key."""

    name = "seen"
    kinds: tuple[type[Event], ...] | None = None
    needs_payload = True
    pause_seconds = PAUSE_SECONDS

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.fail_once_after: int | None = None

    async def apply(
        self, connection: AsyncConnection[TupleRow], events: Sequence[FollowedEvent]
    ) -> None:
        self.sizes.append(len(events))
        await connection.execute(INSERT_SEEN, {"positions": [e.position for e in events]})
        if self.fail_once_after is not None and len(self.sizes) > self.fail_once_after:
            self.fail_once_after = None
            # Simulates a crash between the effects and the cursor.
            await connection.close()
            raise psycopg.OperationalError("killed")


@pytest.fixture
def seen_database(own_database: str) -> str:
    with psycopg.connect(owner_conninfo(own_database), autocommit=True) as connection:
        connection.execute(CREATE_SEEN)
        connection.execute(GRANT_SEEN)
    return own_database


@asynccontextmanager
async def following(conninfo: str, *followers: Follower) -> AsyncIterator[Notifier]:
    async with Notifier(conninfo) as notifier:
        tasks = [asyncio.create_task(follower.run(notifier)) for follower in followers]
        try:
            yield notifier
        finally:
            for task in tasks:
                task.cancel()
            for task in tasks:
                with contextlib.suppress(asyncio.CancelledError):
                    await task
            for follower in followers:
                await follower.close()


async def write_orders(conninfo: str, count: int) -> None:
    async with open_submitter(conninfo, writers=2) as submitter:
        await asyncio.gather(*(submitter.order() for _ in range(count)))


def all_seen(conninfo: str, count: int) -> bool:
    return bool(rows(conninfo, "SELECT count(*) FROM seen") == [(count,)])


async def assert_proven(follower: Follower) -> None:
    cursor = await follower.cursor()
    assert cursor == await follower.recompute(cursor.position)


async def test_a_follower_that_comes_late_catches_up_in_batches(seen_database: str) -> None:
    await write_orders(seen_database, 1200)
    projection = Seen()
    follower = Follower(seen_database, projection, MAPPER, batch_max=500)

    assert await follower.catch_up() == 1200
    assert await follower.catch_up() == 0
    assert projection.sizes == [500, 500, 200]
    await assert_proven(follower)
    await follower.close()


async def test_a_follower_killed_between_effect_and_cursor_repeats_nothing(
    seen_database: str,
) -> None:
    projection = Seen()
    projection.fail_once_after = 1
    follower = Follower(seen_database, projection, MAPPER, batch_max=100)
    await write_orders(seen_database, 500)

    async with following(seen_database, follower):
        await eventually(lambda: all_seen(seen_database, 500))
    await assert_proven(follower)
    await follower.close()
    assert projection.fail_once_after is None


async def test_two_instances_of_one_follower_share_the_work_and_double_nothing(
    seen_database: str,
) -> None:
    followers = [Follower(seen_database, Seen(), MAPPER, batch_max=50) for _ in range(2)]
    async with following(seen_database, *followers):
        await write_orders(seen_database, 800)
        await eventually(lambda: all_seen(seen_database, 800))
    await assert_proven(followers[0])
    await followers[0].close()


async def test_a_follower_applies_only_its_topics_and_moves_past_the_others(
    seen_database: str,
) -> None:
    class SeenClaims(Seen):
        kinds: tuple[type[Event], ...] | None = (Order.Claimed,)

    async with open_submitter(seen_database) as submitter:
        bot = await submitter.bot()
        for _ in range(3):
            await submitter.order()
        order = await submitter.claim(bot)
        assert order is not None
        await submitter.complete(order)
    follower = Follower(seen_database, SeenClaims(), MAPPER)

    assert await follower.catch_up() == 1
    cursor = await follower.cursor()
    assert (cursor.position, cursor.count) == (8, 1)
    await assert_proven(follower)
    await follower.close()


async def test_a_follower_in_another_process_is_woken_by_notify_and_not_by_its_poll(
    seen_database: str,
) -> None:
    follower = Follower(seen_database, Seen(), MAPPER)
    async with following(seen_database, follower), Notifier(seen_database) as elsewhere:
        await asyncio.sleep(0.5)
        await write_orders(seen_database, 1)
        began = asyncio.get_running_loop().time()
        elsewhere.notify(1, frozenset())
        await eventually(lambda: all_seen(seen_database, 1))
        assert asyncio.get_running_loop().time() - began < 0.5


class SeenOrders(Seen):
    kinds: tuple[type[Event], ...] | None = (Order.Created,)


async def test_a_follower_is_not_woken_by_other_kinds_of_aggregates(
    seen_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower_module, "POLL_SECONDS", FOR_EVER_SECONDS)
    follower = Follower(seen_database, SeenOrders(), MAPPER)
    async with following(seen_database, follower) as notifier:
        await asyncio.sleep(0.5)
        await write_orders(seen_database, 1)
        notifier.notify(1, frozenset({"job"}))
        await asyncio.sleep(0.3)
        assert all_seen(seen_database, 0)
        notifier.notify(1, frozenset({"job", "order"}))
        await eventually(lambda: all_seen(seen_database, 1))


async def test_a_follower_without_notifications_reaches_the_end_of_the_log_by_polling(
    seen_database: str,
) -> None:
    follower = Follower(seen_database, SeenOrders(), MAPPER)
    async with following(seen_database, follower):
        await write_orders(seen_database, 3)
        async with open_submitter(seen_database) as submitter:
            await submitter.bot()
        await eventually(lambda: rows(seen_database, "SELECT position FROM followers") == [(4,)], 3)
    await assert_proven(follower)
    await follower.close()


async def test_a_follower_waits_only_for_writers_that_were_open_when_it_looked(
    seen_database: str,
) -> None:
    """Under load a transaction is always open: a follower that waited for all would never sleep."""
    follower = Follower(seen_database, SeenOrders(), MAPPER)
    owner = owner_conninfo(seen_database)
    with psycopg.connect(owner) as first, psycopg.connect(owner) as second:
        first.execute(APPEND_ONE)
        await follower.catch_up()
        assert follower.is_settling
        second.execute(APPEND_ONE)
        first.commit()
        assert await follower.catch_up() == 1
        assert not follower.is_settling
        # A new goal includes the positions drawn since.
        await follower.catch_up()
        assert follower.is_settling
        second.commit()
        assert await follower.catch_up() == 1
        assert not follower.is_settling
    await assert_proven(follower)
    await follower.close()


async def test_a_wake_up_while_a_follower_settles_is_not_lost(
    seen_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower_module, "POLL_SECONDS", FOR_EVER_SECONDS)
    follower = Follower(seen_database, SeenOrders(), MAPPER)
    owner = owner_conninfo(seen_database)
    with psycopg.connect(owner) as first, psycopg.connect(owner) as second:
        first.execute(APPEND_ONE)
        async with following(seen_database, follower) as notifier:
            await asyncio.sleep(0.5)
            second.execute(APPEND_ONE)
            second.commit()
            notifier.notify(2, frozenset({"order"}))
            await asyncio.sleep(0.1)
            first.commit()
            await eventually(lambda: all_seen(seen_database, 2))


async def test_a_follower_reconnects_when_its_connections_are_cut(seen_database: str) -> None:
    async with proxy_to(seen_database) as proxy:
        follower = Follower(proxy.conninfo, Seen(), MAPPER)
        async with following(proxy.conninfo, follower):
            await write_orders(seen_database, 10)
            await eventually(lambda: all_seen(seen_database, 10))
            proxy.drop_all()
            await write_orders(seen_database, 10)
            await eventually(lambda: all_seen(seen_database, 20))
        await assert_proven(follower)
        await follower.close()


def left_ahead(database: str, position: int) -> None:
    """Moves a cursor ahead of the log, as an earlier version left it after a server crash."""
    rows(database, f"UPDATE followers SET position = {position}")


async def test_a_cursor_ahead_of_the_log_goes_back_to_its_last_processed_event(
    seen_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    # I-34
    follower = Follower(seen_database, Seen(), MAPPER)
    await write_orders(seen_database, 10)
    assert await follower.catch_up() == 10
    await follower.close()
    left_ahead(seen_database, 40)
    # The follower skips no event that has reused its positions since, and repeats no other.
    await write_orders(seen_database, 15)

    assert await follower.catch_up() == 15
    assert all_seen(seen_database, 25)
    await assert_proven(follower)
    assert "moved it back from position 40 to 10" in caplog.text
    await follower.close()


async def test_a_cursor_ahead_of_the_log_whose_proof_is_of_another_log_is_not_moved(
    seen_database: str,
) -> None:
    follower = Follower(seen_database, Seen(), MAPPER)
    await write_orders(seen_database, 10)
    await follower.catch_up()
    await follower.close()
    rows(seen_database, "UPDATE followers SET position = 40, count = 9")

    with pytest.raises(CursorAheadError, match="daybook rebuild seen"):
        await follower.catch_up()
    assert rows(seen_database, "SELECT position, count FROM followers") == [(40, 9)]


async def test_a_new_epoch_begins_where_the_furthest_follower_was(seen_database: str) -> None:
    follower = Follower(seen_database, Seen(), MAPPER)
    await write_orders(seen_database, 10)
    await follower.catch_up()
    await follower.close()
    ((epoch,),) = rows(seen_database, "SELECT epoch FROM followers")
    assert rows(seen_database, "SELECT number, epoch, position FROM log_epochs") == [(1, epoch, 0)]
    # As on a standby that has just been promoted.
    rows(seen_database, "UPDATE log_epochs SET epoch = 'a.1'")
    rows(seen_database, "UPDATE followers SET epoch = 'a.1'")
    await write_orders(seen_database, 5)

    assert await follower.catch_up() == 5
    known = rows(seen_database, "SELECT number, epoch, position FROM log_epochs ORDER BY number")
    assert known == [(1, "a.1", 0), (2, epoch, 10)]
    assert rows(seen_database, "SELECT epoch, position FROM followers") == [(epoch, 15)]
    await follower.close()


def test_the_proof_tells_skipped_repeated_and_swapped_positions_apart() -> None:
    right = FollowerCursor().past([1, 2, 3, 5], upto=5)
    for wrong in ([1, 2, 3], [1, 2, 2, 3, 5], [1, 3, 2, 5], [1, 2, 4, 5]):
        assert FollowerCursor().past(wrong, upto=5) != right
    assert FollowerCursor().past([1, 2], upto=2).past([3, 5], upto=5) == right


# As an open write transaction does.
APPEND_ONE = """
INSERT INTO stored_events (originator_id, originator_version, topic, state,
                           command_id, correlation_id, actor)
VALUES (gen_random_uuid(), 1, 'order.created', '{}', gen_random_uuid(), gen_random_uuid(), 'test')
"""

# Enough rows for the planner to prefer fetching and sorting over reading in index order.
APPEND_MANY = """
INSERT INTO stored_events (originator_id, originator_version, topic, state,
                           command_id, correlation_id, actor)
SELECT gen_random_uuid(), 1, 'order.created', '{}', gen_random_uuid(), gen_random_uuid(), 'test'
FROM generate_series(1, 20000)
"""


def test_a_follower_far_behind_reads_only_one_batch(own_database: str) -> None:
    with psycopg.connect(owner_conninfo(own_database), autocommit=True) as connection:
        connection.execute("ALTER TABLE stored_events SET (autovacuum_enabled = off)")
        connection.execute(APPEND_MANY)
    wanted = {"after": 0, "horizon": 20_000, "limit": 500, "topics": ["order.created"]}
    with psycopg.connect(follower_conninfo(own_database), autocommit=True) as connection:
        plan = connection.execute(f"EXPLAIN {READ_EVENTS_OF_TOPICS}", wanted).fetchall()
    steps = "\n".join(line for (line,) in plan)
    assert "Index Scan using stored_events_notification_id_idx" in steps
    assert "Sort" not in steps


async def test_a_projection_without_payload_gets_no_states(
    seen_database: str,
) -> None:
    applied: list[FollowedEvent] = []

    class Passer(Seen):
        needs_payload = False

        async def apply(
            self, connection: AsyncConnection[TupleRow], events: Sequence[FollowedEvent]
        ) -> None:
            applied.extend(events)
            await super().apply(connection, events)

    await write_orders(seen_database, 3)
    follower = Follower(seen_database, Passer(), MAPPER)
    await follower.catch_up()
    cursor = await follower.cursor()
    assert cursor == await follower.recompute(cursor.position)
    await follower.close()
    logged = rows(seen_database, "SELECT originator_id, topic, state FROM stored_events")
    assert [(one.originator_id, one.topic) for one in applied] == [row[:2] for row in logged]
    assert {one.state for one in applied} == {b""}
    assert all(row[2] for row in logged)
