"""Decisions of one order."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from uuid_utils.compat import uuid7

from daybook.domain import errors
from daybook.domain.claim import require_claim
from daybook.domain.errors import (
    ClaimLostError,
    OrderDeletedError,
    OrderNotDeadError,
    OrderNotDeletedError,
    OrderNotPendingError,
    Refusal,
)
from daybook.domain.event import Event
from daybook.domain.orders.claim import CompletedVia, CompletionMode, ReleaseReason
from daybook.domain.orders.order import (
    ORDER,
    Order,
    OrderKind,
    OrderStatus,
    claim,
    complete,
    delete,
    fail,
    release,
    requeue,
    restore,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
FIRST, SECOND = uuid7(), uuid7()


def make_order(attempts_max: int = 3) -> Order:
    created = Order.Created(
        order_id=uuid7(),
        number=1,
        kind=OrderKind.NORMAL,
        attempts_max=attempts_max,
        user_id=None,
        owner=None,
        at=NOON,
    )
    return ORDER.evolve(None, created)


def after(order: Order, *events: Event) -> Order:
    for event in events:
        order = ORDER.evolve(order, event)
    return order


def claimed(order: Order, claim_id: UUID = FIRST) -> Order:
    event = claim(
        order,
        claim_id=claim_id,
        bot_id=uuid7(),
        mode=CompletionMode.ACK,
        seconds=10,
        aged=False,
        now=NOON,
    )
    return after(order, event)


def released(order: Order, reason: ReleaseReason = ReleaseReason.STOPPED) -> Order:
    assert order.claim is not None
    return after(order, *release(order, claim_id=order.claim.id, reason=reason, now=NOON))


def failed(order: Order, *, retryable: bool = True) -> Order:
    assert order.claim is not None
    events = fail(order, claim_id=order.claim.id, error="burnt", retryable=retryable, now=NOON)
    return after(order, *events)


def test_a_claim_is_due_when_its_seconds_have_passed() -> None:
    order = claimed(make_order())
    assert order.claim is not None
    assert order.claim.until - order.claim.started_at == timedelta(seconds=10)


def test_a_claimed_order_cannot_be_claimed() -> None:
    with pytest.raises(OrderNotPendingError, match="PROCESSING"):
        claimed(claimed(make_order()))


def test_a_deleted_order_cannot_be_claimed() -> None:
    order = make_order()
    with pytest.raises(OrderNotPendingError, match="deleted"):
        claimed(after(order, delete(order, now=NOON)))


def test_a_zombie_bot_cannot_complete_a_claim_it_lost() -> None:
    order = claimed(released(claimed(make_order(), FIRST)), SECOND)
    with pytest.raises(ClaimLostError):
        complete(order, claim_id=FIRST, via=CompletedVia.CALLBACK, now=NOON)


def test_completing_twice_is_refused() -> None:
    order = claimed(make_order())
    completed = after(order, complete(order, claim_id=FIRST, via=CompletedVia.REPORT, now=NOON))
    assert (completed.status, completed.completed_at) == (OrderStatus.COMPLETE, NOON)
    with pytest.raises(ClaimLostError):
        complete(completed, claim_id=FIRST, via=CompletedVia.REPORT, now=NOON)


def test_a_complete_order_names_the_claim_that_completed_it_and_has_none() -> None:
    # S0-01
    order = claimed(make_order())
    cooked = after(order, complete(order, claim_id=FIRST, via=CompletedVia.REPORT, now=NOON))
    deleted = after(cooked, delete(cooked, now=NOON))
    back = after(deleted, restore(deleted, now=NOON))
    for one in (cooked, deleted, back):
        assert (one.claim, one.completed_under) == (None, order.claim)
        with pytest.raises(ClaimLostError):
            require_claim("order", one, FIRST)


def test_a_failing_order_is_retried_up_to_its_limit_and_then_dead() -> None:
    order = make_order(attempts_max=2)
    order = failed(claimed(order))
    assert (order.status, order.attempts, order.error) == (OrderStatus.PENDING, 1, "burnt")
    order = failed(claimed(order, SECOND))
    assert (order.status, order.attempts, order.error) == (OrderStatus.DEAD, 2, "burnt")


def test_an_order_that_is_not_retryable_is_dead_at_once() -> None:
    assert failed(claimed(make_order()), retryable=False).status is OrderStatus.DEAD


@pytest.mark.parametrize(
    ("reason", "attempts"),
    [
        (ReleaseReason.EXPIRED, 1),
        (ReleaseReason.STOPPED, 0),
        (ReleaseReason.BOT_DELETED, 0),
        (ReleaseReason.ORDER_DELETED, 0),
    ],
)
def test_only_a_claim_that_expired_counts_as_an_attempt(
    reason: ReleaseReason, attempts: int
) -> None:
    assert released(claimed(make_order()), reason).attempts == attempts


def test_a_bot_that_never_reports_cannot_claim_an_order_for_ever() -> None:
    order = make_order(attempts_max=2)
    for _ in range(2):
        order = released(claimed(order), ReleaseReason.EXPIRED)
    assert order.status is OrderStatus.DEAD


def test_a_requeued_order_starts_with_new_attempts() -> None:
    dead = failed(claimed(make_order(attempts_max=1)))
    order = after(dead, requeue(dead, now=NOON))
    assert (order.status, order.attempts, order.error) == (OrderStatus.PENDING, 0, None)
    with pytest.raises(OrderNotDeadError):
        requeue(order, now=NOON)


def test_a_restored_order_is_unchanged() -> None:
    order = make_order()
    deleted = after(order, delete(order, now=NOON))
    assert ORDER.finished(deleted)
    with pytest.raises(OrderDeletedError):
        delete(deleted, now=NOON)
    back = after(deleted, restore(deleted, now=NOON))
    assert (back.number, back.status, back.deleted_at) == (order.number, OrderStatus.PENDING, None)
    with pytest.raises(OrderNotDeletedError):
        restore(back, now=NOON)


def test_every_refusal_has_a_code_of_its_own() -> None:
    kinds = [one for one in vars(errors).values() if isinstance(one, type)]
    codes = [kind.code for kind in kinds if issubclass(kind, Refusal) and "code" in vars(kind)]
    assert len(codes) == len(set(codes)) > 40
