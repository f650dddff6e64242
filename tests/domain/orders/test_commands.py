"""Orders and bots together: whatever is asked in whatever order, they agree."""

from datetime import timedelta

import pytest
from uuid_utils.compat import uuid7

from daybook.domain.command import AllOrNothing, Needs
from daybook.domain.errors import (
    BotBusyError,
    BotDeadError,
    BotInUseError,
    BotNotDeadError,
    NotYetDueError,
    OrderNotPendingError,
    OrderNotProcessingError,
    OrderTakenError,
)
from daybook.domain.orders.bot import BOT, Bot
from daybook.domain.orders.claim import CompletedVia, CompletionMode, ReleaseReason
from daybook.domain.orders.commands import (
    AssignOrder,
    ClaimOrder,
    CompleteOrder,
    ConfigureBot,
    DeleteBot,
    DeleteOrder,
    FailOrder,
    ReleaseBot,
    ReleaseOrder,
    RestoreBot,
)
from daybook.domain.orders.order import ORDER, Order
from tests.support.order_state_machine import NOON, KitchenMachine, PlainDesk


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
    together = AllOrNothing([ClaimOrder(bot_id=bot, claim_id=uuid7(), seconds=1) for bot in bots])
    assert together.needs == Needs(lock=tuple((BOT, bot) for bot in bots), pick=ORDER, pick_count=2)
    assert together.needs.weight == 2


def _fail(desk: PlainDesk, bot: Bot, error: str = "burnt") -> None:
    order = desk.order()
    claim = desk.claim(bot)
    assert claim.order is not None
    assert claim.bot.claim_id is not None
    FailOrder(
        order_id=claim.order.id, claim_id=claim.bot.claim_id, error=error, retryable=False
    ).decide(desk)
    DeleteOrder(order_id=order.id).decide(desk)


def _expire(desk: PlainDesk, bot: Bot) -> None:
    order = desk.order()
    desk.claim(bot)
    desk.now += timedelta(seconds=11)
    ReleaseOrder(order_id=order.id, reason=ReleaseReason.EXPIRED).decide(desk)
    DeleteOrder(order_id=order.id).decide(desk)


def _complete(desk: PlainDesk, bot: Bot) -> None:
    order = desk.order()
    desk.claim(bot)
    CompleteOrder(order_id=order.id, via=CompletedVia.REPORT).decide(desk)


# SX-01
def test_a_bot_that_fails_five_times_in_a_row_is_taken_out_of_service() -> None:
    desk = PlainDesk()
    bot = desk.bot()
    for number in range(1, 5):
        _fail(desk, bot, f"burnt {number}")
    assert desk.states[bot.id].dead_at is None

    _fail(desk, bot, "burnt 5")

    dead = desk.states[bot.id]
    (moved,) = [event for _, event in desk.log if isinstance(event, Bot.MovedToDLQ)]
    assert moved.errors == tuple(f"burnt {number}" for number in range(1, 6))
    assert (moved.failures, moved.reason) == (5, "5 claims in a row have failed")
    assert (dead.dead_at, dead.failures, dead.order_id) == (moved.at, 5, None)


def test_a_bot_out_of_service_takes_no_order_and_is_given_none() -> None:
    desk = PlainDesk()
    bot = desk.bot(failures_max=1)
    _fail(desk, bot, "the fryer is off")
    order = desk.order()
    for command in (
        ClaimOrder(bot_id=bot.id, claim_id=uuid7(), seconds=10),
        _assign(order, bot),
    ):
        with pytest.raises(BotDeadError, match=r"1 failure in a row.*the fryer is off.*restore"):
            command.decide(desk)
    assert desk.states[order.id] == order


def test_claims_that_expire_count_and_claims_that_were_stopped_do_not() -> None:
    desk = PlainDesk()
    bot = desk.bot(CompletionMode.ACK, failures_max=2)
    _expire(desk, bot)
    desk.order()
    desk.claim(bot)
    ReleaseBot(bot_id=bot.id).decide(desk)
    assert desk.states[bot.id].failures == 1

    claimed = desk.claim(bot)
    assert claimed.order is not None
    desk.now += timedelta(seconds=11)
    ReleaseOrder(order_id=claimed.order.id, reason=ReleaseReason.EXPIRED).decide(desk)

    assert desk.states[bot.id].dead_at == desk.now
    assert desk.states[bot.id].errors == ("no report before the claim was due",) * 2


def test_a_completion_ends_the_row_of_failures() -> None:
    desk = PlainDesk()
    bot = desk.bot(failures_max=2)
    for _ in range(3):
        _fail(desk, bot)
        _complete(desk, bot)
    assert (desk.states[bot.id].failures, desk.states[bot.id].errors) == (0, ())
    assert desk.states[bot.id].dead_at is None


def test_without_a_limit_no_failure_takes_a_bot_out_of_service() -> None:
    desk = PlainDesk()
    bot = desk.bot(failures_max=0)
    for _ in range(20):
        _fail(desk, bot)
    assert (desk.states[bot.id].failures, desk.states[bot.id].dead_at) == (0, None)


def test_a_bot_that_is_restored_works_on_with_a_new_count() -> None:
    desk = PlainDesk()
    bot = desk.bot(failures_max=2)
    with pytest.raises(BotNotDeadError):
        RestoreBot(bot_id=bot.id, because="too early").decide(desk)
    _fail(desk, bot)
    _fail(desk, bot)

    restored = RestoreBot(bot_id=bot.id, because="The fryer is repaired.").decide(desk)

    assert (restored.dead_at, restored.failures, restored.errors) == (None, 0, ())
    _fail(desk, bot)
    assert desk.states[bot.id].dead_at is None


def test_a_new_limit_begins_a_new_count_and_brings_no_bot_back() -> None:
    desk = PlainDesk()
    bot = desk.bot(failures_max=3)
    _fail(desk, bot)
    _fail(desk, bot)
    assert ConfigureBot(bot_id=bot.id, failures_max=2).decide(desk).failures == 0
    version = desk.states[bot.id].version
    assert ConfigureBot(bot_id=bot.id, failures_max=2).decide(desk).version == version
    _fail(desk, bot)
    _fail(desk, bot)
    dead = ConfigureBot(bot_id=bot.id, failures_max=5).decide(desk)
    assert (dead.dead_at, dead.failures_max) == (desk.states[bot.id].dead_at, 5)
    assert dead.dead_at is not None


def test_of_many_errors_the_last_ones_are_kept() -> None:
    desk = PlainDesk()
    bot = desk.bot(failures_max=30)
    for number in range(30):
        _fail(desk, bot, f"{number} " + "x" * 10_000)
    errors = desk.states[bot.id].errors
    assert [error.split()[0] for error in errors] == [str(number) for number in range(20, 30)]
    assert {len(error) for error in errors} == {500}


TestKitchenMachine = KitchenMachine.TestCase
