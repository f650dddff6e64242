"""Commands on orders and bots: both sides of a claim agree after any sequence."""

from datetime import timedelta

import pytest
from uuid_utils.compat import uuid7

from daybook.domain.command import AllOrNothing, Lock, PickReady, weight_of
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
from tests.support.order_state_machine import NOON, OrderMachine, PlainUnitOfWork


def test_an_order_claimed_by_another_bot_cannot_be_assigned() -> None:  # S0-18
    work = PlainUnitOfWork()
    order, first, second = work.order(), work.bot(), work.bot()
    work.claim(first)
    with pytest.raises(OrderTakenError):
        _assign(order, second).decide(work)


def test_assigning_an_order_to_the_bot_that_has_it_changes_nothing() -> None:  # S0-17
    work = PlainUnitOfWork()
    order, bot = work.order(), work.bot()
    work.claim(bot)
    events_count = len(work.log)
    assigned = _assign(order, bot).decide(work)
    assert assigned.bot.order_id == order.id
    assert len(work.log) == events_count


def _assign(order: Order, bot: Bot) -> AssignOrder:
    return AssignOrder(order_id=order.id, bot_id=bot.id, claim_id=uuid7(), seconds=10)


def test_deleting_a_bot_returns_its_order_to_its_position() -> None:  # S0-67, S0-O3
    work = PlainUnitOfWork()
    first, bot = work.order(), work.bot()
    work.order()
    work.claim(bot)
    DeleteBot(bot_id=bot.id).decide(work)
    assert work.claim(work.bot()).order == work.states[first.id]
    assert work.states[first.id].attempts == 1


def test_a_busy_bot_is_not_deleted_by_a_delete_of_idle_bots_only() -> None:  # S0-41
    work = PlainUnitOfWork()
    work.order()
    bot = work.bot()
    work.claim(bot)
    with pytest.raises(BotInUseError, match="Cannot delete bot currently processing an order"):
        DeleteBot(bot_id=bot.id, only_if_idle=True).decide(work)


def test_deleting_an_order_frees_its_bot() -> None:  # S0-60
    work = PlainUnitOfWork()
    order, bot = work.order(), work.bot()
    work.claim(bot)
    DeleteOrder(order_id=order.id).decide(work)
    assert work.states[bot.id].order_id is None


@pytest.mark.parametrize("is_busy", [False, True])
def test_deleting_a_complete_order_leaves_its_former_bot_alone(is_busy: bool) -> None:  # S0-40
    work = PlainUnitOfWork()
    order, bot = work.order(), work.bot()
    work.claim(bot)
    CompleteOrder(order_id=order.id, via=CompletedVia.REPORT).decide(work)
    if is_busy:
        work.order()
        work.claim(bot)
    before = work.states[bot.id]
    for command in (
        CompleteOrder(order_id=order.id, via=CompletedVia.REPORT),
        ReleaseOrder(order_id=order.id),
        _assign(order, bot),
    ):
        with pytest.raises((OrderNotProcessingError, OrderNotPendingError, BotBusyError)):
            command.decide(work)
    DeleteOrder(order_id=order.id).decide(work)
    assert work.states[bot.id] == before


def test_a_timer_completes_nothing_before_it_is_due() -> None:
    work = PlainUnitOfWork()
    order = work.order()
    work.claim(work.bot())
    on_time = CompleteOrder(order_id=order.id, via=CompletedVia.TIMER, if_due=True)
    work.now = NOON + timedelta(seconds=9)
    with pytest.raises(NotYetDueError):
        on_time.decide(work)
    work.now = NOON + timedelta(seconds=10)
    on_time.decide(work)


def test_a_claim_expires_only_when_it_is_due() -> None:
    work = PlainUnitOfWork()
    order = work.order()
    work.claim(work.bot(CompletionMode.ACK))
    with pytest.raises(NotYetDueError):
        ReleaseOrder(order_id=order.id, reason=ReleaseReason.EXPIRED).decide(work)


def test_a_claim_records_that_the_order_was_aged() -> None:
    work = PlainUnitOfWork()
    order = work.order()
    work.now = NOON + timedelta(seconds=60)
    work.claim(work.bot(), aging_seconds=60)
    (claimed,) = [e for owner, e in work.log if owner == order.id and isinstance(e, Order.Claimed)]
    assert claimed.aged


def test_the_needs_of_a_transaction_are_the_union_of_its_commands() -> None:
    bots = [uuid7(), uuid7()]
    together = AllOrNothing([ClaimOrder(bot_id=bot, claim_id=uuid7(), seconds=1) for bot in bots])
    assert [*together.needs] == [
        need for bot in bots for need in (Lock(BOT, [bot]), PickReady(ORDER, None, 1))
    ]
    assert weight_of(together.needs) == 2


def _fail(work: PlainUnitOfWork, bot: Bot, error: str = "burnt") -> None:
    order = work.order()
    claim = work.claim(bot)
    assert claim.order is not None
    assert claim.bot.claim_id is not None
    FailOrder(
        order_id=claim.order.id, claim_id=claim.bot.claim_id, error=error, retryable=False
    ).decide(work)
    DeleteOrder(order_id=order.id).decide(work)


def _expire(work: PlainUnitOfWork, bot: Bot) -> None:
    order = work.order()
    work.claim(bot)
    work.now += timedelta(seconds=11)
    ReleaseOrder(order_id=order.id, reason=ReleaseReason.EXPIRED).decide(work)
    DeleteOrder(order_id=order.id).decide(work)


def _complete(work: PlainUnitOfWork, bot: Bot) -> None:
    order = work.order()
    work.claim(bot)
    CompleteOrder(order_id=order.id, via=CompletedVia.REPORT).decide(work)


# SX-01
def test_a_bot_that_fails_five_times_in_a_row_is_taken_out_of_service() -> None:
    work = PlainUnitOfWork()
    bot = work.bot()
    for number in range(1, 5):
        _fail(work, bot, f"burnt {number}")
    assert work.states[bot.id].dead_at is None

    _fail(work, bot, "burnt 5")

    dead = work.states[bot.id]
    (moved,) = [event for _, event in work.log if isinstance(event, Bot.MovedToDLQ)]
    assert moved.errors == tuple(f"burnt {number}" for number in range(1, 6))
    assert (moved.failures, moved.reason) == (5, "5 claims in a row have failed")
    assert (dead.dead_at, dead.failures, dead.order_id) == (moved.at, 5, None)


def test_a_bot_out_of_service_neither_claims_nor_is_assigned_an_order() -> None:
    work = PlainUnitOfWork()
    bot = work.bot(failures_max=1)
    _fail(work, bot, "the fryer is off")
    order = work.order()
    for command in (
        ClaimOrder(bot_id=bot.id, claim_id=uuid7(), seconds=10),
        _assign(order, bot),
    ):
        with pytest.raises(BotDeadError, match=r"1 failure in a row.*the fryer is off.*restore"):
            command.decide(work)
    assert work.states[order.id] == order


def test_expired_claims_count_as_failures_and_stopped_claims_do_not() -> None:
    work = PlainUnitOfWork()
    bot = work.bot(CompletionMode.ACK, failures_max=2)
    _expire(work, bot)
    work.order()
    work.claim(bot)
    ReleaseBot(bot_id=bot.id).decide(work)
    assert work.states[bot.id].failures == 1

    claimed = work.claim(bot)
    assert claimed.order is not None
    work.now += timedelta(seconds=11)
    ReleaseOrder(order_id=claimed.order.id, reason=ReleaseReason.EXPIRED).decide(work)

    assert work.states[bot.id].dead_at == work.now
    assert work.states[bot.id].errors == ("no report before the claim was due",) * 2


def test_a_completion_resets_the_failure_count() -> None:
    work = PlainUnitOfWork()
    bot = work.bot(failures_max=2)
    for _ in range(3):
        _fail(work, bot)
        _complete(work, bot)
    assert (work.states[bot.id].failures, work.states[bot.id].errors) == (0, ())
    assert work.states[bot.id].dead_at is None


def test_without_a_limit_no_failure_takes_a_bot_out_of_service() -> None:
    work = PlainUnitOfWork()
    bot = work.bot(failures_max=0)
    for _ in range(20):
        _fail(work, bot)
    assert (work.states[bot.id].failures, work.states[bot.id].dead_at) == (0, None)


def test_a_restored_bot_starts_with_a_new_failure_count() -> None:
    work = PlainUnitOfWork()
    bot = work.bot(failures_max=2)
    with pytest.raises(BotNotDeadError):
        RestoreBot(bot_id=bot.id, because="too early").decide(work)
    _fail(work, bot)
    _fail(work, bot)

    restored = RestoreBot(bot_id=bot.id, because="The fryer is repaired.").decide(work)

    assert (restored.dead_at, restored.failures, restored.errors) == (None, 0, ())
    _fail(work, bot)
    assert work.states[bot.id].dead_at is None


def test_a_new_limit_resets_the_count_and_restores_no_bot() -> None:
    work = PlainUnitOfWork()
    bot = work.bot(failures_max=3)
    _fail(work, bot)
    _fail(work, bot)
    assert ConfigureBot(bot_id=bot.id, failures_max=2).decide(work).failures == 0
    version = work.states[bot.id].version
    assert ConfigureBot(bot_id=bot.id, failures_max=2).decide(work).version == version
    _fail(work, bot)
    _fail(work, bot)
    dead = ConfigureBot(bot_id=bot.id, failures_max=5).decide(work)
    assert (dead.dead_at, dead.failures_max) == (work.states[bot.id].dead_at, 5)
    assert dead.dead_at is not None


def test_only_the_latest_errors_are_stored() -> None:
    work = PlainUnitOfWork()
    bot = work.bot(failures_max=30)
    for number in range(30):
        _fail(work, bot, f"{number} " + "x" * 10_000)
    errors = work.states[bot.id].errors
    assert [error.split()[0] for error in errors] == [str(number) for number in range(20, 30)]
    assert {len(error) for error in errors} == {500}


TestOrderMachine = OrderMachine.TestCase
