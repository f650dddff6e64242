"""What can be done with orders over HTTP, other than reading them."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated, Any, TypedDict
from uuid import UUID

from msgspec import UNSET, Meta, UnsetType
from starlette.routing import Route
from uuid_utils.compat import uuid7

from daybook.api.endpoints.command import (
    REPLAYED,
    Body,
    CommandEndpoint,
    RawHeaders,
    RequestContext,
    WithReason,
    origin_of,
    stored_problem,
)
from daybook.api.http.problems import unavailable_response
from daybook.api.http.request_reader import (
    BATCH_BODY_BYTES_MAX,
    BATCH_MAX,
    USER_ID_CHARACTERS_MAX,
    Id,
    unprocessable,
)
from daybook.api.http.timestamps import OrderJSON, order_json
from daybook.api.keys.access import ADMIN, BOT, CLIENT, STAFF, VIP
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
from daybook.domain.orders.order import Order, OrderKind, OrderStatus
from daybook.domain.values import Error
from daybook.eventlog.origin import StoredResponse
from daybook.projections.orders.order_list import find_complete
from daybook.projections.snapshot import ListBehindError

COMPLETE = "daybook.complete_orders"
CLEARED_AT_ONCE_MAX = 1000


class NewOrder(Body, frozen=True):
    type: OrderKind
    user_id: Annotated[str, Meta(min_length=1, max_length=USER_ID_CHARACTERS_MAX)] | None = None


class NewOrders(Body, frozen=True):
    orders: Annotated[list[NewOrder], Meta(min_length=1, max_length=BATCH_MAX)]


class OrderChange(WithReason, frozen=True, kw_only=True):
    status: OrderStatus
    bot_id: Id | None = None
    claim_id: Id | None = None
    deleted_at: UnsetType | None = UNSET
    """Null with the status PENDING takes back that the order was deleted."""


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
    """`cleared` counts orders that were open, `completed` those that were complete."""

    message: str
    cleared: int
    completed: int


def create(new: NewOrder, context: RequestContext) -> CreateOrder:
    """Create an order. One of a VIP takes the scope client:vip."""
    if new.type is OrderKind.VIP:
        context.caller.must_have(VIP)
    return CreateOrder(
        order_id=uuid7(),
        kind=new.type,
        attempts_max=context.settings.attempts_max,
        user_id=new.user_id,
        owner=context.caller.owner,
    )


def create_batch(new: NewOrders, context: RequestContext) -> AllOrNothing:
    """Create up to 1,000 orders, all or none."""
    return AllOrNothing([create(one, context) for one in new.orders])


def change(to: OrderChange, context: RequestContext) -> Command[Any]:
    """Give an order to a bot, put it back into the queue, or complete it; or, as staff, take back
    that it was deleted."""
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
            held = _uuid(claim_id)
            return ReleaseOrder(order_id=context.id, claim_id=held, because=to.reason)
        case OrderChange(status=OrderStatus.COMPLETE, bot_id=None, claim_id=claim_id, reason=None):
            via = CompletedVia.REPORT
            return CompleteOrder(order_id=context.id, claim_id=_uuid(claim_id), via=via)
    raise unprocessable(
        "schema",
        "The body does not fit: it must be {status: PROCESSING, botId}, {status: PENDING} or "
        "{status: COMPLETE}, the last two with a claimId if only that claim is meant, and a reason "
        "only with PENDING.",
    )


def _restore_by_change(to: OrderChange, context: RequestContext) -> RestoreOrder:
    if to.status is not OrderStatus.PENDING or to.bot_id is not None or to.claim_id is not None:
        raise unprocessable(
            "schema",
            "The body does not fit: deletedAt can only be null, and only with {status: PENDING}.",
        )
    context.caller.must_have(STAFF)
    return RestoreOrder(order_id=context.id, because=to.reason)


def fail(failure: Failure, context: RequestContext) -> FailOrder:
    """Report that cooking failed; the order is tried again, or is dead."""
    return FailOrder(
        order_id=context.id,
        claim_id=UUID(failure.claim_id),
        error=failure.error,
        retryable=failure.retryable,
    )


def delete(asked: WithReason, context: RequestContext) -> DeleteOrder:
    """Delete an order; a bot that works on it is free again."""
    return DeleteOrder(order_id=context.id, because=asked.reason)


def restore(asked: WithReason, context: RequestContext) -> RestoreOrder:
    """Take back that an order was deleted."""
    return RestoreOrder(order_id=context.id, because=asked.reason)


def requeue(asked: WithReason, context: RequestContext) -> RequeueOrder:
    """Put a dead order back into the queue."""
    return RequeueOrder(order_id=context.id, because=asked.reason)


def clear(asked: WithReason, context: RequestContext) -> ClearOrders:
    """Delete every order that is open and take every complete one out of the lists. Histories keep
    them all, and their numbers are not used again."""
    complete: Sequence[UUID] = context.scope[COMPLETE]
    return ClearOrders(
        complete=complete[:CLEARED_AT_ONCE_MAX],
        further_count=len(complete[CLEARED_AT_ONCE_MAX:]),
        because=asked.reason,
    )


class ClearEndpoint(CommandEndpoint[WithReason, Cleared]):
    """One command clears all open orders and the first complete ones. Further commands clear the
    other complete orders in parts, so that no command holds up others for long."""

    async def answer(
        self, context: RequestContext, body: bytes
    ) -> tuple[StoredResponse, RawHeaders]:
        try:
            complete = await context.service.read(find_complete)
        except ListBehindError as error:
            return stored_problem(unavailable_response(str(error))), []
        context.scope[COMPLETE] = complete
        answer, headers = await super().answer(context, body)
        if answer.status == self.status and REPLAYED not in headers:
            because = self.read(context, body).reason
            for first in range(CLEARED_AT_ONCE_MAX, len(complete), CLEARED_AT_ONCE_MAX):
                part = complete[first : first + CLEARED_AT_ONCE_MAX]
                command = ClearCompleteOrders(complete=part, because=because)
                await context.submit(command, origin_of(context, None, context.correlation), None)
        return answer, headers


def created(order: Order) -> OrderAnswer:
    return {"order": order_json(order), "message": "Order created successfully"}


def all_created(orders: list[Order]) -> OrdersAnswer:
    return {"orders": [order_json(order) for order in orders]}


def changed(answer: Order | ClaimResult) -> OrderAnswer:
    order = answer.order if isinstance(answer, ClaimResult) else answer
    assert order is not None, "an order that was named is there, or it was refused"
    return {"order": order_json(order), "message": "Order updated successfully"}


def failed(order: Order) -> OrderAnswer:
    return {"order": order_json(order), "message": "Failure recorded"}


def deleted(order: Order) -> OrderAnswer:
    return {"order": order_json(order), "message": "Order deleted successfully"}


def restored(order: Order) -> OrderAnswer:
    return {"order": order_json(order), "message": "Order restored successfully"}


def requeued(order: Order) -> OrderAnswer:
    return {"order": order_json(order), "message": "Order requeued successfully"}


def cleared(counts: Cleared) -> ClearedAnswer:
    return {
        "message": "All orders cleared successfully",
        "cleared": counts.open_count,
        "completed": counts.complete_count,
    }


def _uuid(text: str | None) -> UUID | None:
    return None if text is None else UUID(text)


CREATE = CommandEndpoint(
    "POST",
    "/api/orders",
    takes=NewOrder,
    scope=CLIENT | STAFF,
    command=create,
    shape=created,
    status=HTTPStatus.CREATED,
)
CREATE_BATCH = CommandEndpoint(
    "POST",
    "/api/orders/batch",
    takes=NewOrders,
    scope=CLIENT | STAFF,
    command=create_batch,
    shape=all_created,
    status=HTTPStatus.CREATED,
    body_bytes_max=BATCH_BODY_BYTES_MAX,
)
CHANGE = CommandEndpoint(
    "PATCH", "/api/orders/{id}", takes=OrderChange, scope=BOT | STAFF, command=change, shape=changed
)
FAIL = CommandEndpoint(
    "POST", "/api/orders/{id}/fail", takes=Failure, scope=BOT | STAFF, command=fail, shape=failed
)
CLEAR = ClearEndpoint(
    "DELETE", "/api/orders/clear", takes=WithReason, scope=ADMIN, command=clear, shape=cleared
)
DELETE = CommandEndpoint(
    "DELETE", "/api/orders/{id}", takes=WithReason, scope=STAFF, command=delete, shape=deleted
)
RESTORE = CommandEndpoint(
    "POST",
    "/api/orders/{id}/restore",
    takes=WithReason,
    scope=STAFF,
    command=restore,
    shape=restored,
)
REQUEUE = CommandEndpoint(
    "POST",
    "/api/orders/{id}/requeue",
    takes=WithReason,
    scope=ADMIN,
    command=requeue,
    shape=requeued,
)

# The busy ones come first. A path of its own comes before the one that takes any id, where both
# take the same method.
routes: list[Route] = [
    write.route for write in (CREATE, CHANGE, CREATE_BATCH, CLEAR, DELETE, FAIL, RESTORE, REQUEUE)
]
