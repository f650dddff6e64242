"""Orders and bots as JSON."""

from typing import Annotated, Literal, TypedDict
from uuid import UUID

from msgspec import Meta

from daybook.api.http.timestamps import Moment, moment
from daybook.domain.orders.bot import Bot
from daybook.domain.orders.claim import CompletionMode
from daybook.domain.orders.order import Order, OrderKind, OrderStatus


class OrderJSON(TypedDict):
    id: UUID
    orderNumber: int
    type: OrderKind
    status: OrderStatus
    userId: str | None
    botId: UUID | None
    claimId: UUID | None
    attempts: int
    createdAt: Moment
    processingStartedAt: Moment | None
    dueAt: Moment | None
    completedAt: Moment | None
    updatedAt: Moment
    deletedAt: Moment | None
    version: int


BotStatus = Annotated[
    Literal["IDLE", "PROCESSING", "DEAD"],
    Meta(description="DEAD: out of service after `failuresMax` consecutive failures."),
]


class BotJSON(TypedDict):
    """`errors` are those of the consecutive failures, the latest last."""

    id: UUID
    status: BotStatus
    currentOrderId: UUID | None
    autoClaim: bool
    completion: CompletionMode
    failuresMax: int
    failures: int
    errors: list[str]
    deadAt: Moment | None
    createdAt: Moment
    updatedAt: Moment
    deletedAt: Moment | None
    version: int


def order_json(order: Order) -> OrderJSON:
    claim = order.claim or order.completed_under
    return {
        "id": order.id,
        "orderNumber": order.number,
        "type": order.kind,
        "status": order.status,
        "userId": order.user_id,
        "botId": claim.bot_id if claim else None,
        "claimId": claim.id if claim else None,
        "attempts": order.attempts,
        "createdAt": moment(order.created_at),
        "processingStartedAt": moment(claim.started_at) if claim else None,
        "dueAt": moment(claim.until) if claim else None,
        "completedAt": moment(order.completed_at) if order.completed_at else None,
        "updatedAt": moment(order.updated_at),
        "deletedAt": moment(order.deleted_at) if order.deleted_at else None,
        "version": order.version,
    }


def bot_json(bot: Bot) -> BotJSON:
    return {
        "id": bot.id,
        "status": bot_status(bot),
        "currentOrderId": bot.order_id,
        "autoClaim": bot.auto_claim,
        "completion": bot.completion,
        "failuresMax": bot.failures_max,
        "failures": bot.failures,
        "errors": list(bot.errors),
        "deadAt": moment(bot.dead_at) if bot.dead_at else None,
        "createdAt": moment(bot.created_at),
        "updatedAt": moment(bot.updated_at),
        "deletedAt": moment(bot.deleted_at) if bot.deleted_at else None,
        "version": bot.version,
    }


def bot_status(bot: Bot) -> Literal["IDLE", "PROCESSING", "DEAD"]:
    if bot.dead_at is not None:
        return "DEAD"
    return "IDLE" if bot.order_id is None else "PROCESSING"
