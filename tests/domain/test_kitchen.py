"""Orders and bots decide as promised, whatever happens in whatever order."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)
from uuid_utils.compat import uuid7

from domain.bot import BOT, Bot
from domain.desk import Reads
from domain.errors import BotBusyError, ClaimLostError, OrderNotPendingError, Refusal
from domain.event import Decider, Event, S
from domain.kitchen import ORDER_NUMBERS, ClaimOrder, CompleteOrder, CreateBot, CreateOrder
from domain.order import ORDER, CompletedVia, Order, OrderKind, OrderStatus, claim, complete, create

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def make_order() -> Order:
    created = create(order_id=uuid7(), number=1, kind=OrderKind.NORMAL, now=NOON)
    return ORDER.evolve(None, created)


def claimed(order: Order, claim_id: UUID) -> Order:
    return ORDER.evolve(
        order, claim(order, claim_id=claim_id, bot_id=uuid7(), seconds=10, now=NOON)
    )


def test_a_claim_is_due_when_its_seconds_have_passed() -> None:
    order = claimed(make_order(), uuid7())
    assert order.claim is not None
    assert order.claim.due_at - order.claim.started_at == timedelta(seconds=10)


def test_an_order_that_is_held_cannot_be_claimed() -> None:
    with pytest.raises(OrderNotPendingError):
        claimed(claimed(make_order(), uuid7()), uuid7())


def test_only_the_claim_that_holds_an_order_completes_it() -> None:
    order = claimed(make_order(), uuid7())
    with pytest.raises(ClaimLostError):
        complete(order, claim_id=uuid7(), via=CompletedVia.TIMER, now=NOON)


def test_every_refusal_has_a_code_of_its_own() -> None:
    codes = [kind.code for kind in Refusal.__subclasses__()]
    assert len(codes) == len(set(codes)) > 0


class PlainDesk:
    """A desk over a dictionary: everything is at hand, and ready orders are found by sorting."""

    def __init__(self) -> None:
        self.now = NOON
        self.log: list[tuple[UUID, Event]] = []
        self.states: dict[UUID, Any] = {}
        self.number = 0

    def get(self, decider: Decider[S], aggregate_id: UUID) -> S | None:
        state = self.states.get(aggregate_id)
        return state if isinstance(state, decider.state) else None

    def take_ready(self, decider: Decider[S]) -> S | None:
        pending = [s for s in self.states.values() if isinstance(s, decider.state) and _ready(s)]
        return min(pending, key=_urgency, default=None)

    def draw(self, sequence: str) -> int:
        assert sequence == ORDER_NUMBERS
        self.number += 1
        return self.number

    def record(self, decider: Decider[S], aggregate_id: UUID, event: Event) -> S:
        self.log.append((aggregate_id, event))
        after = decider.evolve(self.states.get(aggregate_id), event)
        self.states[aggregate_id] = after
        return after


def _ready(state: Any) -> bool:
    return isinstance(state, Order) and state.status is OrderStatus.PENDING


def _urgency(order: Any) -> tuple[bool, int]:
    return order.kind is not OrderKind.VIP, order.number


class KitchenMachine(RuleBasedStateMachine):
    """Random commands against a model of what must hold."""

    bots: Bundle[UUID] = Bundle("bots")
    claims: Bundle[Order] = Bundle("claims")

    @initialize()
    def open(self) -> None:
        self.desk = PlainDesk()

    @rule(target=bots)
    def a_bot_comes(self) -> UUID:
        return CreateBot(bot_id=uuid7()).decide(self.desk).id

    @rule(kind=st.sampled_from(OrderKind))
    def a_guest_orders(self, kind: OrderKind) -> None:
        CreateOrder(order_id=uuid7(), kind=kind).decide(self.desk)

    @rule(target=claims, bot_id=bots)
    def a_bot_asks_for_work(self, bot_id: UUID) -> Order | MultipleResults[Order]:
        command = ClaimOrder(bot_id=bot_id, claim_id=uuid7(), seconds=10)
        ready = self.desk.take_ready(ORDER)
        busy = self.desk.states[bot_id].order_id is not None
        if busy:
            with pytest.raises(BotBusyError):
                command.decide(self.desk)
            return multiple()
        order = command.decide(self.desk)
        assert (order and order.id) == (ready and ready.id)
        return order or multiple()

    @rule(order=consumes(claims))
    def a_bot_reports(self, order: Order) -> None:
        self._complete(order)
        with pytest.raises(ClaimLostError):
            self._complete(order)

    @rule(order=claims)
    def a_zombie_reports(self, order: Order) -> None:
        with pytest.raises(ClaimLostError):
            self._complete(order, claim_id=uuid7())

    def _complete(self, order: Order, claim_id: UUID | None = None) -> None:
        assert order.claim is not None
        CompleteOrder(
            order_id=order.id,
            bot_id=order.claim.bot_id,
            claim_id=claim_id or order.claim.id,
            via=CompletedVia.REPORT,
        ).decide(self.desk)

    @invariant()
    def orders_and_bots_agree_on_every_claim(self) -> None:
        held = {
            (s.claim.id, s.id, s.claim.bot_id)
            for s in self.desk.states.values()
            if isinstance(s, Order) and s.claim
        }
        working = {
            (s.claim_id, s.order_id, s.id)
            for s in self.desk.states.values()
            if isinstance(s, Bot) and s.order_id
        }
        assert held == working

    @invariant()
    def replaying_the_log_gives_the_same_state(self) -> None:
        for aggregate_id, state in self.desk.states.items():
            events = [event for owner, event in self.desk.log if owner == aggregate_id]
            decider: Decider[Any] = ORDER if isinstance(state, Order) else BOT
            assert decider.fold(events) == state
            assert state.version == len(events)


TestKitchenMachine = KitchenMachine.TestCase


def test_a_commands_weight_is_what_it_reads() -> None:
    assert Reads().weight == 1
    assert Reads(ready=ORDER, ready_count=7).weight == 7
    assert Reads(draws=(ORDER_NUMBERS, 3)).weight == 3
