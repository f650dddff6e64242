"""A bot cooks one order at a time; what it works on is the order's claim, seen from its side."""

from datetime import datetime
from typing import ClassVar, Self
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from domain.errors import BotBusyError
from domain.event import Decider, Event, events_of


class Bot(Struct, frozen=True, kw_only=True, gc=False):
    id: UUID
    version: int
    created_at: datetime
    updated_at: datetime
    order_id: UUID | None = None
    claim_id: UUID | None = None

    class Created(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "bot.created"
        bot_id: UUID

    class Claimed(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "bot.claimed"
        claim_id: UUID
        order_id: UUID

    class Completed(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "bot.completed"
        claim_id: UUID
        order_id: UUID

    def after(self, event: Event, *, order_id: UUID | None, claim_id: UUID | None) -> Self:
        version = self.version + 1
        return replace(
            self, version=version, updated_at=event.at, order_id=order_id, claim_id=claim_id
        )


def create(*, bot_id: UUID, now: datetime) -> Bot.Created:
    return Bot.Created(at=now, bot_id=bot_id)


def claim(bot: Bot, *, claim_id: UUID, order_id: UUID, now: datetime) -> Bot.Claimed:
    if bot.order_id is not None:
        raise BotBusyError(bot.id, bot.order_id)
    return Bot.Claimed(at=now, claim_id=claim_id, order_id=order_id)


def complete(bot: Bot, *, claim_id: UUID, order_id: UUID, now: datetime) -> Bot.Completed:
    assert bot.claim_id == claim_id, f"bot {bot.id} and order {order_id} disagree on their claim"
    return Bot.Completed(at=now, claim_id=claim_id, order_id=order_id)


def evolve(bot: Bot | None, event: Event) -> Bot:
    if isinstance(event, Bot.Created):
        return Bot(id=event.bot_id, version=1, created_at=event.at, updated_at=event.at)
    assert bot is not None, f"{event} is the first event of a bot"
    match event:
        case Bot.Claimed():
            return bot.after(event, order_id=event.order_id, claim_id=event.claim_id)
        case Bot.Completed():
            return bot.after(event, order_id=None, claim_id=None)
    raise AssertionError(f"a bot does not know {event}")


BOT: Decider[Bot] = Decider(
    name="bot",
    state=Bot,
    events=events_of(Bot),
    evolve=evolve,
    finished=lambda _bot: False,
)
