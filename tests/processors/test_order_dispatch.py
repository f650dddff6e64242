"""Idle bots with auto-claim get pending orders at once."""

import asyncio
from collections.abc import Iterable
from statistics import quantiles
from typing import Any
from uuid import UUID

import pytest

from daybook.domain.command import Command
from daybook.domain.orders.commands import DeleteBot
from daybook.domain.orders.order import OrderKind
from daybook.eventlog.origin import Origin
from daybook.processors.order_dispatch import OrderDispatch
from daybook.processors.processor import Runtime, Session
from tests.support.committer import Submitter, eventually, rows
from tests.support.running.service import (
    assert_consistent,
    auto_bot,
    busy_bots,
    completed,
    events,
    running,
)

pytestmark = pytest.mark.anyio

READ_WAITS = """
SELECT extract(epoch FROM claimed.recorded_at - created.recorded_at)::float8
FROM log AS created JOIN log AS claimed USING (aggregate_id)
WHERE created.topic = 'order.created' AND claimed.topic = 'order.claimed'
"""


def taken(conninfo: str) -> list[UUID]:
    """Orders in the order in which they were claimed."""
    return [event[0] for event in events(conninfo, "order.claimed")]


@pytest.mark.alone
async def test_an_idle_bot_takes_a_new_order_within_100_ms(database: str) -> None:
    # S0-O2
    async with running(database) as submitter:
        for _ in range(50):
            await auto_bot(submitter)
        for _ in range(50):
            await submitter.order()
            await asyncio.sleep(0.03)
        await eventually(lambda: len(taken(database)) == 50)

    waits = [seconds for (seconds,) in rows(database, READ_WAITS)]
    assert quantiles(waits, n=20)[-1] < 0.1
    assert {event[2] for event in events(database, "order.claimed")} == {"system:dispatch"}
    assert_consistent(database)


async def test_a_new_bot_takes_a_pending_order_at_once_and_the_most_urgent_one(
    database: str,
) -> None:
    # S0-O1, S0-O2
    async with running(database) as submitter:
        normal = await submitter.order()
        first_vip = await submitter.order(OrderKind.VIP)
        second_vip = await submitter.order(OrderKind.VIP)
        for count in (1, 2, 3):
            bot = await auto_bot(submitter)
            await eventually(lambda count=count: len(taken(database)) == count)

    assert taken(database) == [first_vip.id, second_vip.id, normal.id]
    ((waited,),) = rows(
        database,
        "SELECT extract(epoch FROM updated_at - created_at)::float8 FROM bots WHERE id = %(id)s",
        {"id": bot.id},
    )
    assert waited < 0.1


async def test_a_few_bots_work_through_all_orders_one_at_a_time(database: str) -> None:
    # S0-O4
    async with running(database, delay_seconds=0.05) as submitter:
        orders = [await submitter.order() for _ in range(15)]
        for _ in range(3):
            await auto_bot(submitter)
        await eventually(lambda: len(completed(database)) == 15)

    assert taken(database) == [order.id for order in orders]
    assert most_at_once(database) == 3
    assert busy_bots(database) == 0


def most_at_once(conninfo: str) -> int:
    at_once = most = 0
    for event in events(conninfo, "order.claimed", "order.completed"):
        at_once += 1 if event[1] == "order.claimed" else -1
        most = max(most, at_once)
    return most


async def test_a_deleted_bots_order_goes_to_the_next_with_its_old_number(database: str) -> None:
    # S0-O3
    async with running(database) as submitter:
        order = await submitter.order()
        await submitter.order()
        first = await auto_bot(submitter)
        await eventually(lambda: taken(database) == [order.id])
        await submitter.submit(DeleteBot(bot_id=first.id))
        await auto_bot(submitter)
        await eventually(lambda: taken(database) == [order.id, order.id])


async def test_a_bot_that_asks_for_itself_is_not_given_an_order(database: str) -> None:
    async with running(database) as submitter:
        await submitter.bot()
        await submitter.order()
        await asyncio.sleep(0.3)

    assert taken(database) == []


@pytest.mark.parametrize(("orders_count", "bots_count"), [(5, 20), (20, 5)])
async def test_leftover_orders_or_bots_cause_no_further_claims(
    database: str, monkeypatch: pytest.MonkeyPatch, orders_count: int, bots_count: int
) -> None:
    asked: list[Command[Any]] = []

    async def count(_runtime: Runtime, commands: Iterable[tuple[Command[Any], Origin]]) -> bool:
        asked.extend(command for command, _ in commands)
        return True

    dispatch = Counting()
    async with running(database, processors=[dispatch]) as submitter:
        await fill(submitter, orders_count, bots_count)
        await eventually(lambda: len(taken(database)) == min(orders_count, bots_count))
        await asyncio.sleep(0.3)
        monkeypatch.setattr(Runtime, "send", count)
        before = dispatch.looks_count
        await asyncio.sleep(1.2)

    assert asked == []
    assert 1 <= dispatch.looks_count - before <= 2


class Counting(OrderDispatch):
    def __init__(self) -> None:
        self.looks_count = 0

    async def work(self, runtime: Runtime, session: Session) -> float:
        self.looks_count += 1
        return await super().work(runtime, session)


async def fill(submitter: Submitter, orders_count: int, bots_count: int) -> None:
    for _ in range(orders_count):
        await submitter.order()
    for _ in range(bots_count):
        await auto_bot(submitter)


async def test_two_services_share_the_work_and_double_nothing(database: str) -> None:
    # S0-27, S0-83
    async with (
        running(database, delay_seconds=0.1) as one,
        running(database, delay_seconds=0.1) as other,
    ):
        for submitter in (one, other) * 5:
            await auto_bot(submitter)
        await asyncio.gather(*(submitter.order() for submitter in (one, other) * 50))
        await eventually(lambda: len(completed(database)) == 100)

    assert len(taken(database)) == len(set(taken(database))) == 100
    assert len(set(completed(database))) == 100
    assert busy_bots(database) == 0
    assert_consistent(database)
