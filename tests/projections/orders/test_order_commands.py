"""Commands on orders and bots in the database: the rows they lock, pick and write."""

import asyncio
import random
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from itertools import cycle, islice
from typing import Any

import psycopg
import pytest
from psycopg import errors
from uuid_utils.compat import uuid7

from daybook.domain.errors import OrderNotPendingError
from daybook.domain.orders.bot import Bot
from daybook.domain.orders.claim import CompletedVia
from daybook.domain.orders.commands import (
    AssignOrder,
    ClaimOrder,
    ClearOrders,
    CompleteOrder,
    DeleteBot,
    DeleteOrder,
    FailOrder,
    ReleaseBot,
    ReleaseOrder,
    RequeueOrder,
    RestoreOrder,
)
from daybook.domain.orders.order import Order, OrderKind, OrderStatus
from daybook.eventlog.postgres.connections import owner_conninfo, writer_conninfo
from daybook.projections.orders.orders import CLAIM_AGED_ORDERS
from tests.projections.test_plans import _nodes
from tests.support.committer import Kitchen, fold_of_the_log, live_rows, open_kitchen, rows

pytestmark = pytest.mark.anyio


async def test_an_operator_need_not_know_which_bot_has_the_order(database: str) -> None:  # S0-59
    async with open_kitchen(database) as kitchen:
        bot, order = await kitchen.bot(), await kitchen.order()
        await kitchen.claim(bot)
        await kitchen.submit(CompleteOrder(order_id=order.id, via=CompletedVia.REPORT))
        second = await kitchen.order()
        await kitchen.claim(bot)
        await kitchen.submit(ReleaseOrder(order_id=second.id))

    live = live_rows(database)
    assert live == fold_of_the_log(database)
    assert set(live) == {bot.id, second.id}


async def test_a_deleted_bot_leaves_its_order_at_its_old_place(database: str) -> None:  # S0-O3
    async with open_kitchen(database) as kitchen:
        first = await kitchen.order()
        await kitchen.order()
        bot = await kitchen.bot()
        await kitchen.claim(bot)
        await kitchen.submit(DeleteBot(bot_id=bot.id))
        claimed = await kitchen.claim(await kitchen.bot())

    assert claimed is not None
    assert claimed.id == first.id
    assert live_rows(database) == fold_of_the_log(database)


async def test_a_finished_order_is_restored_from_the_log(database: str) -> None:  # S0-42
    async with open_kitchen(database) as kitchen:
        order = await kitchen.order(OrderKind.VIP)
        await kitchen.submit(DeleteOrder(order_id=order.id))
        assert order.id not in live_rows(database)
        restored = (await kitchen.submit(RestoreOrder(order_id=order.id))).result
        claimed = await kitchen.claim(await kitchen.bot())

    assert restored.number == order.number
    assert claimed is not None
    assert claimed.id == order.id


async def test_clearing_deletes_all_open_orders_and_frees_all_bots(database: str) -> None:  # S0-62
    async with open_kitchen(database) as kitchen:
        bots = [await kitchen.bot() for _ in range(3)]
        for _ in range(10):
            await kitchen.order()
        for bot in bots:
            await kitchen.claim(bot)
        cleared = (await kitchen.submit(ClearOrders())).result
        following = await kitchen.order()

    assert (cleared.open_count, cleared.complete_count) == (10, 0)
    assert following.number == 11
    live = live_rows(database)
    assert live == fold_of_the_log(database)
    assert {state.id for state in live.values()} == {following.id, *(bot.id for bot in bots)}
    assert all(not isinstance(s, Bot) or s.order_id is None for s in live.values())


async def test_an_order_that_waited_long_enough_is_taken_before_a_vip(database: str) -> None:
    async with open_kitchen(database) as kitchen:
        bot = await kitchen.bot()
        patient = await kitchen.order(OrderKind.NORMAL)
        await asyncio.sleep(0.2)
        vip = await kitchen.order(OrderKind.VIP)
        late = await kitchen.order(OrderKind.NORMAL)
        taken = []
        for _ in range(3):
            claim = ClaimOrder(bot_id=bot.id, claim_id=uuid7(), seconds=10, aging_seconds=0.15)
            order = (await kitchen.submit(claim)).result.order
            taken.append(order.id)
            await kitchen.complete(order)

    assert taken == [patient.id, vip.id, late.id]
    aged = rows(
        database, "SELECT data ->> 'aged' FROM log WHERE topic = 'order.claimed' ORDER BY position"
    )
    assert aged == [("true",), ("false",), ("false",)]


async def test_an_order_that_waited_long_enough_does_not_overtake_an_older_vip(
    database: str,
) -> None:
    async with open_kitchen(database) as kitchen:
        bot = await kitchen.bot()
        orders = [await kitchen.order(kind) for kind in (OrderKind.VIP, OrderKind.NORMAL)]
        await asyncio.sleep(0.2)
        taken = []
        for _ in orders:
            claim = ClaimOrder(bot_id=bot.id, claim_id=uuid7(), seconds=10, aging_seconds=0.15)
            order = (await kitchen.submit(claim)).result.order
            taken.append(order.id)
            await kitchen.complete(order)
    assert taken == [order.id for order in orders]


async def test_a_claim_of_aged_orders_does_not_read_the_others(
    own_database: str,
) -> None:
    async with open_kitchen(own_database) as kitchen:
        for _ in range(100):
            await kitchen.order(OrderKind.NORMAL)
    with psycopg.connect(writer_conninfo(own_database)) as writer:
        explained = writer.execute(
            f"EXPLAIN (ANALYZE, FORMAT JSON) {CLAIM_AGED_ORDERS}".encode(),
            {"limit": 2, "aging_ms": 3_600_000},
        )
        ((plans,),) = explained.fetchall()
    read = [
        node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
        for node in _nodes(plans[0]["Plan"])
        if node.get("Relation Name") == "orders"
    ]
    assert read == [2]


async def test_a_claim_skips_an_order_that_another_transaction_has_locked(
    database: str,
) -> None:
    async with open_kitchen(database) as kitchen:
        first, second = await kitchen.order(), await kitchen.order()
        bot = await kitchen.bot()
        with psycopg.connect(owner_conninfo(database)) as other:
            other.execute("SELECT FROM orders WHERE id = %s FOR UPDATE", [first.id])
            async with asyncio.timeout(1.5):
                claimed = await kitchen.claim(bot)
            assert claimed is not None
            assert claimed.id == second.id


async def test_deleting_a_bot_releases_an_order_it_claimed_concurrently(
    database: str,
) -> None:
    """DeleteBot finds the bot's order before it locks the bot: a claim may come in between."""
    async with open_kitchen(database, lanes=4) as kitchen:
        for _ in range(60):
            bot = await kitchen.bot()
            order = await kitchen.order()
            await asyncio.gather(
                kitchen.submit(
                    AssignOrder(order_id=order.id, bot_id=bot.id, claim_id=uuid7(), seconds=10)
                ),
                kitchen.submit(DeleteBot(bot_id=bot.id)),
                return_exceptions=True,
            )
        await kitchen.submit(ClearOrders())

    live = live_rows(database)
    assert live == fold_of_the_log(database)
    assert not live


async def test_the_database_itself_refuses_a_second_order_for_one_bot(database: str) -> None:
    # S0-02: a unique index, independent of the code
    async with open_kitchen(database) as kitchen:
        bot = await kitchen.bot()
        await kitchen.order()
        await kitchen.order()
        await kitchen.claim(bot)
    steal = "UPDATE orders SET status = 'PROCESSING', bot_id = %(bot)s WHERE bot_id IS NULL"
    with (
        psycopg.connect(owner_conninfo(database)) as connection,
        pytest.raises(errors.UniqueViolation),
    ):
        connection.execute(steal.encode(), {"bot": bot.id})


async def test_concurrent_creates_never_share_a_number(database: str) -> None:  # S0-03, S0-05
    async with open_kitchen(database, lanes=4) as one, open_kitchen(database) as other:
        orders = await asyncio.gather(*(k.order() for k in [one, other] * 200))
        following = await other.order()

    numbers = [order.number for order in orders]
    assert len(set(numbers)) == len(numbers)
    assert sorted(numbers) == list(range(1, 401))
    assert following.number == 401


class Chef:
    """Submits random commands, many of them invalid, through several writers."""

    def __init__(self, kitchen: Kitchen, seed: int) -> None:
        self.kitchen = kitchen
        self.chance = random.Random(seed)
        self.orders: list[Order] = []
        self.bots: list[Bot] = []

    async def step(self) -> None:
        if not self.bots or self.chance.random() < 0.1:
            self.bots.append(await self.kitchen.bot())
        elif not self.orders or self.chance.random() < 0.3:
            self.orders.append(await self.kitchen.order(self.chance.choice(list(OrderKind))))
        else:
            await self.kitchen.submit(self._command())

    def _command(self) -> Any:
        order, bot = self.chance.choice(self.orders), self.chance.choice(self.bots)
        claim = ClaimOrder(bot_id=bot.id, claim_id=uuid7(), seconds=10)
        return self.chance.choice(
            [
                claim,
                claim,
                AssignOrder(order_id=order.id, bot_id=bot.id, claim_id=uuid7(), seconds=10),
                CompleteOrder(order_id=order.id, via=CompletedVia.REPORT),
                FailOrder(order_id=order.id, claim_id=uuid7(), error="burnt", retryable=True),
                ReleaseOrder(order_id=order.id),
                ReleaseBot(bot_id=bot.id),
                DeleteBot(bot_id=bot.id),
                DeleteOrder(order_id=order.id),
                RestoreOrder(order_id=order.id),
                RequeueOrder(order_id=order.id),
            ]
        )


async def test_live_tables_equal_the_fold_of_the_log_after_random_commands(
    database: str,
) -> None:
    async with open_kitchen(database, lanes=3) as kitchen:
        chef = Chef(kitchen, seed=11)
        for _ in range(25):
            await asyncio.gather(*(chef.step() for _ in range(20)), return_exceptions=True)
            assert live_rows(database) == fold_of_the_log(database)

    topics = {topic for (topic,) in rows(database, "SELECT DISTINCT topic FROM log")}
    assert {"order.released", "order.deleted", "order.restored", "bot.deleted"} <= topics


READ_CLAIMS = """
SELECT created.data ->> 'kind', (created.data ->> 'number')::bigint
FROM log AS claimed
JOIN log AS created ON created.aggregate_id = claimed.aggregate_id
                   AND created.topic = 'order.created'
WHERE claimed.topic = 'order.claimed'
ORDER BY claimed.position
"""
COUNT_DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
BOTS_COUNT = 64


@pytest.mark.parametrize(
    ("orders_count", "committers_count"),
    [(600, 1), pytest.param(10_000, 4, marks=pytest.mark.slow)],
)
async def test_concurrent_claims_keep_urgency_except_among_themselves(
    database: str, orders_count: int, committers_count: int
) -> None:
    # S0-10, S0-69: 64 bots at once, each order once, no deadlock
    deadlocks = rows(database, COUNT_DEADLOCKS)
    async with AsyncExitStack() as stack:
        kitchens = [
            await stack.enter_async_context(open_kitchen(database, lanes=4 // committers_count))
            for _ in range(committers_count)
        ]
        await fill(kitchens[0], orders_count)
        bots = await asyncio.gather(*(kitchens[0].bot() for _ in range(BOTS_COUNT)))
        await asyncio.gather(*map(cook_all, cycle(kitchens), bots))

    claims = [(kind != "VIP", number) for kind, number in rows(database, READ_CLAIMS)]
    assert len(claims) == len(set(claims)) == orders_count
    assert max(passed_over(claims)) < BOTS_COUNT
    assert rows(database, COUNT_DEADLOCKS) == deadlocks


async def fill(kitchen: Kitchen, orders_count: int) -> None:
    kinds = islice(cycle([OrderKind.NORMAL, OrderKind.NORMAL, OrderKind.VIP]), orders_count)
    await asyncio.gather(*(kitchen.order(kind) for kind in kinds))


async def cook_all(kitchen: Kitchen, bot: Bot) -> None:
    while order := await kitchen.claim(bot):
        await kitchen.complete(order)


def passed_over(claims: Sequence[tuple[bool, int]]) -> Iterator[int]:
    """Returns, for every claim, the number of more urgent orders it left to concurrent claims."""
    waiting = sorted(claims)
    for claim in claims:
        place = bisect_left(waiting, claim)
        del waiting[place]
        yield place


async def test_a_complete_order_stays_complete(database: str) -> None:
    async with open_kitchen(database) as kitchen:
        await kitchen.order()
        order = await kitchen.claim(await kitchen.bot())
        assert order is not None
        await kitchen.complete(order)
        with pytest.raises(OrderNotPendingError):
            await kitchen.submit(
                AssignOrder(
                    order_id=order.id,
                    bot_id=(await kitchen.bot()).id,
                    claim_id=uuid7(),
                    seconds=10,
                )
            )

    folded = rows(database, "SELECT count(*) FROM log WHERE topic = 'order.completed'")
    assert folded == [(1,)]
    assert OrderStatus.COMPLETE not in {
        s.status for s in live_rows(database).values() if isinstance(s, Order)
    }
