"""`finished_orders` equals the fold of the log with any batch size."""

from collections.abc import Iterable
from uuid import UUID

import pytest

from daybook.domain.orders.commands import DeleteOrder, RestoreOrder
from daybook.domain.orders.order import Order, OrderStatus
from daybook.eventlog.postgres.connections import (
    connect,
    connect_in_thread,
    owner_conninfo,
    reader_conninfo,
)
from daybook.eventlog.reading.follower import READ_EVENTS, Follower
from daybook.projections.orders.finished_orders import (
    FINISHED_ORDERS,
    READ_FINISHED_ORDERS,
    FinishedOrders,
)
from daybook.projections.page_cursor import NUMBER_MAX
from tests.support.committer import MAPPER, Submitter, open_submitter, rows

pytestmark = pytest.mark.anyio

READ_LOG = "SELECT originator_id, topic, state FROM stored_events ORDER BY notification_id"


def stored(conninfo: str) -> list[Order]:
    everything = {"before": NUMBER_MAX, "except": [], "limit": 100_000}
    with connect_in_thread(owner_conninfo(conninfo)) as connection:
        found = connection.execute(READ_FINISHED_ORDERS, everything).fetchall()
    return [FINISHED_ORDERS.load(row) for row in found]


def folded(conninfo: str) -> list[Order]:
    """The expected rows, from the log alone."""
    orders: dict[UUID, Order] = {}
    for order_id, topic, state in rows(conninfo, READ_LOG):
        if topic.startswith("order."):
            decider = MAPPER.decider_of(topic)
            orders[order_id] = decider.evolve(orders.get(order_id), MAPPER.decode(topic, state))
    complete = [order for order in orders.values() if order.status is OrderStatus.COMPLETE]
    shown = [order for order in complete if order.deleted_at is None]
    return sorted(shown, key=lambda order: -order.number)


async def follow(conninfo: str, batch_max: int = 2000) -> None:
    follower = Follower(conninfo, FinishedOrders(), MAPPER, batch_max=batch_max)
    await follower.catch_up()
    await follower.close()


async def cook(submitter: Submitter, count: int) -> list[Order]:
    bot = await submitter.bot()
    for _ in range(count):
        await submitter.order()
    done = []
    for _ in range(count):
        order = await submitter.claim(bot)
        assert order is not None
        done.append(await submitter.complete(order))
    return done


async def delete(submitter: Submitter, orders: Iterable[Order]) -> None:
    for order in orders:
        await submitter.submit(DeleteOrder(order_id=order.id))


async def restore(submitter: Submitter, orders: Iterable[Order]) -> None:
    for order in orders:
        await submitter.submit(RestoreOrder(order_id=order.id))


async def test_only_complete_orders_are_listed_and_equal_their_answer(
    database: str,
) -> None:
    async with open_submitter(database) as submitter:
        done = await cook(submitter, 3)
        await submitter.order()
        await delete(submitter, [await submitter.order()])
        await submitter.claim(await submitter.bot())
    await follow(database)

    assert stored(database) == [*reversed(done)]


async def test_a_deleted_order_leaves_the_table_and_a_restored_one_returns(database: str) -> None:
    async with open_submitter(database) as submitter:
        one, two, three = await cook(submitter, 3)
        await follow(database)
        await delete(submitter, [one, two])
        await follow(database)
        assert stored(database) == [three]
        await restore(submitter, [one])
    await follow(database)

    assert stored(database) == folded(database)
    assert [order.id for order in stored(database)] == [three.id, one.id]


@pytest.mark.parametrize("batch_max", [1, 2, 5, 2000])
async def test_a_replay_equals_the_fold_of_the_log_with_any_batch_size(
    database: str, batch_max: int
) -> None:
    async with open_submitter(database) as submitter:
        done = await cook(submitter, 8)
        await delete(submitter, done[2:6])
        await restore(submitter, done[3:5])
        await delete(submitter, done[4:5])
        unfinished = await submitter.order()
        await delete(submitter, [unfinished])
        await restore(submitter, [unfinished])
    await follow(database, batch_max)

    assert stored(database) == folded(database)
    assert [order.number for order in stored(database)] == [8, 7, 4, 2, 1]


async def test_it_never_knows_more_than_the_events_it_was_given(database: str) -> None:
    """A list that reads it together with its cursor would be wrong otherwise."""
    async with open_submitter(database) as submitter:
        (order,) = await cook(submitter, 1)
        await delete(submitter, [order])
    async with await connect(reader_conninfo(database)) as connection:
        everything = {"after": 0, "horizon": 100, "limit": 100}
        found = await (await connection.execute(READ_EVENTS, everything)).fetchall()
        events = MAPPER.followed_events(found)
        completed = [event for event in events if isinstance(event.event, Order.Completed)]
        await FinishedOrders().apply(connection, completed)

    assert stored(database) == [order]
