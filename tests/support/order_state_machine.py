"""A model of orders and bots, and a state machine that gives it valid and invalid commands."""

from collections.abc import Hashable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule
from uuid_utils.compat import uuid7

from daybook.domain.command import Command
from daybook.domain.errors import BotDeletedError, Refusal
from daybook.domain.event import Decider, Event, S
from daybook.domain.orders.bot import BOT, FAILURES_MAX, Bot
from daybook.domain.orders.claim import CompletedVia, CompletionMode, ReleaseReason
from daybook.domain.orders.commands import (
    ORDER_NUMBERS,
    AssignOrder,
    ClaimOrder,
    ClaimResult,
    ClearOrders,
    CompleteOrder,
    ConfigureBot,
    CreateBot,
    CreateOrder,
    DeleteBot,
    DeleteOrder,
    FailOrder,
    ReleaseBot,
    ReleaseOrder,
    RequeueOrder,
    RestoreBot,
    RestoreOrder,
)
from daybook.domain.orders.order import ORDER, Order, OrderKind, OrderStatus

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class PlainUnitOfWork:
    """A unit of work over a dictionary: all aggregates are loaded, ready orders are sorted."""

    def __init__(self) -> None:
        self.now = NOON
        self.log: list[tuple[UUID, Event]] = []
        self.states: dict[UUID, Any] = {}
        self.number = 0

    def get(self, decider: Decider[S], aggregate_id: UUID) -> S | None:
        state = self.states.get(aggregate_id)
        return state if isinstance(state, decider.state) else None

    def count_related(self, decider: Decider[Any], to: UUID) -> int:
        raise NotImplementedError

    def all(self, decider: Decider[S]) -> Sequence[S]:
        found = [state for state in self.states.values() if isinstance(state, decider.state)]
        return [state for state in found if not decider.finished(state)]

    def pick_one(self, decider: Decider[S], among: Hashable = None) -> S | None:  # noqa: ARG002 (all)
        ready: list[Any] = [state for state in self.all(decider) if _is_ready(state)]
        return min(ready, key=_urgency, default=None)

    def pick(self, decider: Decider[S], among: Hashable, *, limit: int) -> list[S]:
        raise NotImplementedError

    def next_number(self, sequence: str) -> int:
        assert sequence == ORDER_NUMBERS
        self.number += 1
        return self.number

    def record(self, decider: Decider[S], aggregate_id: UUID, event: Event) -> S:
        self.log.append((aggregate_id, event))
        after = decider.evolve(self.states.get(aggregate_id), event)
        self.states[aggregate_id] = after
        return after

    def order(self, kind: OrderKind = OrderKind.NORMAL) -> Order:
        return CreateOrder(order_id=uuid7(), kind=kind).decide(self)

    def bot(
        self, completion: CompletionMode = CompletionMode.TIMER, failures_max: int = FAILURES_MAX
    ) -> Bot:
        command = CreateBot(bot_id=uuid7(), completion=completion, failures_max=failures_max)
        return command.decide(self)

    def claim(self, bot: Bot, aging_seconds: float | None = None) -> ClaimResult:
        command = ClaimOrder(
            bot_id=bot.id, claim_id=uuid7(), seconds=10, aging_seconds=aging_seconds
        )
        return command.decide(self)


def _is_ready(state: Any) -> bool:
    return isinstance(state, Order) and state.is_ready


def _urgency(order: Any) -> tuple[bool, int]:
    return order.kind is not OrderKind.VIP, order.number


def _is_dead(events: list[Any]) -> bool:
    row, limit, is_dead = 0, 0, False
    for event in events:
        match event:
            case Bot.Created() | Bot.Configured():
                row, limit = 0, event.failures_max
            case Bot.Completed() | Bot.Restored():
                row, is_dead = 0, False
            case Bot.Failed() | Bot.Released(reason=ReleaseReason.EXPIRED):
                row += 1
                is_dead = is_dead or 0 < limit <= row
    return is_dead


class OrderMachine(RuleBasedStateMachine):
    """Random commands, right and wrong ones, against what must hold after each."""

    orders: Bundle[UUID] = Bundle("orders")
    bots: Bundle[UUID] = Bundle("bots")

    claim_seconds = 10

    @initialize()
    def open(self) -> None:
        self.unit_of_work = PlainUnitOfWork()

    def attempt(self, command: Command[Any]) -> type[Refusal] | None:
        """A refusal must leave everything as it was."""
        before = dict(self.unit_of_work.states)
        events_count = len(self.unit_of_work.log)
        try:
            command.decide(self.unit_of_work)
        except Refusal as refusal:
            # The real unit of work drops the events of a refused command; this one has none.
            assert self.unit_of_work.states == before
            assert len(self.unit_of_work.log) == events_count
            return type(refusal)
        return None

    @rule(target=bots, completion=st.sampled_from(CompletionMode), failures_max=st.integers(0, 2))
    def a_bot_comes(self, completion: CompletionMode, failures_max: int) -> UUID:
        bot_id = uuid7()
        self.attempt(CreateBot(bot_id=bot_id, completion=completion, failures_max=failures_max))
        return bot_id

    @rule(bot_id=bots)
    def an_operator_restores_a_bot(self, bot_id: UUID) -> None:
        is_dead = self.unit_of_work.states[bot_id].dead_at is not None
        refused = self.attempt(RestoreBot(bot_id=bot_id, because="repaired"))
        assert is_dead is (refused is None) or refused is BotDeletedError

    @rule(bot_id=bots, failures_max=st.integers(0, 2))
    def an_operator_limits_the_failures_of_a_bot(self, bot_id: UUID, failures_max: int) -> None:
        self.attempt(ConfigureBot(bot_id=bot_id, failures_max=failures_max))

    @rule(target=orders, kind=st.sampled_from(OrderKind))
    def a_guest_orders(self, kind: OrderKind) -> UUID:
        order_id = uuid7()
        self.attempt(CreateOrder(order_id=order_id, kind=kind, attempts_max=2))
        return order_id

    @rule(bot_id=bots)
    def a_bot_asks_for_work(self, bot_id: UUID) -> None:
        self.attempt(ClaimOrder(bot_id=bot_id, claim_id=uuid7(), seconds=self.claim_seconds))

    @rule(order_id=orders, bot_id=bots)
    def an_operator_assigns(self, order_id: UUID, bot_id: UUID) -> None:
        self.attempt(
            AssignOrder(
                order_id=order_id, bot_id=bot_id, claim_id=uuid7(), seconds=self.claim_seconds
            )
        )

    @rule(order_id=orders, stale=st.booleans(), via=st.sampled_from(CompletedVia))
    def somebody_completes(self, order_id: UUID, stale: bool, via: CompletedVia) -> None:
        claim_id = uuid7() if stale else None
        self.attempt(CompleteOrder(order_id=order_id, claim_id=claim_id, via=via))

    @rule(order_id=orders, retryable=st.booleans())
    def a_bot_fails(self, order_id: UUID, retryable: bool) -> None:
        claim = self.unit_of_work.states[order_id].claim
        claim_id = claim.id if claim else uuid7()
        self.attempt(
            FailOrder(order_id=order_id, claim_id=claim_id, error="burnt", retryable=retryable)
        )

    @rule(order_id=orders, reason=st.sampled_from(ReleaseReason))
    def a_claim_ends(self, order_id: UUID, reason: ReleaseReason) -> None:
        self.attempt(ReleaseOrder(order_id=order_id, reason=reason))

    @rule(bot_id=bots)
    def a_bot_stops(self, bot_id: UUID) -> None:
        self.attempt(ReleaseBot(bot_id=bot_id))

    @rule(bot_id=bots, only_if_idle=st.booleans())
    def a_bot_goes(self, bot_id: UUID, only_if_idle: bool) -> None:
        self.attempt(DeleteBot(bot_id=bot_id, only_if_idle=only_if_idle))

    @rule(order_id=orders, kind=st.sampled_from([DeleteOrder, RestoreOrder, RequeueOrder]))
    def an_operator_decides(self, order_id: UUID, kind: Any) -> None:
        self.attempt(kind(order_id=order_id))

    @rule()
    def everything_is_cleared(self) -> None:
        self.attempt(ClearOrders())
        assert not self.unit_of_work.all(ORDER)

    @rule(seconds=st.integers(1, 20))
    def time_passes(self, seconds: int) -> None:
        self.unit_of_work.now += timedelta(seconds=seconds)

    @invariant()
    def orders_and_bots_agree_on_every_claim(self) -> None:  # S0-02, S0-19, S0-26, S0-38…S0-40
        states = self.unit_of_work.states.values()
        claimed = {
            (s.claim.id, s.id, s.claim.bot_id) for s in states if isinstance(s, Order) and s.claim
        }
        working = {
            (s.claim_id, s.order_id, s.id) for s in states if isinstance(s, Bot) and s.order_id
        }
        assert claimed == working
        assert len({bot_id for _, _, bot_id in claimed}) == len(claimed)

    @invariant()
    def nothing_that_is_gone_holds_anything(self) -> None:
        for state in self.unit_of_work.states.values():
            if state.deleted_at is not None:
                assert state.claim is None if isinstance(state, Order) else state.order_id is None

    @invariant()
    def a_bot_out_of_service_holds_nothing(self) -> None:  # SX-01, I-16
        for state in self.unit_of_work.states.values():
            if not isinstance(state, Bot):
                continue
            if state.dead_at is not None:
                assert state.order_id is None
            elif state.failures_max:
                assert len(state.errors) == state.failures < state.failures_max
            else:
                assert (state.failures, state.errors) == (0, ())

    @invariant()
    def a_bot_is_out_of_service_after_as_many_failures_in_a_row_as_it_may_have(self) -> None:
        """Counted from the log, without the count that the events keep."""
        for bot_id, state in self.unit_of_work.states.items():
            if isinstance(state, Bot):
                events = [event for owner, event in self.unit_of_work.log if owner == bot_id]
                assert (state.dead_at is not None) is _is_dead(events)

    @invariant()
    def what_is_complete_is_held_by_nobody_and_says_who_cooked_it(self) -> None:
        for state in self.unit_of_work.states.values():
            if isinstance(state, Order):
                is_complete = state.status is OrderStatus.COMPLETE
                assert is_complete == (state.completed_under is not None)
                assert not (is_complete and state.claim)

    @invariant()
    def attempts_stay_within_their_limit(self) -> None:
        for state in self.unit_of_work.states.values():
            if isinstance(state, Order):
                assert 0 <= state.attempts <= state.attempts_max

    @invariant()
    def replaying_the_log_gives_the_same_state(self) -> None:
        for aggregate_id, state in self.unit_of_work.states.items():
            events = [event for owner, event in self.unit_of_work.log if owner == aggregate_id]
            decider: Decider[Any] = ORDER if isinstance(state, Order) else BOT
            assert decider.fold(events) == state
            assert state.version == len(events)
