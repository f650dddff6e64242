"""A guest's order: pending, cooked under one claim at a time, complete once.

An order that fails too often is dead until an operator requeues it. A deleted order can be restored
with its number, and so with its position.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import ClassVar
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from daybook.domain.claim import require_claim
from daybook.domain.errors import (
    OrderDeletedError,
    OrderNotDeadError,
    OrderNotDeletedError,
    OrderNotPendingError,
)
from daybook.domain.event import Decider, Event, EventWithReason, State, add_seconds, events_of
from daybook.domain.orders.claim import CompletedVia, CompletionMode, OrderClaim, ReleaseReason
from daybook.domain.values import Text


class OrderKind(StrEnum):
    NORMAL = "NORMAL"
    VIP = "VIP"


# Pending orders are claimed by rank, then by number: a VIP goes first.
ORDER_RANKS: Mapping[OrderKind, int] = {OrderKind.VIP: 0, OrderKind.NORMAL: 1}


class OrderStatus(StrEnum):
    PENDING = "PENDING"
    PROCESSING = "PROCESSING"
    COMPLETE = "COMPLETE"
    DEAD = "DEAD"


# Module constants: an enum member lookup takes five times as long as a global.
_PENDING, _COMPLETE = OrderStatus.PENDING, OrderStatus.COMPLETE


class OrderDetails(
    Struct,
    frozen=True,
    kw_only=True,
    gc=False,
    rename="camel",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """The fields that a client chooses, with their bounds; the body of a request extends it."""

    user_id: Text | None = None


class Order(State, frozen=True, kw_only=True, gc=False):
    number: int
    kind: OrderKind
    status: OrderStatus
    attempts: int
    attempts_max: int
    created_at: datetime
    updated_at: datetime
    user_id: str | None = None
    claim: OrderClaim | None = None  # The current claim; None once complete
    completed_at: datetime | None = None
    completed_under: OrderClaim | None = None
    """The claim that completed the order, to show which bot cooked it."""

    deleted_at: datetime | None = None
    error: str | None = None
    owner: str | None = None  # The restaurant or API key that created it; None in open mode

    class Created(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "order.created"
        status_after: ClassVar[OrderStatus] = OrderStatus.PENDING
        order_id: UUID
        number: int
        kind: OrderKind
        attempts_max: int
        user_id: str | None = None
        owner: str | None = None

    class Claimed(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "order.claimed"
        status_after: ClassVar[OrderStatus] = OrderStatus.PROCESSING
        claim_id: UUID
        bot_id: UUID
        due_at: datetime
        mode: CompletionMode
        attempt: int
        aged: bool = False  # Claimed before a VIP order, because it had waited for the aging time
        assigned: bool = False  # Given to this bot by an operator, regardless of urgency

    class Completed(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "order.completed"
        status_after: ClassVar[OrderStatus] = OrderStatus.COMPLETE
        claim_id: UUID
        via: CompletedVia

    class Failed(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "order.failed"
        status_after: ClassVar[OrderStatus] = OrderStatus.PENDING
        claim_id: UUID
        error: str
        retryable: bool

    class Released(EventWithReason, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "order.released"
        status_after: ClassVar[OrderStatus] = OrderStatus.PENDING
        claim_id: UUID
        reason: ReleaseReason

    class MovedToDLQ(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "order.moved_to_dlq"
        status_after: ClassVar[OrderStatus] = OrderStatus.DEAD
        reason: str

    class Requeued(EventWithReason, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "order.requeued"
        status_after: ClassVar[OrderStatus] = OrderStatus.PENDING

    class Deleted(EventWithReason, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "order.deleted"

    class Restored(EventWithReason, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "order.restored"

    @property
    def is_ready(self) -> bool:
        return self.status is _PENDING and self.deleted_at is None


def create(
    details: OrderDetails,
    *,
    order_id: UUID,
    number: int,
    kind: OrderKind,
    attempts_max: int,
    owner: str | None,
    now: datetime,
) -> Order.Created:
    return Order.Created(
        at=now,
        order_id=order_id,
        number=number,
        kind=kind,
        attempts_max=attempts_max,
        user_id=details.user_id,
        owner=owner,
    )


def has_aged(order: Order, aging_seconds: float | None, now: datetime) -> bool:
    """Whether a NORMAL order has waited so long that it ranks as a VIP order."""
    if aging_seconds is None or order.kind is OrderKind.VIP:
        return False
    return now - order.created_at >= timedelta(seconds=aging_seconds)


def urgency(order: Order, *, is_aged: bool = False) -> tuple[int, int]:
    """The sort key in which bots claim pending orders: VIP orders and aged ones first, then by
    number. The live table stores the rank in a column, which its index and all lists use."""
    return min(ORDER_RANKS.values()) if is_aged else ORDER_RANKS[order.kind], order.number


def claim(
    order: Order,
    *,
    claim_id: UUID,
    bot_id: UUID,
    mode: CompletionMode,
    seconds: float,
    aged: bool = False,
    assigned: bool = False,
    now: datetime,
) -> Order.Claimed:
    if not order.is_ready:
        raise OrderNotPendingError(order.id, _status_text(order))
    return Order.Claimed(
        at=now,
        claim_id=claim_id,
        bot_id=bot_id,
        due_at=add_seconds(now, seconds),
        mode=mode,
        attempt=order.attempts + 1,
        aged=aged,
        assigned=assigned,
    )


def complete(order: Order, *, claim_id: UUID, via: CompletedVia, now: datetime) -> Order.Completed:
    """Only the current claim completes the order: a late callback changes nothing."""
    require_claim("order", order, claim_id)
    return Order.Completed(at=now, claim_id=claim_id, via=via)


def fail(
    order: Order, *, claim_id: UUID, error: str, retryable: bool, now: datetime
) -> list[Event]:
    """Back to its position, or to the dead letters if not retryable or out of attempts."""
    require_claim("order", order, claim_id)
    failed = Order.Failed(at=now, claim_id=claim_id, error=error, retryable=retryable)
    if retryable and order.attempts < order.attempts_max:
        return [failed]
    reason = "attempts exhausted" if retryable else "not retryable"
    return [failed, Order.MovedToDLQ(at=now, reason=reason)]


def release(
    order: Order,
    *,
    claim_id: UUID,
    reason: ReleaseReason,
    because: str | None = None,
    now: datetime,
) -> list[Event]:
    require_claim("order", order, claim_id)
    released = Order.Released(at=now, claim_id=claim_id, reason=reason, because=because)
    if reason.counts and order.attempts >= order.attempts_max:
        return [released, Order.MovedToDLQ(at=now, reason="attempts exhausted")]
    return [released]


def requeue(order: Order, *, because: str | None = None, now: datetime) -> Order.Requeued:
    if order.status is not OrderStatus.DEAD or order.deleted_at is not None:
        raise OrderNotDeadError(order.id, _status_text(order))
    return Order.Requeued(at=now, because=because)


def delete(order: Order, *, because: str | None = None, now: datetime) -> Order.Deleted:
    if order.deleted_at is not None:
        raise OrderDeletedError(order.id)
    return Order.Deleted(at=now, because=because)


def restore(order: Order, *, because: str | None = None, now: datetime) -> Order.Restored:
    if order.deleted_at is None:
        raise OrderNotDeletedError(order.id)
    return Order.Restored(at=now, because=because)


def _status_text(order: Order) -> str:
    return "deleted" if order.deleted_at is not None else order.status.value


def _apply_created(event: Order.Created) -> Order:
    return Order(
        id=event.order_id,
        version=1,
        number=event.number,
        kind=event.kind,
        status=event.status_after,
        attempts=0,
        attempts_max=event.attempts_max,
        created_at=event.at,
        updated_at=event.at,
        user_id=event.user_id,
        owner=event.owner,
    )


def evolve(order: Order | None, event: Event) -> Order:
    if isinstance(event, Order.Created):
        return _apply_created(event)
    assert order is not None, f"{event} is the first event of an order"
    match event:
        # Frequent events use `replace` directly: `after`, which packs keywords, takes twice as
        # long.
        case Order.Claimed():
            return replace(
                order,
                version=order.version + 1,
                updated_at=event.at,
                status=event.status_after,
                claim=OrderClaim(event.claim_id, event.at, event.due_at, event.bot_id, event.mode),
                attempts=event.attempt,
            )
        case Order.Completed():
            return replace(
                order,
                version=order.version + 1,
                updated_at=event.at,
                status=event.status_after,
                claim=None,
                completed_at=event.at,
                completed_under=order.claim,
                error=None,
            )
        case Order.Failed():
            return order.after(event, claim=None, error=event.error)
        case Order.Released():
            attempts = order.attempts if event.reason.counts else order.attempts - 1
            return order.after(event, claim=None, attempts=attempts)
        case Order.MovedToDLQ():
            return order.after(event, error=order.error or event.reason)
        case Order.Requeued():
            return order.after(event, attempts=0, error=None)
        case Order.Deleted():
            return order.after(event, deleted_at=event.at)
        case Order.Restored():
            return order.after(event, deleted_at=None)
    raise AssertionError(f"unknown order event {event}")


ORDER: Decider[Order] = Decider(
    name="order",
    state=Order,
    events=events_of(Order),
    evolve=evolve,
    finished=lambda order: order.status is _COMPLETE or order.deleted_at is not None,
)
