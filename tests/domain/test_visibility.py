"""Visibility of API keys: hidden aggregates look missing to commands."""

from datetime import UTC, datetime
from typing import Any

import pytest
from uuid_utils.compat import uuid7

from daybook.domain.errors import NotFoundError
from daybook.domain.orders.commands import DeleteOrder
from daybook.domain.orders.order import ORDER, Order, OrderKind
from daybook.domain.visibility import UNRESTRICTED, Restricted, Visibility, within

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def order_of(owner: str | None) -> Order:
    created = Order.Created(
        order_id=uuid7(),
        number=1,
        kind=OrderKind.NORMAL,
        attempts_max=3,
        user_id=None,
        owner=owner,
        at=NOON,
    )
    return ORDER.evolve(None, created)


class OneOrderWork:
    """A unit of work with one order."""

    now = NOON

    def __init__(self, order: Order) -> None:
        self.order = order
        self.recorded: list[Any] = []

    def get(self, _decider: Any, _aggregate_id: Any) -> Any:
        return self.order

    def record(self, _decider: Any, _aggregate_id: Any, event: Any) -> Any:
        self.recorded.append(event)
        return ORDER.evolve(self.order, event)


def test_a_command_finds_another_s_order_as_missing_as_none() -> None:  # SEC-03
    bounds = Visibility(owners=frozenset(["harbour"]), sees_all_bots=False, queues=frozenset())
    for owner in ("elsewhere", None):
        work: Any = OneOrderWork(order_of(owner))
        with pytest.raises(NotFoundError):
            within(DeleteOrder(order_id=work.order.id), bounds).decide(work)
        assert work.recorded == []
    own: Any = OneOrderWork(order_of("harbour"))
    within(DeleteOrder(order_id=own.order.id), bounds).decide(own)
    assert [type(event) for event in own.recorded] == [Order.Deleted]


def test_an_unrestricted_command_is_not_wrapped() -> None:
    command = DeleteOrder(order_id=uuid7())
    assert within(command, UNRESTRICTED) is command
    assert isinstance(within(command, Visibility(queues=frozenset())), Restricted)


def test_an_unknown_kind_of_aggregate_is_hidden_from_restricted_keys() -> None:
    assert UNRESTRICTED.can_see(object())
    assert not Visibility(queues=frozenset(["email"])).can_see(object())
