"""Commands on bots: create, change, claim, restore, delete."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Literal, TypedDict
from uuid import UUID

from msgspec import UNSET, UnsetType
from starlette.routing import Route
from uuid_utils.compat import uuid7

from daybook.api.endpoints.command import (
    Body,
    EmptyBody,
    RequestContext,
    WithReason,
    WriteEndpoint,
)
from daybook.api.http.query_parameters import Parameters
from daybook.api.http.request_reader import Reason, unprocessable
from daybook.api.keys.access import ADMIN, BOT, STAFF
from daybook.api.orders.responses import BotJSON, OrderJSON, bot_json, order_json
from daybook.domain.command import Command
from daybook.domain.orders.bot import FAILURES_MAX, Bot
from daybook.domain.orders.claim import CompletionMode
from daybook.domain.orders.commands import (
    ClaimOrder,
    ClaimResult,
    ConfigureBot,
    CreateBot,
    DeleteBot,
    ReleaseBot,
    RestoreBot,
)
from daybook.domain.values import FailuresMax


class NewBot(Body, frozen=True):
    auto_claim: bool = False
    completion: CompletionMode = CompletionMode.TIMER
    failures_max: FailuresMax = FAILURES_MAX


class BotChange(WithReason, frozen=True, kw_only=True):
    """Exactly one change: `status` stops the bot, `failuresMax` limits its failures in a row."""

    status: Literal["IDLE"] | None = None
    current_order_id: UnsetType | None = UNSET
    """Must be null, and only with status IDLE: an idle bot has no order."""

    failures_max: FailuresMax | None = None


class Restoration(Body, frozen=True):
    reason: Reason


class Dismissal(Parameters, frozen=True):
    only_if_idle: bool = False


class BotAnswer(TypedDict):
    bot: BotJSON
    message: str


class ClaimAnswer(TypedDict):
    order: OrderJSON | None
    bot: BotJSON
    message: str


def create(body: NewBot, _context: RequestContext) -> CreateBot:
    """Create a bot."""
    return CreateBot(
        bot_id=uuid7(),
        auto_claim=body.auto_claim,
        completion=body.completion,
        failures_max=body.failures_max,
    )


def change(to: BotChange, context: RequestContext) -> Command[Bot]:
    """Stop a bot and return its order to its position in the queue; or limit its failures in a row,
    which requires the scope admin."""
    match to:
        case BotChange(status="IDLE", failures_max=None):
            return ReleaseBot(bot_id=context.id, because=to.reason)
        case BotChange(status=None, failures_max=int(failures_max), current_order_id=UnsetType()):
            context.caller.must_have(ADMIN)
            return ConfigureBot(bot_id=context.id, failures_max=failures_max, because=to.reason)
    raise unprocessable("schema", "The body must be {status: IDLE} or {failuresMax}.")


def restore(body: Restoration, context: RequestContext) -> RestoreBot:
    """Return a bot to service after it was disabled for too many failures."""
    return RestoreBot(bot_id=context.id, because=body.reason)


def delete(body: WithReason, context: RequestContext) -> DeleteBot:
    """Delete a bot; its order returns to its position in the queue."""
    only_if_idle = context.parameters.only_if_idle
    return DeleteBot(bot_id=context.id, only_if_idle=only_if_idle, because=body.reason)


def claim(_: EmptyBody, context: RequestContext) -> ClaimOrder:
    """Claim the most urgent pending order for this bot."""
    return claim_for(context.id, context)


def claim_for(bot_id: UUID, context: RequestContext) -> ClaimOrder:
    return ClaimOrder(
        bot_id=bot_id,
        claim_id=uuid7(),
        seconds=context.settings.processing_delay_seconds,
        aging_seconds=context.settings.vip_aging_seconds,
    )


def bot_with_message(message: str) -> Callable[[Bot], BotAnswer]:
    def bot_answer_json(bot: Bot) -> BotAnswer:
        return {"bot": bot_json(bot), "message": message}

    return bot_answer_json


def claim_result_json(result: ClaimResult) -> ClaimAnswer:
    return {
        "order": order_json(result.order) if result.order else None,
        "bot": bot_json(result.bot),
        "message": "Order claimed" if result.order else "No pending orders",
    }


CREATE = WriteEndpoint(
    "POST",
    "/api/bots",
    scope=ADMIN,
    command=create,
    shape=bot_with_message("Bot created successfully"),
    status=HTTPStatus.CREATED,
)
CHANGE = WriteEndpoint(
    "PATCH",
    "/api/bots/{id}",
    scope=BOT | STAFF,
    command=change,
    shape=bot_with_message("Bot updated successfully"),
)
RESTORE = WriteEndpoint(
    "POST",
    "/api/bots/{id}/restore",
    scope=ADMIN,
    command=restore,
    shape=bot_with_message("Bot restored successfully"),
)
CLAIM = WriteEndpoint(
    "POST", "/api/bots/{id}/claim", scope=BOT, command=claim, shape=claim_result_json
)
DELETE = WriteEndpoint(
    "DELETE",
    "/api/bots/{id}",
    scope=ADMIN,
    command=delete,
    shape=bot_with_message("Bot deleted successfully"),
    parameters=Dismissal,
)

routes: list[Route] = [write.route for write in (CLAIM, CREATE, CHANGE, DELETE, RESTORE)]
