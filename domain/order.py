"""A guest's order: pending, cooked under one claim at a time, complete once."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import ClassVar, Self
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from domain.errors import ClaimLostError, OrderNotPendingError
from domain.event import Decider, Event, events_of


class OrderKind(StrEnum):
    NORMAL = "NORMAL"
    VIP = "VIP"


class OrderStatus(StrEnum):
    PENDING = "PENDING"
    PROCESSING = "PROCESSING"
    COMPLETE = "COMPLETE"


class CompletedVia(StrEnum):
    TIMER = "timer"
    REPORT = "report"


class Claim(Struct, frozen=True, gc=False):
    """One bot's hold on one order. Its id is the fence: whatever names an older one is stale."""

    id: UUID
    bot_id: UUID
    started_at: datetime
    due_at: datetime


class Order(Struct, frozen=True, kw_only=True, gc=False):
    id: UUID
    version: int
    number: int
    kind: OrderKind
    status: OrderStatus
    created_at: datetime
    updated_at: datetime
    claim: Claim | None = None

    class Created(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "order.created"
        order_id: UUID
        number: int
        kind: OrderKind

    class Claimed(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "order.claimed"
        claim_id: UUID
        bot_id: UUID
        due_at: datetime

    class Completed(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "order.completed"
        claim_id: UUID
        via: CompletedVia

    def after(self, event: Event, *, status: OrderStatus, claim: Claim | None) -> Self:
        version = self.version + 1
        return replace(self, version=version, updated_at=event.at, status=status, claim=claim)


def create(*, order_id: UUID, number: int, kind: OrderKind, now: datetime) -> Order.Created:
    return Order.Created(at=now, order_id=order_id, number=number, kind=kind)


def claim(
    order: Order, *, claim_id: UUID, bot_id: UUID, seconds: float, now: datetime
) -> Order.Claimed:
    if order.status is not OrderStatus.PENDING:
        raise OrderNotPendingError(order.id, order.status)
    due_at = now + timedelta(seconds=seconds)
    return Order.Claimed(at=now, claim_id=claim_id, bot_id=bot_id, due_at=due_at)


def complete(order: Order, *, claim_id: UUID, via: CompletedVia, now: datetime) -> Order.Completed:
    """Only the claim that holds the order completes it: a late callback changes nothing."""
    if order.claim is None or order.claim.id != claim_id:
        raise ClaimLostError(order.id, claim_id)
    return Order.Completed(at=now, claim_id=claim_id, via=via)


def evolve(order: Order | None, event: Event) -> Order:
    if isinstance(event, Order.Created):
        return Order(
            id=event.order_id,
            version=1,
            number=event.number,
            kind=event.kind,
            status=OrderStatus.PENDING,
            created_at=event.at,
            updated_at=event.at,
        )
    assert order is not None, f"{event} is the first event of an order"
    match event:
        case Order.Claimed():
            claim = Claim(event.claim_id, event.bot_id, event.at, event.due_at)
            return order.after(event, status=OrderStatus.PROCESSING, claim=claim)
        case Order.Completed():
            return order.after(event, status=OrderStatus.COMPLETE, claim=None)
    raise AssertionError(f"an order does not know {event}")


ORDER: Decider[Order] = Decider(
    name="order",
    state=Order,
    events=events_of(Order),
    evolve=evolve,
    finished=lambda order: order.status is OrderStatus.COMPLETE,
)
