"""The list of orders: current, every order exactly once, in the order of the board."""

import asyncio
import random
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest
from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from uuid_utils.compat import uuid7

import daybook.projections.orders.order_list
from daybook.domain.orders.commands import (
    AssignOrder,
    ClearOrders,
    DeleteOrder,
    FailOrder,
    RestoreOrder,
)
from daybook.domain.orders.order import Order, OrderKind, OrderStatus
from daybook.eventlog.notifier import Notifier
from daybook.eventlog.postgres.connections import connect, reader_conninfo
from daybook.eventlog.reading.follower import Follower
from daybook.projections.by_id import one_bot, one_order
from daybook.projections.orders.bots import all_bots
from daybook.projections.orders.finished_orders import FinishedOrders
from daybook.projections.orders.order_cursor import OrderCursor
from daybook.projections.orders.order_list import find_complete, read_orders
from daybook.projections.page_cursor import BadCursorError
from daybook.projections.snapshot import ListBehindError
from tests.support.committer import MAPPER, Submitter, open_submitter
from tests.support.rebuilds import follow

pytestmark = pytest.mark.anyio

VIP, NORMAL = OrderKind.VIP, OrderKind.NORMAL
Reader = AsyncConnection[TupleRow]


@asynccontextmanager
async def open_reader(conninfo: str) -> AsyncIterator[Reader]:
    async with await connect(reader_conninfo(conninfo)) as connection:
        yield connection


@asynccontextmanager
async def read_model(conninfo: str) -> AsyncIterator[Follower]:
    follower = Follower(conninfo, FinishedOrders(), MAPPER, batch_max=7)
    try:
        yield follower
    finally:
        await follower.close()


async def give(submitter: Submitter, order: Order) -> Order:
    """Processes this order with a new bot."""
    bot = await submitter.bot()
    command = AssignOrder(order_id=order.id, bot_id=bot.id, claim_id=uuid7(), seconds=10)
    given = (await submitter.submit(command)).result.order
    assert isinstance(given, Order)
    return given


async def cook(submitter: Submitter, order: Order) -> Order:
    return await submitter.complete(await give(submitter, order))


async def bury(submitter: Submitter, order: Order) -> None:
    given = await give(submitter, order)
    assert given.claim is not None
    await submitter.submit(
        FailOrder(order_id=order.id, claim_id=given.claim.id, error="burnt", retryable=False)
    )


async def numbers(reader: Reader, only: OrderStatus | None = None) -> list[int]:
    page = await read_orders(reader, limit=5000, only=only)
    assert page.next_cursor is None
    return [order.number for order in page.orders]


async def all_pages(
    reader: Reader, limit: int, only: OrderStatus | None = None
) -> list[list[Order]]:
    page = await read_orders(reader, limit=limit, only=only)
    pages = [page.orders]
    while page.next_cursor is not None:
        page = await read_orders(reader, limit=limit, only=only, cursor=page.next_cursor)
        pages.append(page.orders)
        assert len(pages) < 1000, "the list does not end"
    return pages


async def fill(submitter: Submitter) -> None:
    """Creates numbers 1 to 12: two or three of every section, VIP and NORMAL, and two deleted."""
    kinds = [NORMAL, VIP] * 6
    orders = [await submitter.order(kind) for kind in kinds]
    for order in orders[0:2]:
        await bury(submitter, order)
    for order in orders[2:5]:
        await cook(submitter, order)
    for order in orders[5:7]:
        await give(submitter, order)
    await submitter.submit(DeleteOrder(order_id=orders[7].id))
    await submitter.submit(DeleteOrder(order_id=orders[4].id))


LISTED = [10, 12, 9, 11, 7, 6, 4, 3, 2, 1]


@pytest.mark.parametrize("is_followed", [False, True])
async def test_vip_before_normal_then_processing_complete_and_dead_newest_first(
    database: str, is_followed: bool
) -> None:  # S0-08, S0-09, S0-10
    async with open_submitter(database) as submitter, read_model(database) as follower:
        await fill(submitter)
        if is_followed:
            await follower.catch_up()
        async with open_reader(database) as reader:
            assert await numbers(reader) == LISTED
            assert await numbers(reader, OrderStatus.PENDING) == [10, 12, 9, 11]
            assert await numbers(reader, OrderStatus.PROCESSING) == [7, 6]
            assert await numbers(reader, OrderStatus.COMPLETE) == [4, 3]
            assert await numbers(reader, OrderStatus.DEAD) == [2, 1]


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 9, 10, 11])
async def test_pages_of_any_size_are_the_list_cut_into_pieces(database: str, limit: int) -> None:
    async with open_submitter(database) as submitter:
        await fill(submitter)
    async with open_reader(database) as reader:
        pages = await all_pages(reader, limit)
        complete = await all_pages(reader, limit, OrderStatus.COMPLETE)

    assert [order.number for page in pages for order in page] == LISTED
    assert all(len(page) == limit for page in pages[:-1])
    assert [order.number for page in complete for order in page] == [4, 3]


async def test_a_listed_order_equals_the_fold_of_its_events(database: str) -> None:
    async with open_submitter(database) as submitter, read_model(database) as follower:
        await fill(submitter)
        async with open_reader(database) as reader:
            from_the_tail = (await read_orders(reader, limit=100)).orders
            await follower.catch_up()
            from_the_read_model = (await read_orders(reader, limit=100)).orders
            by_id = [await one_order(reader, order.id) for order in from_the_tail]

    assert from_the_tail == from_the_read_model == by_id


async def test_a_list_shows_deletions_and_restorations_before_the_read_model_follows(
    database: str,
) -> None:
    async with (
        open_submitter(database) as submitter,
        read_model(database) as follower,
        open_reader(database) as reader,
    ):
        one, two = [await cook(submitter, await submitter.order()) for _ in range(2)]
        await follower.catch_up()
        await submitter.submit(DeleteOrder(order_id=one.id))
        assert await numbers(reader) == [two.number]
        await follower.catch_up()
        assert await numbers(reader) == [two.number]
        await submitter.submit(RestoreOrder(order_id=one.id))
        assert await numbers(reader) == [two.number, one.number]
        await follower.catch_up()
        assert await numbers(reader) == [two.number, one.number]


async def cook_everything(submitter: Submitter, bots_count: int) -> None:
    async def work() -> None:
        bot = await submitter.bot()
        while (order := await submitter.claim(bot)) is not None:
            await submitter.complete(order)
            await asyncio.sleep(0)

    await asyncio.gather(*(work() for _ in range(bots_count)))


async def stopped(_follower: Follower, _notifier: Notifier) -> None:
    await asyncio.sleep(3600)


async def behind(follower: Follower, _notifier: Notifier) -> None:
    """Lags behind: batches of seven events with random pauses."""
    while True:
        await follower.catch_up()
        await asyncio.sleep(random.uniform(0, 0.1))


async def prompt(follower: Follower, notifier: Notifier) -> None:
    await follower.run(notifier)


@pytest.mark.parametrize("following", [stopped, behind, prompt])
async def test_every_order_is_in_every_snapshot_once_while_bots_cook_and_the_read_model_follows(
    database: str, following: Callable[[Follower, Notifier], Any]
) -> None:  # S0-28
    async with (
        Notifier(database) as notifier,
        open_submitter(database, writers=2) as submitter,
        read_model(database) as follower,
        open_reader(database) as reader,
    ):
        made = await asyncio.gather(*(submitter.order() for _ in range(300)))
        every = sorted(order.number for order in made)
        task = asyncio.create_task(following(follower, notifier))
        cooking = asyncio.create_task(cook_everything(submitter, 8))
        snapshots = 0
        while not cooking.done() or snapshots < 20:
            assert sorted(await numbers(reader)) == every
            snapshots += 1
        await cooking
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await follower.catch_up()

        assert await numbers(reader, OrderStatus.COMPLETE) == every[::-1]


async def test_pages_over_changing_orders_show_each_unchanged_one_once(database: str) -> None:
    async with (
        open_submitter(database) as submitter,
        read_model(database) as follower,
        open_reader(database) as reader,
    ):
        done = [await cook(submitter, await submitter.order()) for _ in range(20)]
        waiting = [await submitter.order(random.choice([VIP, NORMAL])) for _ in range(40)]
        changing, unchanged = waiting[:20], waiting[20:]

        async def change() -> None:
            for order in changing:
                await cook(submitter, order)
                await submitter.order(VIP)
                await follower.catch_up()

        task = asyncio.create_task(change())
        while not task.done():
            pages = await all_pages(reader, 7)
            seen = [order.id for page in pages for order in page]
            for order in (*done, *unchanged):
                assert seen.count(order.id) == 1
        await task


def forged(text: bytes) -> str:
    return urlsafe_b64encode(text + b"123456").decode()


GOOD = OrderCursor(None, OrderStatus.PENDING, 1, 5).cursor()


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "é",
        "=" * 8,
        GOOD[:-4],
        GOOD + "AAAA",
        GOOD[:-1] + ("A" if GOOD[-1] != "A" else "B"),
        GOOD + "\n",
        forged(b'[null,"PENDING",1,5]'),
        forged(b"{}"),
        forged(b"\xff\xff"),
        "A" * 100_000,
        OrderCursor(OrderStatus.DEAD, OrderStatus.DEAD, 0, 5).cursor(),
    ],
)
async def test_a_cursor_that_this_list_did_not_give_out_is_refused(
    database: str, cursor: str
) -> None:
    async with open_reader(database) as reader:
        with pytest.raises(BadCursorError):
            await read_orders(reader, limit=10, cursor=cursor)


async def test_a_cursor_serves_the_list_of_its_own_status_only(database: str) -> None:
    async with open_submitter(database) as submitter:
        await fill(submitter)
    async with open_reader(database) as reader:
        page = await read_orders(reader, limit=1, only=OrderStatus.DEAD)
        for other in (None, OrderStatus.COMPLETE):
            with pytest.raises(BadCursorError):
                await read_orders(reader, limit=1, only=other, cursor=page.next_cursor)


async def test_a_list_is_refused_when_the_read_model_is_too_far_behind(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daybook.projections.orders.order_list, "TAIL_MAX", 2)
    async with open_submitter(database) as submitter, read_model(database) as follower:
        for _ in range(3):
            await cook(submitter, await submitter.order())
        await submitter.order()
        async with open_reader(database) as reader:
            with pytest.raises(ListBehindError):
                await numbers(reader)
            assert await numbers(reader, OrderStatus.PENDING) == [4]
            await follower.catch_up()
            assert await numbers(reader) == [4, 3, 2, 1]


async def test_cleared_orders_are_in_no_list(database: str) -> None:  # S0-62, D-09
    async with open_submitter(database) as submitter, open_reader(database) as reader:
        await fill(submitter)
        await submitter.submit(ClearOrders())
        assert await numbers(reader) == [4, 3]
        for is_followed in (False, True):
            order = await cook(submitter, await submitter.order())
            if is_followed:
                await follow(database)
            complete = await find_complete(reader)
            assert order.id in complete
            await submitter.submit(ClearOrders(complete=complete))
            assert await numbers(reader) == []


async def test_an_order_is_found_by_id_in_every_status(database: str) -> None:  # S0-01
    async with open_submitter(database) as submitter, open_reader(database) as reader:
        pending = await submitter.order()
        complete = await cook(submitter, await submitter.order())
        deleted = (await submitter.submit(DeleteOrder(order_id=complete.id))).result
        bot = await submitter.bot()

        assert await one_order(reader, pending.id) == pending
        assert await one_order(reader, deleted.id) == deleted
        assert deleted.deleted_at is not None
        assert await one_order(reader, uuid7()) is None
        assert await one_order(reader, bot.id) is None
        assert await one_bot(reader, pending.id) is None
        assert await one_bot(reader, bot.id) == bot


async def test_bots_are_listed_newest_first(database: str) -> None:  # S0-04, S0-63
    async with open_submitter(database) as submitter, open_reader(database) as reader:
        made: list[UUID] = [(await submitter.bot()).id for _ in range(5)]
        assert [bot.id for bot in await all_bots(reader)] == made[::-1]
