"""A bot cooks one order at a time; what it works on is the order's claim, seen from its side."""

from datetime import datetime
from typing import Any, ClassVar, Self
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from domain.claim import CompletionMode, ReleaseReason
from domain.errors import BotBusyError, BotDeletedError
from domain.event import Decider, Event, Reasoned, events_of


class Bot(Struct, frozen=True, kw_only=True, gc=False):
    id: UUID
    version: int
    created_at: datetime
    updated_at: datetime
    auto_claim: bool
    """Whether the server gives it the next order by itself."""

    completion: CompletionMode
    order_id: UUID | None = None
    claim_id: UUID | None = None
    deleted_at: datetime | None = None

    class Created(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "bot.created"
        bot_id: UUID
        auto_claim: bool
        completion: CompletionMode

    class Claimed(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "bot.claimed"
        claim_id: UUID
        order_id: UUID

    class Completed(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "bot.completed"
        claim_id: UUID
        order_id: UUID

    class Failed(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "bot.failed"
        claim_id: UUID
        order_id: UUID
        error: str

    class Released(Reasoned, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "bot.released"
        claim_id: UUID
        order_id: UUID
        reason: ReleaseReason

    class Deleted(Reasoned, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "bot.deleted"

    def after(self, event: Event, **changes: Any) -> Self:
        return replace(self, version=self.version + 1, updated_at=event.at, **changes)


def create(
    *, bot_id: UUID, auto_claim: bool, completion: CompletionMode, now: datetime
) -> Bot.Created:
    return Bot.Created(at=now, bot_id=bot_id, auto_claim=auto_claim, completion=completion)


def claim(bot: Bot, *, claim_id: UUID, order_id: UUID, now: datetime) -> Bot.Claimed:
    must_be_idle(bot)
    return Bot.Claimed(at=now, claim_id=claim_id, order_id=order_id)


def must_be_idle(bot: Bot) -> None:
    if bot.deleted_at is not None:
        raise BotDeletedError(bot.id)
    if bot.order_id is not None:
        raise BotBusyError(bot.id, bot.order_id)


def complete(bot: Bot, *, now: datetime) -> Bot.Completed:
    order_id, claim_id = _held(bot)
    return Bot.Completed(at=now, claim_id=claim_id, order_id=order_id)


def fail(bot: Bot, *, error: str, now: datetime) -> Bot.Failed:
    order_id, claim_id = _held(bot)
    return Bot.Failed(at=now, claim_id=claim_id, order_id=order_id, error=error)


def release(
    bot: Bot, *, reason: ReleaseReason, because: str | None = None, now: datetime
) -> Bot.Released:
    order_id, claim_id = _held(bot)
    return Bot.Released(
        at=now, claim_id=claim_id, order_id=order_id, reason=reason, because=because
    )


def delete(bot: Bot, *, because: str | None = None, now: datetime) -> Bot.Deleted:
    if bot.deleted_at is not None:
        raise BotDeletedError(bot.id)
    return Bot.Deleted(at=now, because=because)


def _held(bot: Bot) -> tuple[UUID, UUID]:
    assert bot.order_id is not None, f"bot {bot.id} holds nothing"
    assert bot.claim_id is not None
    return bot.order_id, bot.claim_id


def evolve(bot: Bot | None, event: Event) -> Bot:
    if isinstance(event, Bot.Created):
        return Bot(
            id=event.bot_id,
            version=1,
            created_at=event.at,
            updated_at=event.at,
            auto_claim=event.auto_claim,
            completion=event.completion,
        )
    assert bot is not None, f"{event} is the first event of a bot"
    match event:
        # These happen with every order; `after`, which packs its arguments, takes twice as long.
        case Bot.Claimed():
            return replace(
                bot,
                version=bot.version + 1,
                updated_at=event.at,
                order_id=event.order_id,
                claim_id=event.claim_id,
            )
        case Bot.Completed() | Bot.Failed() | Bot.Released():
            return replace(
                bot, version=bot.version + 1, updated_at=event.at, order_id=None, claim_id=None
            )
        case Bot.Deleted():
            return bot.after(event, deleted_at=event.at)
    raise AssertionError(f"a bot does not know {event}")


BOT: Decider[Bot] = Decider(
    name="bot",
    state=Bot,
    events=events_of(Bot),
    evolve=evolve,
    finished=lambda bot: bot.deleted_at is not None,
)
