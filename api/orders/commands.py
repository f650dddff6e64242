"""Commands on orders: create, change, fail, delete, restore, requeue, clear."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated, Any, TypedDict
from uuid import UUID

from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import replace
from starlette.routing import Route
from uuid_utils.compat import uuid7

from daybook.api.endpoints.command import (
    Body,
    RequestContext,
    Submission,
    WithReason,
    WriteEndpoint,
)
from daybook.api.http.problems import RETRY_AFTER, BadInputError
from daybook.api.http.request_reader import (
    BATCH_BODY_BYTES_MAX,
    BATCH_MAX,
    Id,
    unprocessable,
)
from daybook.api.keys.access import ADMIN, BOT, CLIENT, STAFF, VIP
from daybook.api.orders.responses import OrderJSON, order_json
from daybook.domain.command import AllOrNothing, Command
from daybook.domain.orders.claim import CompletedVia
from daybook.domain.orders.commands import (
    AssignOrder,
    ClaimResult,
    ClearCompleteOrders,
    Cleared,
    ClearOrders,
    CompleteOrder,
    CreateOrder,
    DeleteOrder,
    FailOrder,
    ReleaseOrder,
    RequeueOrder,
    RestoreOrder,
)
from daybook.domain.orders.order import Order, OrderDetails, OrderKind, OrderStatus
from daybook.domain.values import Error
from daybook.eventlog.origin import Receipt
from daybook.projections.orders.order_list import find_complete
from daybook.projections.snapshot import ListBehindError

CLEARED_AT_ONCE_MAX = 1000


class NewOrder(OrderDetails, frozen=True, kw_only=True):
    type: OrderKind


class NewOrders(Body, frozen=True):
    orders: Annotated[list[NewOrder], Meta(min_length=1, max_length=BATCH_MAX)]


class OrderChange(WithReason, frozen=True, kw_only=True):
    status: OrderStatus
    bot_id: Id | None = None
    claim_id: Id | None = None
    deleted_at: UnsetType | None = UNSET
    """Null with status PENDING restores a deleted order."""


class Failure(Body, frozen=True):
    claim_id: Id
    error: Error
    retryable: bool = True


class OrderAnswer(TypedDict):
    order: OrderJSON
    message: str


class OrdersAnswer(TypedDict):
    orders: list[OrderJSON]


class ClearedAnswer(TypedDict):
    """`cleared` counts open orders, `completed` counts complete ones."""

    message: str
    cleared: int
    completed: int


def create(new: NewOrder, context: RequestContext) -> CreateOrder:
    """Create an order. A VIP order requires the scope client:vip."""
    if new.type is OrderKind.VIP:
        context.caller.must_have(VIP)
    return CreateOrder(
        order_id=uuid7(),
        kind=new.type,
        details=new,
        attempts_max=context.settings.attempts_max,
        owner=context.caller.owner,
    )


def create_batch(new: NewOrders, context: RequestContext) -> AllOrNothing:
    """Create up to 1,000 orders, all or none."""
    return AllOrNothing([create(one, context) for one in new.orders])


def change(to: OrderChange, context: RequestContext) -> Command[Any]:
    """Assign an order to a bot, return it to the queue, or complete it; staff may also restore a
    deleted order."""
    if to.deleted_at is None:
        return _restore_by_change(to, context)
    match to:
        case OrderChange(
            status=OrderStatus.PROCESSING, bot_id=str(bot_id), claim_id=None, reason=None
        ):
            return AssignOrder(
                order_id=context.id,
                bot_id=UUID(bot_id),
                claim_id=uuid7(),
                seconds=context.settings.processing_delay_seconds,
            )
        case OrderChange(status=OrderStatus.PENDING, bot_id=None, claim_id=claim_id):
            claim = _uuid(claim_id)
            return ReleaseOrder(order_id=context.id, claim_id=claim, because=to.reason)
        case OrderChange(status=OrderStatus.COMPLETE, bot_id=None, claim_id=claim_id, reason=None):
            via = CompletedVia.REPORT
            return CompleteOrder(order_id=context.id, claim_id=_uuid(claim_id), via=via)
    raise unprocessable(
        "schema",
        "The body must be {status: PROCESSING, botId}, {status: PENDING} or {status: COMPLETE}; "
        "the last two take a claimId to match, and only PENDING takes a reason.",
    )


def _restore_by_change(to: OrderChange, context: RequestContext) -> RestoreOrder:
    if to.status is not OrderStatus.PENDING or to.bot_id is not None or to.claim_id is not None:
        raise unprocessable(
            "schema",
            "deletedAt must be null, and only with {status: PENDING}.",
        )
    context.caller.must_have(STAFF)
    return RestoreOrder(order_id=context.id, because=to.reason)


def fail(failure: Failure, context: RequestContext) -> FailOrder:
    """Report a failed attempt: the order is retried, or dead."""
    return FailOrder(
        order_id=context.id,
        claim_id=UUID(failure.claim_id),
        error=failure.error,
        retryable=failure.retryable,
    )


def delete(body: WithReason, context: RequestContext) -> DeleteOrder:
    """Delete an order; its bot becomes idle."""
    return DeleteOrder(order_id=context.id, because=body.reason)


def restore(body: WithReason, context: RequestContext) -> RestoreOrder:
    """Restore a deleted order."""
    return RestoreOrder(order_id=context.id, because=body.reason)


def requeue(body: WithReason, context: RequestContext) -> RequeueOrder:
    """Return a dead order to the queue."""
    return RequeueOrder(order_id=context.id, because=body.reason)


def clear(body: WithReason, _context: RequestContext) -> ClearOrders:
    """Delete all open orders and remove all complete ones from the lists. Histories keep them, and
    their numbers are not reused."""
    return ClearOrders(because=body.reason)


async def clears_in_parts(clearing: Submission) -> Receipt:
    """One command clears all open orders and the first 1,000 complete ones. Further commands clear
    the rest in parts of 1,000, so that no command delays others for long."""
    context = clearing.context
    try:
        complete = await context.service.read(find_complete)
    except ListBehindError as error:
        raise BadInputError(
            HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", str(error), headers=RETRY_AFTER
        ) from error
    first, *others = [
        complete[start : start + CLEARED_AT_ONCE_MAX]
        for start in range(0, len(complete) or 1, CLEARED_AT_ONCE_MAX)
    ]
    further_count = len(complete) - len(first)
    command = replace(clearing.command, complete=first, further_count=further_count)
    receipt = await replace(clearing, command=command).submit()
    if receipt.replayed_response is None:
        for part in others:
            rest = ClearCompleteOrders(complete=part, because=clearing.request.reason)
            await replace(clearing, command=rest, key=None).submit()
    return receipt


def order_with_message(message: str) -> Callable[[Order], OrderAnswer]:
    def order_answer_json(order: Order) -> OrderAnswer:
        return {"order": order_json(order), "message": message}

    return order_answer_json


def orders_json(orders: list[Order]) -> OrdersAnswer:
    return {"orders": [order_json(order) for order in orders]}


def order_changed_json(result: Order | ClaimResult) -> OrderAnswer:
    order = result.order if isinstance(result, ClaimResult) else result
    assert order is not None, "assigning a missing order is refused"
    return {"order": order_json(order), "message": "Order updated successfully"}


def cleared_json(counts: Cleared) -> ClearedAnswer:
    return {
        "message": "All orders cleared successfully",
        "cleared": counts.open_count,
        "completed": counts.complete_count,
    }


def _uuid(text: str | None) -> UUID | None:
    return None if text is None else UUID(text)


CREATE = WriteEndpoint(
    "POST",
    "/api/orders",
    scope=CLIENT | STAFF,
    command=create,
    shape=order_with_message("Order created successfully"),
    status=HTTPStatus.CREATED,
)
CREATE_BATCH = WriteEndpoint(
    "POST",
    "/api/orders/batch",
    scope=CLIENT | STAFF,
    command=create_batch,
    shape=orders_json,
    status=HTTPStatus.CREATED,
    body_bytes_max=BATCH_BODY_BYTES_MAX,
)
CHANGE = WriteEndpoint(
    "PATCH", "/api/orders/{id}", scope=BOT | STAFF, command=change, shape=order_changed_json
)
FAIL = WriteEndpoint(
    "POST",
    "/api/orders/{id}/fail",
    scope=BOT | STAFF,
    command=fail,
    shape=order_with_message("Failure recorded"),
)
CLEAR = WriteEndpoint(
    "DELETE",
    "/api/orders/clear",
    scope=ADMIN,
    command=clear,
    shape=cleared_json,
    submits=clears_in_parts,
)
DELETE = WriteEndpoint(
    "DELETE",
    "/api/orders/{id}",
    scope=STAFF,
    command=delete,
    shape=order_with_message("Order deleted successfully"),
)
RESTORE = WriteEndpoint(
    "POST",
    "/api/orders/{id}/restore",
    scope=STAFF,
    command=restore,
    shape=order_with_message("Order restored successfully"),
)
REQUEUE = WriteEndpoint(
    "POST",
    "/api/orders/{id}/requeue",
    scope=ADMIN,
    command=requeue,
    shape=order_with_message("Order requeued successfully"),
)

# Routes match in this order: frequent ones first, and a fixed path before {id} of the same method.
routes: list[Route] = [
    write.route for write in (CREATE, CHANGE, CREATE_BATCH, CLEAR, DELETE, FAIL, RESTORE, REQUEUE)
]
