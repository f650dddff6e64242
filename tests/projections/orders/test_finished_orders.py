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
from tests.support.committer import MAPPER, Kitchen, open_kitchen, rows

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


async def cook(kitchen: Kitchen, count: int) -> list[Order]:
    bot = await kitchen.bot()
    for _ in range(count):
        await kitchen.order()
    done = []
    for _ in range(count):
        order = await kitchen.claim(bot)
        assert order is not None
        done.append(await kitchen.complete(order))
    return done


async def delete(kitchen: Kitchen, orders: Iterable[Order]) -> None:
    for order in orders:
        await kitchen.submit(DeleteOrder(order_id=order.id))


async def restore(kitchen: Kitchen, orders: Iterable[Order]) -> None:
    for order in orders:
        await kitchen.submit(RestoreOrder(order_id=order.id))


async def test_only_complete_orders_are_listed_and_equal_their_answer(
    database: str,
) -> None:
    async with open_kitchen(database) as kitchen:
        done = await cook(kitchen, 3)
        await kitchen.order()
        await delete(kitchen, [await kitchen.order()])
        await kitchen.claim(await kitchen.bot())
    await follow(database)

    assert stored(database) == [*reversed(done)]


async def test_a_deleted_order_leaves_the_table_and_a_restored_one_returns(database: str) -> None:
    async with open_kitchen(database) as kitchen:
        one, two, three = await cook(kitchen, 3)
        await follow(database)
        await delete(kitchen, [one, two])
        await follow(database)
        assert stored(database) == [three]
        await restore(kitchen, [one])
    await follow(database)

    assert stored(database) == folded(database)
    assert [order.id for order in stored(database)] == [three.id, one.id]


@pytest.mark.parametrize("batch_max", [1, 2, 5, 2000])
async def test_a_replay_equals_the_fold_of_the_log_with_any_batch_size(
    database: str, batch_max: int
) -> None:
    async with open_kitchen(database) as kitchen:
        done = await cook(kitchen, 8)
        await delete(kitchen, done[2:6])
        await restore(kitchen, done[3:5])
        await delete(kitchen, done[4:5])
        unfinished = await kitchen.order()
        await delete(kitchen, [unfinished])
        await restore(kitchen, [unfinished])
    await follow(database, batch_max)

    assert stored(database) == folded(database)
    assert [order.number for order in stored(database)] == [8, 7, 4, 2, 1]


async def test_it_never_knows_more_than_the_events_it_was_given(database: str) -> None:
    """A list that reads it together with its cursor would be wrong otherwise."""
    async with open_kitchen(database) as kitchen:
        (order,) = await cook(kitchen, 1)
        await delete(kitchen, [order])
    async with await connect(reader_conninfo(database)) as connection:
        everything = {"after": 0, "horizon": 100, "limit": 100}
        found = await (await connection.execute(READ_EVENTS, everything)).fetchall()
        events = MAPPER.followed_events(found)
        completed = [event for event in events if isinstance(event.event, Order.Completed)]
        await FinishedOrders().apply(connection, completed)

    assert stored(database) == [order]
