"""Claims, lists, explanations and the past use the urgency of the domain, on random queues."""

import random
from typing import Any

import pytest
from uuid_utils.compat import uuid7

from daybook.domain.jobs.job import urgency as job_urgency
from daybook.domain.orders.commands import ClaimOrder
from daybook.domain.orders.order import Order, OrderKind, urgency
from daybook.eventlog.postgres.connections import connect, reader_conninfo
from daybook.projections.explain.explain import explain
from daybook.projections.explain.reasons import BehindPriority
from daybook.projections.orders.order_list import read_orders
from daybook.projections.time_travel.lists import orders_as_of
from tests.support.committer import Submitter, open_submitter, rows
from tests.support.jobs import new_job, open_workshop

pytestmark = pytest.mark.anyio

COUNT = 30
SEEDS = [1, 2, 3]
AGE_ORDERS = (
    "UPDATE orders SET created_at = created_at - interval '1 hour' WHERE number <= %(last)s"
)


async def _orders(submitter: Submitter, chance: random.Random) -> list[Order]:
    kinds = chance.choices([OrderKind.VIP, OrderKind.NORMAL], weights=[1, 2], k=COUNT)
    return [await submitter.order(kind) for kind in kinds]


def _numbers(orders: list[Order]) -> list[int]:
    return [order.number for order in orders]


async def _ahead(connection: Any, order: Order) -> int:
    explained = await explain(connection, order.id)
    assert explained is not None
    (why,) = [one for one in explained.reasons if isinstance(one, BehindPriority)]
    return why.ahead


@pytest.mark.parametrize("seed", SEEDS)
async def test_orders_are_claimed_listed_and_explained_by_urgency(database: str, seed: int) -> None:
    async with open_submitter(database) as submitter:
        orders = sorted(await _orders(submitter, random.Random(seed)), key=urgency)
        ((head,),) = rows(database, "SELECT max(position) FROM log")
        async with await connect(reader_conninfo(database)) as reader:
            listed = (await read_orders(reader, limit=COUNT)).orders
            past = await orders_as_of(reader, head, limit=COUNT, only=None)
            ahead = [await _ahead(reader, order) for order in orders]
        bots = [await submitter.bot() for _ in orders]
        claimed = [await submitter.claim(bot) for bot in bots]
    assert _numbers(listed) == _numbers(orders)
    assert _numbers([*past]) == _numbers(orders)
    assert ahead == [*range(COUNT)]
    assert _numbers([one for one in claimed if one is not None]) == _numbers(orders)


@pytest.mark.parametrize("seed", SEEDS)
async def test_aged_orders_are_claimed_with_the_vip_orders(database: str, seed: int) -> None:
    chance = random.Random(seed)
    async with open_submitter(database) as submitter:
        orders = await _orders(submitter, chance)
        aged = {order.number for order in orders[: chance.randint(0, COUNT)]}
        rows(database, AGE_ORDERS, {"last": max(aged, default=0)})
        claimed = []
        for _ in orders:
            bot = await submitter.bot()
            claim = ClaimOrder(bot_id=bot.id, claim_id=uuid7(), seconds=10, aging_seconds=1800)
            claimed.append((await submitter.submit(claim)).result.order)
    expected = sorted(orders, key=lambda order: urgency(order, is_aged=order.number in aged))
    assert _numbers(claimed) == _numbers(expected)


@pytest.mark.parametrize("seed", SEEDS)
async def test_jobs_are_claimed_by_urgency(database: str, seed: int) -> None:
    chance = random.Random(seed)
    subjects = [None, "ada", "grace"]
    new = [
        new_job(priority=chance.randint(1, 10), subject=chance.choice(subjects))
        for _ in range(COUNT)
    ]
    async with open_workshop(database) as workshop:
        jobs = [one.job for one in await workshop.enqueue(*new)]
        claimed = [*await workshop.claim(7), *await workshop.claim(COUNT)]
    assert [job.number for job in claimed] == [job.number for job in sorted(jobs, key=job_urgency)]
