"""A repeated request has no second effect and gets the same response."""

import asyncio
from typing import Any

import pytest
from uuid_utils.compat import uuid7

from daybook.domain.errors import BotBusyError
from daybook.domain.orders.bot import Bot
from daybook.domain.orders.commands import ClaimOrder, CreateOrder
from daybook.domain.orders.order import OrderKind
from daybook.eventlog.errors import IdempotencyKeyReusedError
from daybook.eventlog.origin import Receipt, StoredResponse
from daybook.eventlog.writing.idempotency import IdempotencyKey
from tests.support.committer import Kitchen, open_kitchen, origin, rows
from tests.support.databases.tcp_proxy import Cut, proxy_to

pytestmark = pytest.mark.anyio


def render(answer: Any) -> StoredResponse:
    if isinstance(answer, Exception):
        return StoredResponse(409, str(answer).encode())
    return StoredResponse(201, str(answer.id).encode())


def key(name: str, *, principal: str = "alice", fingerprint: bytes = b"body") -> IdempotencyKey:
    return IdempotencyKey(
        principal=principal,
        key=name,
        fingerprint=fingerprint,
        render=render,
    )


async def order(kitchen: Kitchen, used: IdempotencyKey) -> Receipt:
    command = CreateOrder(order_id=uuid7(), kind=OrderKind.NORMAL)
    return await kitchen.committer.submit(command, origin(), used)


def orders_count(database: str) -> int:
    return int(rows(database, "SELECT count(*) FROM log WHERE topic = 'order.created'")[0][0])


async def test_a_repeated_request_gets_the_first_response(database: str) -> None:
    async with open_kitchen(database) as kitchen:
        first = await order(kitchen, key("k"))
        again = await order(kitchen, key("k"))

    assert first.replayed_response is None
    assert again.replayed_response == render(first.result)
    assert (again.command_id, again.position) == (first.command_id, first.position)
    assert orders_count(database) == 1


async def test_fifty_requests_with_one_key_at_once_have_one_effect(database: str) -> None:
    async with open_kitchen(database, lanes=2) as one, open_kitchen(database, lanes=2) as other:
        receipts = await asyncio.gather(
            *(order(kitchen, key("k")) for kitchen in [one, other] * 25)
        )

    (executed,) = [receipt for receipt in receipts if receipt.replayed_response is None]
    replays = {r.replayed_response for r in receipts if r.replayed_response is not None}
    assert replays == {render(executed.result)}
    assert {receipt.position for receipt in receipts} == {executed.position}
    assert orders_count(database) == 1


async def test_a_key_used_for_another_request_is_refused_and_changes_nothing(
    database: str,
) -> None:
    async with open_kitchen(database) as kitchen:
        await order(kitchen, key("k"))
        with pytest.raises(IdempotencyKeyReusedError):
            await order(kitchen, key("k", fingerprint=b"other body"))

    assert orders_count(database) == 1


async def test_a_key_belongs_to_its_principal(database: str) -> None:
    async with open_kitchen(database) as kitchen:
        await order(kitchen, key("k"))
        receipt = await order(kitchen, key("k", principal="bob"))

    assert receipt.replayed_response is None
    assert orders_count(database) == 2


async def test_a_refusal_is_replayed_too(database: str) -> None:
    async with open_kitchen(database) as kitchen:
        bot = await kitchen.bot()
        await kitchen.order()
        await kitchen.order()
        await kitchen.claim(bot)
        with pytest.raises(BotBusyError) as refused:
            await _claim(kitchen, bot)
        again = await _claim(kitchen, bot)

    assert again.replayed_response == render(refused.value)
    assert again.position is None


async def _claim(kitchen: Kitchen, bot: Bot) -> Receipt:
    command = ClaimOrder(bot_id=bot.id, claim_id=uuid7(), seconds=10)
    return await kitchen.committer.submit(command, origin(), key("claim"))


@pytest.mark.parametrize("cut", [Cut.AFTER_REQUEST, Cut.WITHOUT_COMMIT])
async def test_a_connection_cut_at_commit_keeps_key_and_effect_together(
    database: str, cut: Cut
) -> None:
    async with proxy_to(database) as proxy, open_kitchen(proxy.conninfo) as kitchen:
        proxy.cut = cut
        first = await order(kitchen, key("k"))
        again = await order(kitchen, key("k"))

    assert again.replayed_response == render(first.result)
    assert orders_count(database) == 1
