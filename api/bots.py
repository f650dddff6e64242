"""What can be done with bots over HTTP, other than reading them."""

from http import HTTPStatus
from typing import Literal, TypedDict
from uuid import UUID

from msgspec import UNSET, UnsetType
from starlette.routing import Route
from uuid_utils.compat import uuid7

from api.access import ADMIN, BOT, STAFF
from api.commands import Body, Call, Nothing, Stated, Write
from api.parameters import Parameters
from api.shapes import BotJSON, OrderJSON, bot_json, order_json
from domain.bot import Bot
from domain.claim import CompletionMode
from domain.kitchen import Claimed, ClaimOrder, CreateBot, DeleteBot, ReleaseBot


class NewBot(Body, frozen=True):
    auto_claim: bool = False
    completion: CompletionMode = CompletionMode.TIMER


class BotChange(Stated, frozen=True, kw_only=True):
    status: Literal["IDLE"]
    current_order_id: UnsetType | None = UNSET
    """Can only be null: a bot that is idle has no order."""


class Dismissal(Parameters, frozen=True):
    only_if_idle: bool = False


class BotAnswer(TypedDict):
    bot: BotJSON
    message: str


class ClaimAnswer(TypedDict):
    order: OrderJSON | None
    bot: BotJSON
    message: str


def create(new: NewBot, _call: Call) -> CreateBot:
    """Create a bot."""
    return CreateBot(bot_id=uuid7(), auto_claim=new.auto_claim, completion=new.completion)


def stop(to: BotChange, call: Call) -> ReleaseBot:
    """Stop a bot; its order goes back to its place in the queue."""
    return ReleaseBot(bot_id=call.id, because=to.reason)


def delete(asked: Stated, call: Call) -> DeleteBot:
    """Delete a bot; its order goes back to its place in the queue."""
    only_if_idle = call.parameters.only_if_idle
    return DeleteBot(bot_id=call.id, only_if_idle=only_if_idle, because=asked.reason)


def claim(_: Nothing, call: Call) -> ClaimOrder:
    """Give the most urgent pending order to this bot."""
    return claim_for(call.id, call)


def claim_for(bot_id: UUID, call: Call) -> ClaimOrder:
    return ClaimOrder(
        bot_id=bot_id,
        claim_id=uuid7(),
        seconds=call.settings.processing_delay_seconds,
        aging_seconds=call.settings.vip_aging_seconds,
    )


def created(bot: Bot) -> BotAnswer:
    return {"bot": bot_json(bot), "message": "Bot created successfully"}


def stopped(bot: Bot) -> BotAnswer:
    return {"bot": bot_json(bot), "message": "Bot updated successfully"}


def deleted(bot: Bot) -> BotAnswer:
    return {"bot": bot_json(bot), "message": "Bot deleted successfully"}


def claimed(answer: Claimed) -> ClaimAnswer:
    return {
        "order": order_json(answer.order) if answer.order else None,
        "bot": bot_json(answer.bot),
        "message": "Order claimed" if answer.order else "No pending orders",
    }


CREATE = Write(
    "POST",
    "/api/bots",
    takes=NewBot,
    scope=ADMIN,
    command=create,
    shape=created,
    status=HTTPStatus.CREATED,
)
STOP = Write(
    "PATCH", "/api/bots/{id}", takes=BotChange, scope=BOT | STAFF, command=stop, shape=stopped
)
CLAIM = Write(
    "POST", "/api/bots/{id}/claim", takes=Nothing, scope=BOT, command=claim, shape=claimed
)
DELETE = Write(
    "DELETE",
    "/api/bots/{id}",
    takes=Stated,
    scope=ADMIN,
    command=delete,
    shape=deleted,
    parameters=Dismissal,
)

routes: list[Route] = [write.route for write in (CLAIM, CREATE, STOP, DELETE)]
