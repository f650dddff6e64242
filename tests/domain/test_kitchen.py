"""Orders and bots together: whatever is asked in whatever order, they agree."""

from datetime import timedelta

import pytest
from uuid_utils.compat import uuid7

from domain.bot import BOT, Bot
from domain.claim import CompletedVia, CompletionMode, ReleaseReason
from domain.desk import Reads, Together
from domain.errors import (
    BotBusyError,
    BotInUseError,
    NotYetDueError,
    OrderNotPendingError,
    OrderNotProcessingError,
    OrderTakenError,
)
from domain.kitchen import (
    AssignOrder,
    ClaimOrder,
    CompleteOrder,
    DeleteBot,
    DeleteOrder,
    ReleaseOrder,
)
from domain.order import ORDER, Order
from tests.machine import NOON, KitchenMachine, PlainDesk


def test_an_order_that_another_bot_has_cannot_be_assigned() -> None:  # S0-18
    desk = PlainDesk()
    order, first, second = desk.order(), desk.bot(), desk.bot()
    desk.claim(first)
    with pytest.raises(OrderTakenError):
        _assign(order, second).decide(desk)


def test_assigning_an_order_to_the_bot_that_has_it_changes_nothing() -> None:  # S0-17
    desk = PlainDesk()
    order, bot = desk.order(), desk.bot()
    desk.claim(bot)
    events_count = len(desk.log)
    assigned = _assign(order, bot).decide(desk)
    assert assigned.bot.order_id == order.id
    assert len(desk.log) == events_count


def _assign(order: Order, bot: Bot) -> AssignOrder:
    return AssignOrder(order_id=order.id, bot_id=bot.id, claim_id=uuid7(), seconds=10)


def test_deleting_a_bot_returns_its_order_to_its_old_place() -> None:  # S0-67, S0-O3
    desk = PlainDesk()
    first, bot = desk.order(), desk.bot()
    desk.order()
    desk.claim(bot)
    DeleteBot(bot_id=bot.id).decide(desk)
    assert desk.claim(desk.bot()).order == desk.states[first.id]
    assert desk.states[first.id].attempts == 1


def test_a_bot_that_works_is_not_deleted_when_only_an_idle_one_may_be() -> None:  # S0-41
    desk = PlainDesk()
    desk.order()
    bot = desk.bot()
    desk.claim(bot)
    with pytest.raises(BotInUseError, match="Cannot delete bot currently processing an order"):
        DeleteBot(bot_id=bot.id, only_if_idle=True).decide(desk)


def test_deleting_an_order_frees_its_bot() -> None:  # S0-60
    desk = PlainDesk()
    order, bot = desk.order(), desk.bot()
    desk.claim(bot)
    DeleteOrder(order_id=order.id).decide(desk)
    assert desk.states[bot.id].order_id is None


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_complete_order_has_no_say_over_the_bot_that_cooked_it(is_busy: bool) -> None:  # S0-40
    desk = PlainDesk()
    order, bot = desk.order(), desk.bot()
    desk.claim(bot)
    CompleteOrder(order_id=order.id, via=CompletedVia.REPORT).decide(desk)
    if is_busy:
        desk.order()
        desk.claim(bot)
    before = desk.states[bot.id]
    for command in (
        CompleteOrder(order_id=order.id, via=CompletedVia.REPORT),
        ReleaseOrder(order_id=order.id),
        _assign(order, bot),
    ):
        with pytest.raises((OrderNotProcessingError, OrderNotPendingError, BotBusyError)):
            command.decide(desk)
    DeleteOrder(order_id=order.id).decide(desk)
    assert desk.states[bot.id] == before


def test_a_timer_completes_nothing_before_it_is_due() -> None:
    desk = PlainDesk()
    order = desk.order()
    desk.claim(desk.bot())
    on_time = CompleteOrder(order_id=order.id, via=CompletedVia.TIMER, if_due=True)
    desk.now = NOON + timedelta(seconds=9)
    with pytest.raises(NotYetDueError):
        on_time.decide(desk)
    desk.now = NOON + timedelta(seconds=10)
    on_time.decide(desk)


def test_a_claim_expires_only_when_it_is_due() -> None:
    desk = PlainDesk()
    order = desk.order()
    desk.claim(desk.bot(CompletionMode.ACK))
    with pytest.raises(NotYetDueError):
        ReleaseOrder(order_id=order.id, reason=ReleaseReason.EXPIRED).decide(desk)


def test_a_claim_records_that_an_order_was_taken_for_its_age() -> None:
    desk = PlainDesk()
    order = desk.order()
    desk.now = NOON + timedelta(seconds=60)
    desk.claim(desk.bot(), aging_seconds=60)
    (claimed,) = [e for owner, e in desk.log if owner == order.id and isinstance(e, Order.Claimed)]
    assert claimed.aged


def test_commands_that_belong_together_need_what_all_of_them_need() -> None:
    bots = [uuid7(), uuid7()]
    together = Together([ClaimOrder(bot_id=bot, claim_id=uuid7(), seconds=1) for bot in bots])
    assert together.reads == Reads(
        names=tuple((BOT, bot) for bot in bots), ready=ORDER, ready_count=2
    )
    assert together.reads.weight == 2


TestKitchenMachine = KitchenMachine.TestCase
