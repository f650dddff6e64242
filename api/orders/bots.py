"""What can be done with bots over HTTP, other than reading them."""

from http import HTTPStatus
from typing import Literal, TypedDict
from uuid import UUID

from msgspec import UNSET, UnsetType
from starlette.routing import Route
from uuid_utils.compat import uuid7

from daybook.api.endpoints.command import (
    Body,
    CommandEndpoint,
    EmptyBody,
    RequestContext,
    WithReason,
)
from daybook.api.http.query_parameters import Parameters
from daybook.api.http.request_reader import Reason, unprocessable
from daybook.api.http.timestamps import BotJSON, OrderJSON, bot_json, order_json
from daybook.api.keys.access import ADMIN, BOT, STAFF
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
    """Either of them: `status` stops the bot, `failuresMax` limits its failures."""

    status: Literal["IDLE"] | None = None
    current_order_id: UnsetType | None = UNSET
    """Can only be null, and with the status IDLE: a bot that is idle has no order."""

    failures_max: FailuresMax | None = None


class Restoration(Body, frozen=True):
    """Restoring a bot takes a reason: why it works now."""

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


def create(new: NewBot, _call: RequestContext) -> CreateBot:
    """Create a bot."""
    return CreateBot(
        bot_id=uuid7(),
        auto_claim=new.auto_claim,
        completion=new.completion,
        failures_max=new.failures_max,
    )


def change(to: BotChange, context: RequestContext) -> Command[Bot]:
    """Stop a bot, so that its order goes back to its place in the queue; or limit its failures in a
    row, which takes the scope admin."""
    match to:
        case BotChange(status="IDLE", failures_max=None):
            return ReleaseBot(bot_id=context.id, because=to.reason)
        case BotChange(status=None, failures_max=int(failures_max), current_order_id=UnsetType()):
            context.caller.must_have(ADMIN)
            return ConfigureBot(bot_id=context.id, failures_max=failures_max, because=to.reason)
    raise unprocessable(
        "schema", "The body does not fit: it must be {status: IDLE} or {failuresMax}."
    )


def restore(asked: Restoration, context: RequestContext) -> RestoreBot:
    """Bring a bot back that was taken out of service after its failures."""
    return RestoreBot(bot_id=context.id, because=asked.reason)


def delete(asked: WithReason, context: RequestContext) -> DeleteBot:
    """Delete a bot; its order goes back to its place in the queue."""
    only_if_idle = context.parameters.only_if_idle
    return DeleteBot(bot_id=context.id, only_if_idle=only_if_idle, because=asked.reason)


def claim(_: EmptyBody, context: RequestContext) -> ClaimOrder:
    """Give the most urgent pending order to this bot."""
    return claim_for(context.id, context)


def claim_for(bot_id: UUID, context: RequestContext) -> ClaimOrder:
    return ClaimOrder(
        bot_id=bot_id,
        claim_id=uuid7(),
        seconds=context.settings.processing_delay_seconds,
        aging_seconds=context.settings.vip_aging_seconds,
    )


def created(bot: Bot) -> BotAnswer:
    return {"bot": bot_json(bot), "message": "Bot created successfully"}


def changed(bot: Bot) -> BotAnswer:
    return {"bot": bot_json(bot), "message": "Bot updated successfully"}


def restored(bot: Bot) -> BotAnswer:
    return {"bot": bot_json(bot), "message": "Bot restored successfully"}


def deleted(bot: Bot) -> BotAnswer:
    return {"bot": bot_json(bot), "message": "Bot deleted successfully"}


def claimed(answer: ClaimResult) -> ClaimAnswer:
    return {
        "order": order_json(answer.order) if answer.order else None,
        "bot": bot_json(answer.bot),
        "message": "Order claimed" if answer.order else "No pending orders",
    }


CREATE = CommandEndpoint(
    "POST",
    "/api/bots",
    takes=NewBot,
    scope=ADMIN,
    command=create,
    shape=created,
    status=HTTPStatus.CREATED,
)
CHANGE = CommandEndpoint(
    "PATCH", "/api/bots/{id}", takes=BotChange, scope=BOT | STAFF, command=change, shape=changed
)
RESTORE = CommandEndpoint(
    "POST",
    "/api/bots/{id}/restore",
    takes=Restoration,
    scope=ADMIN,
    command=restore,
    shape=restored,
)
CLAIM = CommandEndpoint(
    "POST", "/api/bots/{id}/claim", takes=EmptyBody, scope=BOT, command=claim, shape=claimed
)
DELETE = CommandEndpoint(
    "DELETE",
    "/api/bots/{id}",
    takes=WithReason,
    scope=ADMIN,
    command=delete,
    shape=deleted,
    parameters=Dismissal,
)

routes: list[Route] = [write.route for write in (CLAIM, CREATE, CHANGE, DELETE, RESTORE)]
