"""Commands on orders and bots.

A claim is one fact with two sides: the events of order and bot carry the same claim id and are
recorded by one command, so that the sides cannot disagree.
"""

from collections.abc import Iterable, Sequence
from typing import ClassVar
from uuid import UUID

from msgspec import Struct

from daybook.domain.claim import require_claim
from daybook.domain.command import (
    CommandPriority,
    Lock,
    LockAll,
    LockRelated,
    Needs,
    NextNumbers,
    PickReady,
    UnitOfWork,
)
from daybook.domain.errors import (
    BotInUseError,
    ClaimLostError,
    NotFoundError,
    NotYetDueError,
    OrderNotProcessingError,
    OrderTakenError,
)
from daybook.domain.event import Event
from daybook.domain.orders import bot as bots
from daybook.domain.orders import order as orders
from daybook.domain.orders.bot import BOT, FAILURES_MAX, Bot
from daybook.domain.orders.claim import CompletedVia, CompletionMode, OrderClaim, ReleaseReason
from daybook.domain.orders.order import ORDER, Order, OrderDetails, OrderKind, OrderStatus

ORDER_NUMBERS = "order_numbers"
ATTEMPTS_MAX = 3


class OrderCommand(Struct, frozen=True, kw_only=True, gc=False):
    order_id: UUID
    because: str | None = None

    @property
    def needs(self) -> Needs:
        return [Lock(ORDER, [self.order_id])]


class BotCommand(Struct, frozen=True, kw_only=True, gc=False):
    bot_id: UUID
    because: str | None = None

    @property
    def needs(self) -> Needs:
        return [Lock(BOT, [self.bot_id])]


class CreateOrder(Struct, frozen=True, kw_only=True, gc=False):
    order_id: UUID
    kind: OrderKind
    details: OrderDetails = OrderDetails()
    attempts_max: int = ATTEMPTS_MAX
    owner: str | None = None

    priority: ClassVar = CommandPriority.NORMAL

    @property
    def needs(self) -> Needs:
        return [NextNumbers(ORDER_NUMBERS, 1)]

    def decide(self, work: UnitOfWork) -> Order:
        created = orders.create(
            self.details,
            order_id=self.order_id,
            number=work.next_number(ORDER_NUMBERS),
            kind=self.kind,
            attempts_max=self.attempts_max,
            owner=self.owner,
            now=work.now,
        )
        return work.record(ORDER, self.order_id, created)


class CreateBot(Struct, frozen=True, kw_only=True, gc=False):
    bot_id: UUID
    auto_claim: bool = False
    completion: CompletionMode = CompletionMode.TIMER
    failures_max: int = FAILURES_MAX

    @property
    def needs(self) -> Needs:
        return []

    def decide(self, work: UnitOfWork) -> Bot:
        created = Bot.Created(
            at=work.now,
            bot_id=self.bot_id,
            auto_claim=self.auto_claim,
            completion=self.completion,
            failures_max=self.failures_max,
        )
        return work.record(BOT, self.bot_id, created)


class ConfigureBot(BotCommand, frozen=True, kw_only=True, gc=False):
    """Changes a bot's failure limit. An unchanged limit is not recorded, because the event would
    reset the count."""

    failures_max: int

    def decide(self, work: UnitOfWork) -> Bot:
        bot = _bot(work, self.bot_id)
        configured = bots.configure(
            bot, failures_max=self.failures_max, because=self.because, now=work.now
        )
        if bot.failures_max == self.failures_max:
            return bot
        return work.record(BOT, bot.id, configured)


class RestoreBot(BotCommand, frozen=True, kw_only=True, gc=False):
    def decide(self, work: UnitOfWork) -> Bot:
        bot = _bot(work, self.bot_id)
        return work.record(BOT, bot.id, bots.restore(bot, because=self.because, now=work.now))


class ClaimResult(Struct, frozen=True, gc=False):
    """Both sides of the claim; `order` is None if nothing is pending."""

    order: Order | None
    bot: Bot


class ClaimOrder(Struct, frozen=True, kw_only=True, gc=False):
    """Claims the most urgent pending order."""

    bot_id: UUID
    claim_id: UUID
    seconds: float
    aging_seconds: float | None = None

    @property
    def needs(self) -> Needs:
        return [Lock(BOT, [self.bot_id]), PickReady(ORDER, self.aging_seconds, 1)]

    def decide(self, work: UnitOfWork) -> ClaimResult:
        bot = _bot(work, self.bot_id)
        bots.require_idle(bot)
        order = work.pick_one(ORDER, self.aging_seconds)
        if order is None:
            return ClaimResult(None, bot)
        aged = orders.has_aged(order, self.aging_seconds, work.now)
        return _claim(work, order, bot, self.claim_id, self.seconds, aged=aged)


class AssignOrder(Struct, frozen=True, kw_only=True, gc=False):
    """Gives an order to a bot, on an operator's request. Idempotent."""

    order_id: UUID
    bot_id: UUID
    claim_id: UUID
    seconds: float

    @property
    def needs(self) -> Needs:
        return [Lock(ORDER, [self.order_id]), Lock(BOT, [self.bot_id])]

    def decide(self, work: UnitOfWork) -> ClaimResult:
        order, bot = _order(work, self.order_id), _bot(work, self.bot_id)
        if order.claim is not None and order.claim.bot_id == bot.id:
            return ClaimResult(order, bot)
        if order.claim is not None:
            raise OrderTakenError(order.id, order.claim.bot_id)
        bots.require_idle(bot)
        return _claim(work, order, bot, self.claim_id, self.seconds, assigned=True)


class CompleteOrder(Struct, frozen=True, kw_only=True, gc=False):
    """Without a claim id, completes the order under its current claim, on an operator's request."""

    order_id: UUID
    via: CompletedVia
    claim_id: UUID | None = None
    if_due: bool = False  # Refuse before the due time, whatever the caller's clock says
    bot_id: UUID | None = None  # The bot with the claim, if known: saves a lookup

    @property
    def needs(self) -> Needs:
        return _needs_with_bot(self.order_id, self.bot_id)

    def decide(self, work: UnitOfWork) -> Order:
        order = _order(work, self.order_id)
        claim = _require_claim(order, self.claim_id, self.bot_id)
        if self.if_due and work.now < claim.until:
            raise NotYetDueError(order.id)
        bot = _bot(work, claim.bot_id)
        work.record(BOT, bot.id, bots.complete(bot, now=work.now))
        completed = orders.complete(order, claim_id=claim.id, via=self.via, now=work.now)
        return work.record(ORDER, order.id, completed)


class FailOrder(Struct, frozen=True, kw_only=True, gc=False):
    order_id: UUID
    claim_id: UUID
    error: str
    retryable: bool
    bot_id: UUID | None = None  # The bot with the claim, if known: saves a lookup

    @property
    def needs(self) -> Needs:
        return _needs_with_bot(self.order_id, self.bot_id)

    def decide(self, work: UnitOfWork) -> Order:
        order = _order(work, self.order_id)
        failed = orders.fail(
            order,
            claim_id=self.claim_id,
            error=self.error,
            retryable=self.retryable,
            now=work.now,
        )
        bot = _bot(work, _require_claim(order, self.claim_id, self.bot_id).bot_id)
        _record_bot(work, bot, bots.fail(bot, error=self.error, now=work.now))
        return _record(work, order, failed)


class ReleaseOrder(Struct, frozen=True, kw_only=True, gc=False):
    """Returns the order to its position in the queue. Without a claim id, ends the current
    claim."""

    order_id: UUID
    claim_id: UUID | None = None
    reason: ReleaseReason = ReleaseReason.STOPPED
    bot_id: UUID | None = None
    because: str | None = None
    is_due: bool = False
    """The caller has measured that the claim's time has elapsed. Otherwise the clock decides, which
    may jump."""

    @property
    def needs(self) -> Needs:
        return _needs_with_bot(self.order_id, self.bot_id)

    def decide(self, work: UnitOfWork) -> Order:
        order = _order(work, self.order_id)
        claim = _require_claim(order, self.claim_id, self.bot_id)
        is_due = self.is_due or work.now >= claim.until
        if self.reason is ReleaseReason.EXPIRED and not is_due:
            raise NotYetDueError(order.id)
        return _release(work, order, _bot(work, claim.bot_id), self.reason, self.because)


class ReleaseBot(BotCommand, frozen=True, kw_only=True, gc=False):
    """Ends the bot's claim; an idle bot is left alone."""

    @property
    def needs(self) -> Needs:
        return [Lock(BOT, [self.bot_id]), LockRelated(ORDER, self.bot_id)]

    def decide(self, work: UnitOfWork) -> Bot:
        bot = _bot(work, self.bot_id)
        if bot.order_id is not None:
            order = _order(work, bot.order_id)
            _release(work, order, bot, ReleaseReason.STOPPED, self.because)
        return _bot(work, self.bot_id)


class DeleteOrder(OrderCommand, frozen=True, kw_only=True, gc=False):
    @property
    def needs(self) -> Needs:
        return [Lock(ORDER, [self.order_id]), LockRelated(BOT, self.order_id)]

    def decide(self, work: UnitOfWork) -> Order:
        return _delete_order(work, _order(work, self.order_id), self.because)


class RestoreOrder(OrderCommand, frozen=True, kw_only=True, gc=False):
    def decide(self, work: UnitOfWork) -> Order:
        order = _order(work, self.order_id)
        restored = orders.restore(order, because=self.because, now=work.now)
        return work.record(ORDER, order.id, restored)


class RequeueOrder(OrderCommand, frozen=True, kw_only=True, gc=False):
    def decide(self, work: UnitOfWork) -> Order:
        order = _order(work, self.order_id)
        requeued = orders.requeue(order, because=self.because, now=work.now)
        return work.record(ORDER, order.id, requeued)


class Cleared(Struct, frozen=True, gc=False):
    open_count: int
    complete_count: int


class ClearOrders(Struct, frozen=True, kw_only=True, gc=False):
    """Deletes every unfinished order and the given complete ones, and frees all bots."""

    complete: Sequence[UUID] = ()
    further_count: int = 0  # Complete orders that later commands will clear
    because: str | None = None

    @property
    def needs(self) -> Needs:
        return [LockAll(ORDER), LockAll(BOT), Lock(ORDER, self.complete)]

    def decide(self, work: UnitOfWork) -> Cleared:
        open_orders = work.all(ORDER)
        for order in open_orders:
            _delete_order(work, order, self.because)
        complete_count = _delete_complete(work, self.complete, self.because)
        return Cleared(len(open_orders), complete_count + self.further_count)


class ClearCompleteOrders(Struct, frozen=True, kw_only=True, gc=False):
    """Removes complete orders from the lists; history and audit keep them."""

    complete: Sequence[UUID]
    because: str | None = None

    @property
    def needs(self) -> Needs:
        return [Lock(ORDER, self.complete)]

    def decide(self, work: UnitOfWork) -> int:
        return _delete_complete(work, self.complete, self.because)


class DeleteBot(BotCommand, frozen=True, kw_only=True, gc=False):
    """Deletes the bot and returns its order to its position, in one transaction."""

    only_if_idle: bool = False

    @property
    def needs(self) -> Needs:
        return [Lock(BOT, [self.bot_id]), LockRelated(ORDER, self.bot_id)]

    def decide(self, work: UnitOfWork) -> Bot:
        bot = _bot(work, self.bot_id)
        deleted = bots.delete(bot, because=self.because, now=work.now)
        if bot.order_id is not None:
            if self.only_if_idle:
                raise BotInUseError
            order = _order(work, bot.order_id)
            _release(work, order, bot, ReleaseReason.BOT_DELETED, self.because)
        return work.record(BOT, bot.id, deleted)


def _needs_with_bot(order_id: UUID, bot_id: UUID | None) -> Needs:
    """The order, and the bot that claims it."""
    if bot_id is None:
        return [Lock(ORDER, [order_id]), LockRelated(BOT, order_id)]
    return [Lock(ORDER, [order_id]), Lock(BOT, [bot_id])]


def _order(work: UnitOfWork, order_id: UUID) -> Order:
    order = work.get(ORDER, order_id)
    if order is None:
        raise NotFoundError("order", order_id)
    return order


def _bot(work: UnitOfWork, bot_id: UUID) -> Bot:
    bot = work.get(BOT, bot_id)
    if bot is None:
        raise NotFoundError("bot", bot_id)
    return bot


def _require_claim(order: Order, claim_id: UUID | None, bot_id: UUID | None) -> OrderClaim:
    """Returns the order's claim if it is the one that the caller means."""
    claim = require_claim("order", order, claim_id or _current_claim(order))
    if bot_id is not None and claim.bot_id != bot_id:
        raise ClaimLostError("order", order.id, claim.id)
    return claim


def _current_claim(order: Order) -> UUID:
    if order.claim is None:
        raise OrderNotProcessingError(order.id, order.status)
    return order.claim.id


def _claim(
    work: UnitOfWork,
    order: Order,
    bot: Bot,
    claim_id: UUID,
    seconds: float,
    *,
    aged: bool = False,
    assigned: bool = False,
) -> ClaimResult:
    order_claimed = orders.claim(
        order,
        claim_id=claim_id,
        bot_id=bot.id,
        mode=bot.completion,
        seconds=seconds,
        aged=aged,
        assigned=assigned,
        now=work.now,
    )
    bot_claimed = bots.claim(bot, claim_id=claim_id, order_id=order.id, now=work.now)
    bot = work.record(BOT, bot.id, bot_claimed)
    return ClaimResult(work.record(ORDER, order.id, order_claimed), bot)


def _release(
    work: UnitOfWork, order: Order, bot: Bot, reason: ReleaseReason, because: str | None
) -> Order:
    claim_id, now = _current_claim(order), work.now
    released = orders.release(order, claim_id=claim_id, reason=reason, because=because, now=now)
    _record_bot(work, bot, bots.release(bot, reason=reason, because=because, now=now))
    return _record(work, order, released)


def _delete_order(work: UnitOfWork, order: Order, because: str | None) -> Order:
    deleted = orders.delete(order, because=because, now=work.now)
    if order.claim is not None:
        bot = _bot(work, order.claim.bot_id)
        _release(work, order, bot, ReleaseReason.ORDER_DELETED, because)
    return work.record(ORDER, order.id, deleted)


def _delete_complete(work: UnitOfWork, ids: Iterable[UUID], because: str | None) -> int:
    found = [work.get(ORDER, one) for one in ids]
    complete = [
        order
        for order in found
        if order and order.status is OrderStatus.COMPLETE and order.deleted_at is None
    ]
    for order in complete:
        work.record(ORDER, order.id, orders.delete(order, because=because, now=work.now))
    return len(complete)


def _record(work: UnitOfWork, order: Order, events: Iterable[Event]) -> Order:
    for event in events:
        order = work.record(ORDER, order.id, event)
    return order


def _record_bot(work: UnitOfWork, bot: Bot, events: Iterable[Event]) -> None:
    for event in events:
        work.record(BOT, bot.id, event)
