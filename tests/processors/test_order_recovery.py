"""A bot that does not report in time loses its claim, and the attempt counts."""

import asyncio

import pytest
from uuid_utils.compat import uuid7

from daybook.domain.errors import ClaimLostError
from daybook.domain.orders.bot import Bot
from daybook.domain.orders.claim import CompletionMode
from daybook.domain.orders.commands import CreateBot, RestoreBot
from daybook.domain.orders.order import Order, OrderStatus
from daybook.eventlog.postgres.connections import connect, reader_conninfo
from daybook.processors.order_recovery import OrderClaimRecovery
from daybook.projections.doctor.doctor import examine
from daybook.projections.doctor.finding import Health
from tests.support.committer import Submitter, eventually, live_rows
from tests.support.running.service import (
    assert_consistent,
    busy_bots,
    claim_of,
    claimed,
    completed,
    events,
    running,
)

pytestmark = pytest.mark.anyio

ACK = CompletionMode.ACK


def live_order(conninfo: str) -> Order:
    (order,) = [state for state in live_rows(conninfo).values() if isinstance(state, Order)]
    return order


# SX-03
async def test_a_bot_that_does_not_report_loses_its_claim_within_a_second(database: str) -> None:
    # D-06, S0-19, S0-25
    async with running(database) as submitter:
        order = await claimed(submitter, seconds=0.2, completion=ACK)
        await eventually(lambda: busy_bots(database) == 0)

        after = live_order(database)
        with pytest.raises(ClaimLostError):
            await submitter.complete(order)

    assert order.claim is not None
    (released,) = events(database, "order.released")
    assert released[2] == "system:recovery"
    assert released[4]["reason"] == "expired"
    assert 0 <= (released[3] - order.claim.until).total_seconds() < 1
    assert (after.status, after.attempts, after.number) == (OrderStatus.PENDING, 1, order.number)
    assert_consistent(database)


async def test_after_the_last_attempt_the_order_is_dead(database: str) -> None:
    # D-10, S0-70
    async with running(database) as submitter:
        bot = await submitter.bot(ACK)
        order = await submitter.order()
        for _ in range(order.attempts_max):
            await expired_claim(database, submitter, bot)

    assert live_order(database).status is OrderStatus.DEAD
    assert len(events(database, "order.released")) == order.attempts_max == 3
    assert len(events(database, "order.moved_to_dlq")) == 1
    assert_consistent(database)


async def expired_claim(conninfo: str, submitter: Submitter, bot: Bot) -> None:
    assert await submitter.claim(bot, seconds=0) is not None
    await eventually(lambda: busy_bots(conninfo) == 0)


async def test_a_bot_that_reports_in_time_is_left_alone(database: str) -> None:
    async with running(database) as submitter:
        order = await claimed(submitter, seconds=0.5, completion=ACK)
        await submitter.complete(order)
        await asyncio.sleep(0.8)

    assert completed(database) == [order.id]
    assert events(database, "order.released") == []


async def test_an_order_that_the_timer_completes_does_not_expire(database: str) -> None:
    async with running(database, processors=[OrderClaimRecovery()]) as submitter:
        await claimed(submitter, seconds=0)
        await asyncio.sleep(0.5)

    assert events(database, "order.released") == []


async def test_two_services_take_an_expired_claim_once(database: str) -> None:
    # S0-27, S0-83
    async with running(database) as submitter, running(database):
        orders = [await claimed(submitter, seconds=0.3, completion=ACK) for _ in range(20)]
        await eventually(lambda: busy_bots(database) == 0)
        await asyncio.sleep(0.2)

    released = [event[4]["claim_id"] for event in events(database, "order.released")]
    assert sorted(released) == sorted(str(claim_of(order)) for order in orders)
    assert_consistent(database)


async def test_a_bot_that_never_reports_is_taken_out_of_service_and_burns_no_more_attempts(
    database: str,
) -> None:  # SX-01
    async with running(database, delay_seconds=0.05) as submitter:
        bot_id = uuid7()
        command = CreateBot(bot_id=bot_id, auto_claim=True, completion=ACK, failures_max=2)
        await submitter.submit(command)
        for _ in range(3):
            await submitter.order()
        # Dispatch gives it an order and recovery takes it away, until it is out of service.
        await eventually(lambda: len(events(database, "bot.moved_to_dlq")) == 1)
        await asyncio.sleep(0.5)
        assert len(events(database, "order.claimed")) == 2

        await submitter.submit(RestoreBot(bot_id=bot_id, because="restarted"))
        await eventually(lambda: len(events(database, "bot.moved_to_dlq")) == 2)

    moved, _ = events(database, "bot.moved_to_dlq")
    assert moved[2] == "system:recovery"
    assert moved[4]["errors"] == ["no report before the claim was due"] * 2
    assert len(events(database, "order.claimed")) == 4
    assert_consistent(database)


async def test_the_doctor_names_a_bot_out_of_service_and_how_to_bring_it_back(
    database: str,
) -> None:  # SX-01
    async with running(database, delay_seconds=0.05) as submitter:
        bot_id = uuid7()
        command = CreateBot(bot_id=bot_id, auto_claim=True, completion=ACK, failures_max=1)
        await submitter.submit(command)
        await submitter.order()
        await eventually(lambda: len(events(database, "bot.moved_to_dlq")) == 1)
        async with await connect(reader_conninfo(database)) as reader:
            found = {one.what: one async for one in examine(reader)}

    assert found["bots"].health is Health.NOTICE
    assert f"bot {bot_id} (failures: 1)" in found["bots"].sentence
    assert "/restore" in found["bots"].next_step
