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
from tests.support.committer import Submitter, open_submitter, origin, rows
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


async def order(submitter: Submitter, used: IdempotencyKey) -> Receipt:
    command = CreateOrder(order_id=uuid7(), kind=OrderKind.NORMAL)
    return await submitter.committer.submit(command, origin(), used)


def orders_count(database: str) -> int:
    return int(rows(database, "SELECT count(*) FROM log WHERE topic = 'order.created'")[0][0])


async def test_a_repeated_request_gets_the_first_response(database: str) -> None:
    async with open_submitter(database) as submitter:
        first = await order(submitter, key("k"))
        again = await order(submitter, key("k"))

    assert first.replayed_response is None
    assert again.replayed_response == render(first.result)
    assert (again.command_id, again.position) == (first.command_id, first.position)
    assert orders_count(database) == 1


async def test_fifty_requests_with_one_key_at_once_have_one_effect(database: str) -> None:
    async with (
        open_submitter(database, writers=2) as one,
        open_submitter(database, writers=2) as other,
    ):
        receipts = await asyncio.gather(
            *(order(submitter, key("k")) for submitter in [one, other] * 25)
        )

    (executed,) = [receipt for receipt in receipts if receipt.replayed_response is None]
    replays = {r.replayed_response for r in receipts if r.replayed_response is not None}
    assert replays == {render(executed.result)}
    assert {receipt.position for receipt in receipts} == {executed.position}
    assert orders_count(database) == 1


async def test_a_key_used_for_another_request_is_refused_and_changes_nothing(
    database: str,
) -> None:
    async with open_submitter(database) as submitter:
        await order(submitter, key("k"))
        with pytest.raises(IdempotencyKeyReusedError):
            await order(submitter, key("k", fingerprint=b"other body"))

    assert orders_count(database) == 1


async def test_a_key_belongs_to_its_principal(database: str) -> None:
    async with open_submitter(database) as submitter:
        await order(submitter, key("k"))
        receipt = await order(submitter, key("k", principal="bob"))

    assert receipt.replayed_response is None
    assert orders_count(database) == 2


async def test_a_refusal_is_replayed_too(database: str) -> None:
    async with open_submitter(database) as submitter:
        bot = await submitter.bot()
        await submitter.order()
        await submitter.order()
        await submitter.claim(bot)
        with pytest.raises(BotBusyError) as refused:
            await _claim(submitter, bot)
        again = await _claim(submitter, bot)

    assert again.replayed_response == render(refused.value)
    assert again.position is None


async def _claim(submitter: Submitter, bot: Bot) -> Receipt:
    command = ClaimOrder(bot_id=bot.id, claim_id=uuid7(), seconds=10)
    return await submitter.committer.submit(command, origin(), key("claim"))


@pytest.mark.parametrize("cut", [Cut.AFTER_REQUEST, Cut.WITHOUT_COMMIT])
async def test_a_connection_cut_at_commit_keeps_key_and_effect_together(
    database: str, cut: Cut
) -> None:
    async with proxy_to(database) as proxy, open_submitter(proxy.conninfo) as submitter:
        proxy.cut = cut
        first = await order(submitter, key("k"))
        again = await order(submitter, key("k"))

    assert again.replayed_response == render(first.result)
    assert orders_count(database) == 1
