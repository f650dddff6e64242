"""The commands of the kitchen: what orders and bots decide together.

"Bot B works on order O" is one fact: the events on both sides carry the same claim id and are
recorded by one command, so that neither side can ever say otherwise.
"""

from uuid import UUID

from msgspec import Struct

from domain import bot as bots
from domain import order as orders
from domain.bot import BOT, Bot
from domain.desk import Desk, Reads
from domain.errors import BotBusyError, ClaimLostError, NotFoundError
from domain.order import ORDER, CompletedVia, Order, OrderKind

ORDER_NUMBERS = "order_numbers"


class CreateOrder(Struct, frozen=True, kw_only=True, gc=False):
    order_id: UUID
    kind: OrderKind

    @property
    def reads(self) -> Reads:
        return Reads(draws=(ORDER_NUMBERS, 1))

    def decide(self, desk: Desk) -> Order:
        number = desk.draw(ORDER_NUMBERS)
        created = orders.create(order_id=self.order_id, number=number, kind=self.kind, now=desk.now)
        return desk.record(ORDER, self.order_id, created)


class CreateBot(Struct, frozen=True, kw_only=True, gc=False):
    bot_id: UUID

    @property
    def reads(self) -> Reads:
        return Reads()

    def decide(self, desk: Desk) -> Bot:
        return desk.record(BOT, self.bot_id, bots.create(bot_id=self.bot_id, now=desk.now))


class ClaimOrder(Struct, frozen=True, kw_only=True, gc=False):
    """The bot takes the most urgent pending order, or None when nothing is pending."""

    bot_id: UUID
    claim_id: UUID
    seconds: float

    @property
    def reads(self) -> Reads:
        return Reads(names=((BOT, self.bot_id),), ready=ORDER, ready_count=1)

    def decide(self, desk: Desk) -> Order | None:
        bot = desk.get(BOT, self.bot_id)
        if bot is None:
            raise NotFoundError("bot", self.bot_id)
        if bot.order_id is not None:
            raise BotBusyError(bot.id, bot.order_id)
        order = desk.take_ready(ORDER)
        if order is None:
            return None
        return self._claim(desk, order, bot)

    def _claim(self, desk: Desk, order: Order, bot: Bot) -> Order:
        order_claimed = orders.claim(
            order, claim_id=self.claim_id, bot_id=bot.id, seconds=self.seconds, now=desk.now
        )
        bot_claimed = bots.claim(bot, claim_id=self.claim_id, order_id=order.id, now=desk.now)
        desk.record(BOT, bot.id, bot_claimed)
        return desk.record(ORDER, order.id, order_claimed)


class CompleteOrder(Struct, frozen=True, kw_only=True, gc=False):
    order_id: UUID
    bot_id: UUID
    claim_id: UUID
    via: CompletedVia

    @property
    def reads(self) -> Reads:
        return Reads(names=((ORDER, self.order_id), (BOT, self.bot_id)))

    def decide(self, desk: Desk) -> Order:
        order = desk.get(ORDER, self.order_id)
        if order is None:
            raise NotFoundError("order", self.order_id)
        completed = orders.complete(order, claim_id=self.claim_id, via=self.via, now=desk.now)
        bot = desk.get(BOT, self.bot_id)
        if bot is None or bot.claim_id != self.claim_id:
            raise ClaimLostError(order.id, self.claim_id)
        bot_completed = bots.complete(bot, claim_id=self.claim_id, order_id=order.id, now=desk.now)
        desk.record(BOT, bot.id, bot_completed)
        return desk.record(ORDER, order.id, completed)
