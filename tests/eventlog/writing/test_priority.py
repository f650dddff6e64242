"""Commands run by priority, and none starves."""

import asyncio
from typing import ClassVar
from uuid import UUID

import pytest
from msgspec import Struct
from uuid_utils.compat import uuid7

from daybook.domain.command import AllOrNothing, CommandPriority, Needs, UnitOfWork
from daybook.domain.orders.commands import ClaimOrder, CreateOrder
from daybook.domain.orders.order import Order, OrderKind
from daybook.eventlog.writing.committer import ADDED_WEIGHT_MAX
from tests.support.committer import Submitter, open_submitter, origin, rows

pytestmark = pytest.mark.anyio


def create() -> CreateOrder:
    return CreateOrder(order_id=uuid7(), kind=OrderKind.NORMAL)


def claim(bot_id: UUID) -> ClaimOrder:
    return ClaimOrder(bot_id=bot_id, claim_id=uuid7(), seconds=10)


async def test_a_high_priority_command_waits_only_for_a_short_batch(database: str) -> None:
    """The claim overtakes 300 earlier creations, and at most ADDED_WEIGHT_MAX of them join its
    batch, so that the next claim need not wait."""
    async with open_submitter(database) as submitter:
        await submitter.order()
        bot = await submitter.bot()
        creating = [submitter.committer.submit(create(), origin()) for _ in range(300)]
        claimed = await submitter.committer.submit(claim(bot.id), origin())
        done = [one for one in creating if one.done()]
        await asyncio.gather(*creating)

    assert claimed.result.order is not None
    assert 0 < len(done) <= ADDED_WEIGHT_MAX


class LowPriority(Struct, frozen=True):
    """The same command with low priority."""

    command: CreateOrder
    priority: ClassVar = CommandPriority.LOW

    @property
    def needs(self) -> Needs:
        return self.command.needs

    def decide(self, work: UnitOfWork) -> Order:
        return self.command.decide(work)


async def test_low_priority_commands_add_little_to_a_batch_of_others(database: str) -> None:
    # S3-24, D-46: deferred commands run when there is capacity.
    async with open_submitter(database) as submitter:
        await submitter.order()
        later = [submitter.committer.submit(LowPriority(create()), origin()) for _ in range(300)]
        await submitter.committer.submit(create(), origin())
        done = [one for one in later if one.done()]
        await asyncio.gather(*later)

    assert 0 < len(done) <= ADDED_WEIGHT_MAX


async def test_a_large_command_of_normal_priority_does_not_starve(database: str) -> None:
    async with open_submitter(database) as submitter:
        bots = [await submitter.bot() for _ in range(4)]
        is_over = asyncio.Event()

        async def claim_repeatedly(submitter: Submitter, bot_id: UUID) -> None:
            while not is_over.is_set():
                await submitter.committer.submit(claim(bot_id), origin())

        asking = [asyncio.create_task(claim_repeatedly(submitter, bot.id)) for bot in bots]
        await asyncio.sleep(0.05)
        large = AllOrNothing([create() for _ in range(600)])
        receipt = await submitter.committer.submit(large, origin())
        is_over.set()
        await asyncio.gather(*asking, return_exceptions=True)

    assert len(receipt.result) == 600
    assert rows(database, "SELECT count(*) FROM log WHERE topic = 'order.created'") == [(600,)]
