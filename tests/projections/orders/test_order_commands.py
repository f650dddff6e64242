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
from tests.support.committer import Submitter, fold_of_the_log, live_rows, open_submitter, rows

pytestmark = pytest.mark.anyio


async def test_an_operator_need_not_know_which_bot_has_the_order(database: str) -> None:  # S0-59
    async with open_submitter(database) as submitter:
        bot, order = await submitter.bot(), await submitter.order()
        await submitter.claim(bot)
        await submitter.submit(CompleteOrder(order_id=order.id, via=CompletedVia.REPORT))
        second = await submitter.order()
        await submitter.claim(bot)
        await submitter.submit(ReleaseOrder(order_id=second.id))

    live = live_rows(database)
    assert live == fold_of_the_log(database)
    assert set(live) == {bot.id, second.id}


async def test_the_order_of_a_deleted_bot_keeps_its_position(database: str) -> None:  # S0-O3
    async with open_submitter(database) as submitter:
        first = await submitter.order()
        await submitter.order()
        bot = await submitter.bot()
        await submitter.claim(bot)
        await submitter.submit(DeleteBot(bot_id=bot.id))
        claimed = await submitter.claim(await submitter.bot())

    assert claimed is not None
    assert claimed.id == first.id
    assert live_rows(database) == fold_of_the_log(database)


async def test_a_finished_order_is_restored_from_the_log(database: str) -> None:  # S0-42
    async with open_submitter(database) as submitter:
        order = await submitter.order(OrderKind.VIP)
        await submitter.submit(DeleteOrder(order_id=order.id))
        assert order.id not in live_rows(database)
        restored = (await submitter.submit(RestoreOrder(order_id=order.id))).result
        claimed = await submitter.claim(await submitter.bot())

    assert restored.number == order.number
    assert claimed is not None
    assert claimed.id == order.id


async def test_clearing_deletes_all_open_orders_and_frees_all_bots(database: str) -> None:  # S0-62
    async with open_submitter(database) as submitter:
        bots = [await submitter.bot() for _ in range(3)]
        for _ in range(10):
            await submitter.order()
        for bot in bots:
            await submitter.claim(bot)
        cleared = (await submitter.submit(ClearOrders())).result
        following = await submitter.order()

    assert (cleared.open_count, cleared.complete_count) == (10, 0)
    assert following.number == 11
    live = live_rows(database)
    assert live == fold_of_the_log(database)
    assert {state.id for state in live.values()} == {following.id, *(bot.id for bot in bots)}
    assert all(not isinstance(s, Bot) or s.order_id is None for s in live.values())


async def test_an_order_that_waited_long_enough_is_taken_before_a_vip(database: str) -> None:
    async with open_submitter(database) as submitter:
        bot = await submitter.bot()
        patient = await submitter.order(OrderKind.NORMAL)
        await asyncio.sleep(0.2)
        vip = await submitter.order(OrderKind.VIP)
        late = await submitter.order(OrderKind.NORMAL)
        taken = []
        for _ in range(3):
            claim = ClaimOrder(bot_id=bot.id, claim_id=uuid7(), seconds=10, aging_seconds=0.15)
            order = (await submitter.submit(claim)).result.order
            taken.append(order.id)
            await submitter.complete(order)

    assert taken == [patient.id, vip.id, late.id]
    aged = rows(
        database, "SELECT data ->> 'aged' FROM log WHERE topic = 'order.claimed' ORDER BY position"
    )
    assert aged == [("true",), ("false",), ("false",)]


async def test_an_order_that_waited_long_enough_does_not_overtake_an_older_vip(
    database: str,
) -> None:
    async with open_submitter(database) as submitter:
        bot = await submitter.bot()
        orders = [await submitter.order(kind) for kind in (OrderKind.VIP, OrderKind.NORMAL)]
        await asyncio.sleep(0.2)
        taken = []
        for _ in orders:
            claim = ClaimOrder(bot_id=bot.id, claim_id=uuid7(), seconds=10, aging_seconds=0.15)
            order = (await submitter.submit(claim)).result.order
            taken.append(order.id)
            await submitter.complete(order)
    assert taken == [order.id for order in orders]


async def test_a_claim_of_aged_orders_does_not_read_the_others(
    own_database: str,
) -> None:
    async with open_submitter(own_database) as submitter:
        for _ in range(100):
            await submitter.order(OrderKind.NORMAL)
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
    async with open_submitter(database) as submitter:
        first, second = await submitter.order(), await submitter.order()
        bot = await submitter.bot()
        with psycopg.connect(owner_conninfo(database)) as other:
            other.execute("SELECT FROM orders WHERE id = %s FOR UPDATE", [first.id])
            async with asyncio.timeout(1.5):
                claimed = await submitter.claim(bot)
            assert claimed is not None
            assert claimed.id == second.id


async def test_deleting_a_bot_releases_an_order_it_claimed_concurrently(
    database: str,
) -> None:
    """DeleteBot finds the bot's order before it locks the bot: a claim may come in between."""
    async with open_submitter(database, writers=4) as submitter:
        for _ in range(60):
            bot = await submitter.bot()
            order = await submitter.order()
            await asyncio.gather(
                submitter.submit(
                    AssignOrder(order_id=order.id, bot_id=bot.id, claim_id=uuid7(), seconds=10)
                ),
                submitter.submit(DeleteBot(bot_id=bot.id)),
                return_exceptions=True,
            )
        await submitter.submit(ClearOrders())

    live = live_rows(database)
    assert live == fold_of_the_log(database)
    assert not live


async def test_the_database_itself_refuses_a_second_order_for_one_bot(database: str) -> None:
    # S0-02: a unique index, independent of the code
    async with open_submitter(database) as submitter:
        bot = await submitter.bot()
        await submitter.order()
        await submitter.order()
        await submitter.claim(bot)
    steal = "UPDATE orders SET status = 'PROCESSING', bot_id = %(bot)s WHERE bot_id IS NULL"
    with (
        psycopg.connect(owner_conninfo(database)) as connection,
        pytest.raises(errors.UniqueViolation),
    ):
        connection.execute(steal.encode(), {"bot": bot.id})


async def test_concurrent_creates_never_share_a_number(database: str) -> None:  # S0-03, S0-05
    async with open_submitter(database, writers=4) as one, open_submitter(database) as other:
        orders = await asyncio.gather(*(k.order() for k in [one, other] * 200))
        following = await other.order()

    numbers = [order.number for order in orders]
    assert len(set(numbers)) == len(numbers)
    assert sorted(numbers) == list(range(1, 401))
    assert following.number == 401


class Chef:
    """Submits random commands, many of them invalid, through several writers."""

    def __init__(self, submitter: Submitter, seed: int) -> None:
        self.submitter = submitter
        self.chance = random.Random(seed)
        self.orders: list[Order] = []
        self.bots: list[Bot] = []

    async def step(self) -> None:
        if not self.bots or self.chance.random() < 0.1:
            self.bots.append(await self.submitter.bot())
        elif not self.orders or self.chance.random() < 0.3:
            self.orders.append(await self.submitter.order(self.chance.choice(list(OrderKind))))
        else:
            await self.submitter.submit(self._command())

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
    async with open_submitter(database, writers=3) as submitter:
        chef = Chef(submitter, seed=11)
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
        submitters = [
            await stack.enter_async_context(open_submitter(database, writers=4 // committers_count))
            for _ in range(committers_count)
        ]
        await fill(submitters[0], orders_count)
        bots = await asyncio.gather(*(submitters[0].bot() for _ in range(BOTS_COUNT)))
        await asyncio.gather(*map(cook_all, cycle(submitters), bots))

    claims = [(kind != "VIP", number) for kind, number in rows(database, READ_CLAIMS)]
    assert len(claims) == len(set(claims)) == orders_count
    assert max(passed_over(claims)) < BOTS_COUNT
    assert rows(database, COUNT_DEADLOCKS) == deadlocks


async def fill(submitter: Submitter, orders_count: int) -> None:
    kinds = islice(cycle([OrderKind.NORMAL, OrderKind.NORMAL, OrderKind.VIP]), orders_count)
    await asyncio.gather(*(submitter.order(kind) for kind in kinds))


async def cook_all(submitter: Submitter, bot: Bot) -> None:
    while order := await submitter.claim(bot):
        await submitter.complete(order)


def passed_over(claims: Sequence[tuple[bool, int]]) -> Iterator[int]:
    """Returns, for every claim, the number of more urgent orders it left to concurrent claims."""
    waiting = sorted(claims)
    for claim in claims:
        index = bisect_left(waiting, claim)
        del waiting[index]
        yield index


async def test_a_complete_order_stays_complete(database: str) -> None:
    async with open_submitter(database) as submitter:
        await submitter.order()
        order = await submitter.claim(await submitter.bot())
        assert order is not None
        await submitter.complete(order)
        with pytest.raises(OrderNotPendingError):
            await submitter.submit(
                AssignOrder(
                    order_id=order.id,
                    bot_id=(await submitter.bot()).id,
                    claim_id=uuid7(),
                    seconds=10,
                )
            )

    folded = rows(database, "SELECT count(*) FROM log WHERE topic = 'order.completed'")
    assert folded == [(1,)]
    assert OrderStatus.COMPLETE not in {
        s.status for s in live_rows(database).values() if isinstance(s, Order)
    }
