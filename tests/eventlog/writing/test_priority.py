"""What ends something goes before what begins something, and nobody waits for ever."""

import asyncio
from uuid import UUID

import pytest
from msgspec import Struct
from msgspec.structs import replace
from uuid_utils.compat import uuid7

from daybook.domain.command import AllOrNothing, CommandPriority, Needs, UnitOfWork
from daybook.domain.orders.commands import ClaimOrder, CreateOrder
from daybook.domain.orders.order import Order, OrderKind
from daybook.eventlog.writing.committer import ADDED_WEIGHT_MAX
from tests.support.committer import Kitchen, open_kitchen, origin, rows

pytestmark = pytest.mark.anyio


def create() -> CreateOrder:
    return CreateOrder(order_id=uuid7(), kind=OrderKind.NORMAL)


def claim(bot_id: UUID) -> ClaimOrder:
    return ClaimOrder(bot_id=bot_id, claim_id=uuid7(), seconds=10)


async def test_whoever_ends_something_waits_for_a_short_batch_only(database: str) -> None:
    """Creations came first and there are many; the claim goes before them, and of them only so many
    go with it that the next claim is not kept waiting."""
    async with open_kitchen(database) as kitchen:
        await kitchen.order()
        bot = await kitchen.bot()
        creating = [kitchen.committer.submit(create(), origin()) for _ in range(300)]
        claimed = await kitchen.committer.submit(claim(bot.id), origin())
        done = [one for one in creating if one.done()]
        await asyncio.gather(*creating)

    assert claimed.result.order is not None
    assert 0 < len(done) <= ADDED_WEIGHT_MAX


class Afterwards(Struct, frozen=True):
    """The same command, if nobody waited for it."""

    command: CreateOrder

    @property
    def needs(self) -> Needs:
        return replace(self.command.needs, priority=CommandPriority.LOW)

    def decide(self, work: UnitOfWork) -> Order:
        return self.command.decide(work)


async def test_while_others_wait_little_is_added_to_what_they_wait_for(database: str) -> None:
    # S3-24, D-46: what was accepted for later is carried out when there is room for it.
    async with open_kitchen(database) as kitchen:
        await kitchen.order()
        later = [kitchen.committer.submit(Afterwards(create()), origin()) for _ in range(300)]
        await kitchen.committer.submit(create(), origin())
        done = [one for one in later if one.done()]
        await asyncio.gather(*later)

    assert 0 < len(done) <= ADDED_WEIGHT_MAX


async def test_what_is_large_and_can_wait_is_not_passed_by_for_ever(database: str) -> None:
    async with open_kitchen(database) as kitchen:
        bots = [await kitchen.bot() for _ in range(4)]
        is_over = asyncio.Event()

        async def ask_again_and_again(kitchen: Kitchen, bot_id: UUID) -> None:
            while not is_over.is_set():
                await kitchen.committer.submit(claim(bot_id), origin())

        asking = [asyncio.create_task(ask_again_and_again(kitchen, bot.id)) for bot in bots]
        await asyncio.sleep(0.05)
        large = AllOrNothing([create() for _ in range(600)])
        receipt = await kitchen.committer.submit(large, origin())
        is_over.set()
        await asyncio.gather(*asking, return_exceptions=True)

    assert len(receipt.result) == 600
    assert rows(database, "SELECT count(*) FROM log WHERE topic = 'order.created'") == [(600,)]
