"""Invariants on orders and bots: one claim for each, both sides agree, and urgent orders come
first."""

from collections import deque
from datetime import datetime, timedelta
from heapq import heappop, heappush
from uuid import UUID

from daybook.audit.actors import BY_TIME
from daybook.audit.clock import TOLERANCE as JUMP_TOLERANCE
from daybook.audit.clock import ClockReading, Jumps
from daybook.audit.invariant import COMMIT_SECONDS_MAX, Case, Invariant
from daybook.audit.replayed_state import ReplayedEvent
from daybook.domain.clock import Clock
from daybook.domain.event import Event
from daybook.domain.orders.bot import BOT, Bot
from daybook.domain.orders.order import ORDER, Order, OrderKind, OrderStatus

# Clocks are read to the microsecond, but not simultaneously.
TOLERANCE = timedelta(milliseconds=50)

ORDER_ENDS = (Order.Completed, Order.Failed, Order.Released)
BOT_ENDS = (Bot.Completed, Bot.Failed, Bot.Released)
BOT_SERVICE = (Bot.MovedToDLQ, Bot.Restored)
JUDGED = (*BOT_SERVICE, Bot.Claimed, Bot.Deleted, Order.Claimed, Order.Deleted)


class OneHolder(Invariant):
    id = "I-13"
    statement = "No order has two claims."
    kinds = (Order.Claimed,)

    def check(self, step: ReplayedEvent) -> str | None:
        claim = step.before.claim
        return None if claim is None else f"claimed while claim {claim.id} holds it"


class OneOrder(Invariant):
    id = "I-14"
    statement = "No bot holds two orders."
    kinds = (Bot.Claimed,)

    def check(self, step: ReplayedEvent) -> str | None:
        order_id = step.before.order_id
        return None if order_id is None else f"claims an order while it holds order {order_id}"


class Agreement(Invariant):
    """A claim begins and ends on both sides. Each half is stored until its counterpart appears."""

    id = "I-15"
    statement = "After every command, an order and its bot agree on their claim."
    kinds = (Order.Claimed, *ORDER_ENDS, Bot.Claimed, *BOT_ENDS)

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._halves: dict[tuple[object, ...], ReplayedEvent] = {}

    def check(self, step: ReplayedEvent) -> str | None:
        event, one = step.event, step.entry.aggregate
        begins = isinstance(event, Order.Claimed | Bot.Claimed)
        if isinstance(step.after, Order):
            claim = step.after.claim if begins else step.before.claim
            key = event.claim_id, begins, one, claim.bot_id if claim is not None else None
        else:
            key = event.claim_id, begins, event.order_id, one
        half = self._halves.pop(key, None)
        if half is None:
            self._halves[key] = step
        elif half.entry.command_id != step.entry.command_id:
            self._report(half)
        return None

    def end(self) -> None:
        for half in self._halves.values():
            if not self.may_continue(half):
                self._report(half)

    def _report(self, half: ReplayedEvent) -> None:
        self.report_at(half, "the other side of the claim has no event in this command")


def _is_spent(bot: Bot) -> bool:
    return 0 < bot.failures_max <= bot.failures


def _serves(event: Event, bot: Bot) -> str | None:
    """A bot works until it reaches its failure limit, and then not at all."""
    is_dead, is_spent = bot.dead_at is not None, _is_spent(bot)
    if isinstance(event, Bot.Restored):
        return None if is_dead else "restored, though it is in service"
    if is_dead:
        return f"out of service since {bot.dead_at}"
    if isinstance(event, Bot.MovedToDLQ):
        count = f"{bot.failures} failures of {bot.failures_max}"
        return None if is_spent else f"taken out of service after {count}"
    return f"still in service after {bot.failures} failures in a row" if is_spent else None


class NoDanglingHolder(Invariant):
    id = "I-16"
    statement = "Nothing that is deleted or out of service has a claim."
    kinds = (*BOT.events, Order.Claimed, Order.Deleted)

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._spent: dict[UUID, ReplayedEvent] = {}  # At the limit

    def check(self, step: ReplayedEvent) -> str | None:
        if isinstance(step.after, Bot):
            self._track(step.after, step)
        return self._judge(step) if isinstance(step.event, JUDGED) else None

    def end(self) -> None:
        for step in self._spent.values():
            if not self.may_continue(step):
                self.report_at(step, "it is still in service after its last failure")

    def _track(self, bot: Bot, step: ReplayedEvent) -> None:
        self._spent.pop(bot.id, None)
        if _is_spent(bot) and bot.dead_at is None:
            self._spent[bot.id] = step

    def _judge(self, step: ReplayedEvent) -> str | None:
        event, before = step.event, step.before
        if before.deleted_at is not None:
            return "the event happens to a deleted aggregate"
        if isinstance(event, (Bot.Claimed, *BOT_SERVICE)):
            return _serves(event, before)
        if isinstance(event, Bot.Deleted):
            return None if before.order_id is None else f"deleted while it holds {before.order_id}"
        if isinstance(event, Order.Deleted):
            return None if before.claim is None else f"deleted under claim {before.claim.id}"
        if isinstance(event, Order.Claimed) and self.case.replay.get(event.bot_id) is None:
            return f"claimed by bot {event.bot_id}, which does not exist"
        return None


# Events allowed by status; a deleted order can only be restored.
ORDER_MAY: dict[OrderStatus, tuple[type[Event], ...]] = {
    OrderStatus.PENDING: (Order.Claimed, Order.MovedToDLQ, Order.Deleted),
    OrderStatus.PROCESSING: ORDER_ENDS,
    OrderStatus.COMPLETE: (Order.Deleted,),
    OrderStatus.DEAD: (Order.Requeued, Order.Deleted),
}


class CompletedOnce(Invariant):
    id = "I-17"
    statement = "Orders are completed once, by the claim that holds them; ends are final."
    kinds = (
        *(Order.Claimed, Order.MovedToDLQ, Order.Requeued, Order.Deleted, Order.Restored),
        *ORDER_ENDS,
        *BOT_ENDS,
    )

    def check(self, step: ReplayedEvent) -> str | None:
        event, before = step.event, step.before
        if isinstance(before, Bot):
            if (event.claim_id, event.order_id) != (before.claim_id, before.order_id):
                return f"names claim {event.claim_id}, but the bot holds {before.claim_id}"
            return None
        if isinstance(event, Order.Restored) is (before.deleted_at is None):
            return "restored, though not deleted" if before.deleted_at is None else "deleted before"
        if not isinstance(event, (*ORDER_MAY[before.status], Order.Restored)):
            return f"the event cannot happen to an order that is {before.status}"
        if isinstance(event, ORDER_ENDS) and event.claim_id != before.claim.id:
            return f"names claim {event.claim_id}, but {before.claim.id} holds the order"
        return None


Rank = tuple[bool, int, UUID]
"""Urgency of a pending order: VIPs first, then by number."""


class Urgency(Invariant):
    """Relaxed form: concurrent claims skip locked orders, so an order may be passed over while
    another command has it locked, which may leave no trace. But no command takes longer than five
    seconds. Orders that an operator assigned are not checked."""

    id = "I-18"
    statement = "No order is passed over by less urgent ones for more than five seconds."
    kinds = ORDER.events
    sets_seen = True

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._queue: list[Rank] = []
        self._pending: set[Rank] = set()
        self._passed_since: dict[Rank, datetime] = {}  # When a claim first passed over the order

    def check(self, step: ReplayedEvent) -> str | None:
        rank = step.after.kind is not OrderKind.VIP, step.after.number, step.after.id
        self._pending.discard(rank)
        self._passed_since.pop(rank, None)
        self._drop_past()
        if step.after.is_ready:
            self._pending.add(rank)
            heappush(self._queue, rank)
        if not isinstance(step.event, Order.Claimed) or step.event.assigned:
            return None
        self.seen = True
        return self._compare(step, self._queue[0], rank) if self._queue else None

    def _drop_past(self) -> None:
        """Drops orders that are no longer pending, once they reach the head or outnumber the
        rest."""
        while self._queue and self._queue[0] not in self._pending:
            heappop(self._queue)
        if len(self._queue) > 2 * len(self._pending) + 1000:
            self._queue = sorted(self._pending)

    def _compare(self, claim: ReplayedEvent, first: Rank, rank: Rank) -> str | None:
        if first > rank or (claim.event.aged and first[0] != rank[0]):
            return None
        since = self._passed_since.setdefault(first, claim.entry.recorded_at)
        if claim.event.at <= since + COMMIT_SECONDS_MAX:
            return None
        return f"order {first[2]} is more urgent, and has been passed over since {since}"


class OrderNumbers(Invariant):
    id = "I-19"
    statement = "Order numbers are unique, and a later order has a higher one."
    kinds = (Order.Created,)

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._recent: deque[tuple[datetime, int]] = deque(maxlen=1000)
        self._highest = 0

    def check(self, step: ReplayedEvent) -> str | None:
        number, entry, at = step.event.number, step.entry, step.event.at
        key = str(number).encode()
        self.case.replay.facts.add("number", key, str(step.index), step.index, entry.position)
        self._recent.append((entry.recorded_at, number))
        highest, self._highest = self._highest, max(self._highest, number)
        # Of orders created at the same time, either may come first.
        if number < highest and any(n > number and then < at for then, n in self._recent):
            return f"number {number}, after a higher one had been recorded"
        return None

    def end(self) -> None:
        if conflict := self.case.replay.facts.first_conflict("number"):
            self.report("its number was given before", *conflict)


class Timers(Invariant):
    id = "I-20"
    statement = "Nothing is completed by time, or taken from a bot, before it is due."
    kinds = (Clock.Jumped, Order.Claimed, *ORDER_ENDS)
    sets_seen = True

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._jumps = Jumps()
        self._claims: dict[int, ClockReading] = {}

    def check(self, step: ReplayedEvent) -> str | None:
        event, one = step.event, step.entry.aggregate.int
        if isinstance(event, Clock.Jumped):
            self._jumps.add(step)
            return None
        if isinstance(event, Order.Claimed):
            self._claims[one] = ClockReading(event.at, step.index)
            return None
        began, claim = self._claims.pop(one, None), step.before.claim
        is_by_time = BY_TIME.get(type(event), lambda _event: False)
        if began is None or claim is None or not is_by_time(event):
            return None
        self.seen = True
        elapsed, jumps = self._jumps.elapsed(began, ClockReading(event.at, step.index))
        tolerance = JUMP_TOLERANCE if jumps else TOLERANCE
        early = claim.until - claim.started_at - tolerance - elapsed
        return f"{early.total_seconds():.3f} s too early" if early > timedelta(0) else None


INVARIANTS = (
    *(OneHolder, OneOrder, Agreement, NoDanglingHolder, CompletedOnce),
    *(Urgency, OrderNumbers, Timers),
)
