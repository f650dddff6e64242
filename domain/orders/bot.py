"""A bot, which cooks one order at a time: the bot's side of an order's claim.

A bot with too many consecutive failed claims is a dead letter: out of service until an operator
restores it.
"""

from datetime import datetime
from typing import ClassVar
from uuid import UUID

from msgspec.structs import replace

from daybook.domain.errors import BotBusyError, BotDeadError, BotDeletedError, BotNotDeadError
from daybook.domain.event import Decider, Event, EventWithReason, State, events_of
from daybook.domain.orders.claim import CompletionMode, ReleaseReason

FAILURES_MAX = 5
# Recent errors kept, and characters of each: enough to recognise a common cause.
ERRORS_MAX = 10
ERROR_CHARACTERS_MAX = 500
NOT_REPORTED = "no report before the claim was due"


class Bot(State, frozen=True, kw_only=True, gc=False):
    created_at: datetime
    updated_at: datetime
    auto_claim: bool  # The server assigns the next order without a request
    completion: CompletionMode
    order_id: UUID | None = None
    claim_id: UUID | None = None
    failures_max: int = 0
    """Consecutive failed claims that take the bot out of service; 0 for no limit."""

    failures: int = 0  # Consecutive failed claims; not counted without a limit
    errors: tuple[str, ...] = ()  # The latest errors of those
    dead_at: datetime | None = None  # Out of service since
    deleted_at: datetime | None = None

    class Created(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "bot.created"
        bot_id: UUID
        auto_claim: bool
        completion: CompletionMode
        failures_max: int = 0  # 0 for bots created before the limit existed

    class Configured(EventWithReason, frozen=True, kw_only=True, gc=False):
        """A new limit resets the count."""

        topic: ClassVar[str] = "bot.configured"
        failures_max: int

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

    class Released(EventWithReason, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "bot.released"
        claim_id: UUID
        order_id: UUID
        reason: ReleaseReason

    class MovedToDLQ(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "bot.moved_to_dlq"
        reason: str
        failures: int
        errors: tuple[str, ...]

    class Restored(EventWithReason, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "bot.restored"

    class Deleted(EventWithReason, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "bot.deleted"


def configure(
    bot: Bot, *, failures_max: int, because: str | None = None, now: datetime
) -> Bot.Configured:
    require_not_deleted(bot)
    return Bot.Configured(at=now, failures_max=failures_max, because=because)


def claim(bot: Bot, *, claim_id: UUID, order_id: UUID, now: datetime) -> Bot.Claimed:
    require_idle(bot)
    return Bot.Claimed(at=now, claim_id=claim_id, order_id=order_id)


def require_idle(bot: Bot) -> None:
    require_not_deleted(bot)
    if bot.dead_at is not None:
        raise BotDeadError(bot.id, bot.failures, bot.errors[-1] if bot.errors else None)
    if bot.order_id is not None:
        raise BotBusyError(bot.id, bot.order_id)


def require_not_deleted(bot: Bot) -> None:
    if bot.deleted_at is not None:
        raise BotDeletedError(bot.id)


def complete(bot: Bot, *, now: datetime) -> Bot.Completed:
    order_id, claim_id = _current_claim(bot)
    return Bot.Completed(at=now, claim_id=claim_id, order_id=order_id)


def fail(bot: Bot, *, error: str, now: datetime) -> list[Event]:
    """Frees the bot, or takes it out of service at the failure limit."""
    order_id, claim_id = _current_claim(bot)
    failed = Bot.Failed(at=now, claim_id=claim_id, order_id=order_id, error=error)
    return [failed, *_move_to_dlq(bot, error, now)]


def release(
    bot: Bot, *, reason: ReleaseReason, because: str | None = None, now: datetime
) -> list[Event]:
    order_id, claim_id = _current_claim(bot)
    released = Bot.Released(
        at=now, claim_id=claim_id, order_id=order_id, reason=reason, because=because
    )
    return [released, *_move_to_dlq(bot, NOT_REPORTED, now)] if reason.counts else [released]


def _move_to_dlq(bot: Bot, error: str, now: datetime) -> list[Event]:
    failures = bot.failures + 1
    if not 0 < bot.failures_max <= failures:
        return []
    claims = "1 claim has" if failures == 1 else f"{failures} claims in a row have"
    reason, errors = f"{claims} failed", _append_error(bot.errors, error)
    return [Bot.MovedToDLQ(at=now, reason=reason, failures=failures, errors=errors)]


def restore(bot: Bot, *, because: str | None = None, now: datetime) -> Bot.Restored:
    require_not_deleted(bot)
    if bot.dead_at is None:
        raise BotNotDeadError(bot.id)
    return Bot.Restored(at=now, because=because)


def delete(bot: Bot, *, because: str | None = None, now: datetime) -> Bot.Deleted:
    require_not_deleted(bot)
    return Bot.Deleted(at=now, because=because)


def _current_claim(bot: Bot) -> tuple[UUID, UUID]:
    assert bot.order_id is not None, f"bot {bot.id} has no claim"
    assert bot.claim_id is not None
    return bot.order_id, bot.claim_id


def _append_error(errors: tuple[str, ...], error: str) -> tuple[str, ...]:
    return (*errors, error[:ERROR_CHARACTERS_MAX])[-ERRORS_MAX:]


def _after_failure(bot: Bot, event: Event, error: str) -> Bot:
    is_counted = bot.failures_max > 0
    return bot.after(
        event,
        order_id=None,
        claim_id=None,
        failures=bot.failures + 1 if is_counted else 0,
        errors=_append_error(bot.errors, error) if is_counted else (),
    )


def evolve(bot: Bot | None, event: Event) -> Bot:
    if isinstance(event, Bot.Created):
        return Bot(
            id=event.bot_id,
            version=1,
            created_at=event.at,
            updated_at=event.at,
            auto_claim=event.auto_claim,
            completion=event.completion,
            failures_max=event.failures_max,
        )
    assert bot is not None, f"{event} is the first event of a bot"
    match event:
        # Frequent events use `replace` directly: `after`, which packs keywords, takes twice as
        # long.
        case Bot.Claimed():
            return replace(
                bot,
                version=bot.version + 1,
                updated_at=event.at,
                order_id=event.order_id,
                claim_id=event.claim_id,
            )
        case Bot.Completed():
            return replace(
                bot,
                version=bot.version + 1,
                updated_at=event.at,
                order_id=None,
                claim_id=None,
                failures=0,
                errors=(),
            )
        case Bot.Failed():
            return _after_failure(bot, event, event.error)
        case Bot.Released():
            if event.reason.counts:
                return _after_failure(bot, event, NOT_REPORTED)
            return bot.after(event, order_id=None, claim_id=None)
        case Bot.Deleted():
            return bot.after(event, deleted_at=event.at)
    return _evolve_service(bot, event)


def _evolve_service(bot: Bot, event: Event) -> Bot:
    match event:
        case Bot.MovedToDLQ():
            return bot.after(event, dead_at=event.at, failures=event.failures, errors=event.errors)
        case Bot.Restored():
            return bot.after(event, dead_at=None, failures=0, errors=())
        case Bot.Configured():
            # A dead bot keeps the failures that took it out of service.
            count = {} if bot.dead_at is not None else {"failures": 0, "errors": ()}
            return bot.after(event, failures_max=event.failures_max, **count)
    raise AssertionError(f"unknown bot event {event}")


BOT: Decider[Bot] = Decider(
    name="bot",
    state=Bot,
    events=events_of(Bot),
    evolve=evolve,
    finished=lambda bot: bot.deleted_at is not None,
)
