"""Orders and bots: one holder, one order in hand, both sides agree, and the urgent come first."""

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

# Clocks are read to the microsecond, but not at the same moment.
TOLERANCE = timedelta(milliseconds=50)

ORDER_ENDS = (Order.Completed, Order.Failed, Order.Released)
BOT_ENDS = (Bot.Completed, Bot.Failed, Bot.Released)
BOT_SERVICE = (Bot.MovedToDLQ, Bot.Restored)
JUDGED = (*BOT_SERVICE, Bot.Claimed, Bot.Deleted, Order.Claimed, Order.Deleted)


class OneHolder(Invariant):
    id = "I-13"
    statement = "No order has two holders."
    kinds = (Order.Claimed,)

    def see(self, step: ReplayedEvent) -> str | None:
        held = step.before.claim
        return None if held is None else f"claimed while claim {held.id} holds it"


class OneOrder(Invariant):
    id = "I-14"
    statement = "No bot holds two orders."
    kinds = (Bot.Claimed,)

    def see(self, step: ReplayedEvent) -> str | None:
        held = step.before.order_id
        return None if held is None else f"claims an order while it holds order {held}"


class Agreement(Invariant):
    """A claim begins and ends on both sides. Each side waits here until the other was heard."""

    id = "I-15"
    statement = "After every command, an order and its bot say the same of each other."
    kinds = (Order.Claimed, *ORDER_ENDS, Bot.Claimed, *BOT_ENDS)

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._halves: dict[tuple[object, ...], ReplayedEvent] = {}

    def see(self, step: ReplayedEvent) -> str | None:
        event, one = step.event, step.entry.aggregate
        begins = isinstance(event, Order.Claimed | Bot.Claimed)
        if isinstance(step.after, Order):
            claim = step.after.claim if begins else step.before.claim
            said = event.claim_id, begins, one, claim.bot_id if claim is not None else None
        else:
            said = event.claim_id, begins, event.order_id, one
        half = self._halves.pop(said, None)
        if half is None:
            self._halves[said] = step
        elif half.entry.command_id != step.entry.command_id:
            self._accuse(half)
        return None

    def end(self) -> None:
        for half in self._halves.values():
            if not self.may_go_on(half):
                self._accuse(half)

    def _accuse(self, half: ReplayedEvent) -> None:
        self.accuse_step(half, "the other side of the claim says nothing of it in this command")


def _is_spent(bot: Bot) -> bool:
    return 0 < bot.failures_max <= bot.failures


def _serves(event: Event, bot: Bot) -> str | None:
    """A bot works until it has failed as often in a row as it may, and then not at all."""
    is_dead, is_spent = bot.dead_at is not None, _is_spent(bot)
    if isinstance(event, Bot.Restored):
        return None if is_dead else "restored, though it is in service"
    if is_dead:
        return f"out of service since {bot.dead_at}"
    if isinstance(event, Bot.MovedToDLQ):
        told = f"{bot.failures} failures of {bot.failures_max}"
        return None if is_spent else f"taken out of service after {told}"
    return f"works on after {bot.failures} failures in a row" if is_spent else None


class NoDanglingHolder(Invariant):
    id = "I-16"
    statement = "Nothing that is deleted or out of service holds anything or is held."
    kinds = (*BOT.events, Order.Claimed, Order.Deleted)

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._spent: dict[UUID, ReplayedEvent] = {}
        """Bots whose last failure was one too many, which the same command is to say of them."""

    def see(self, step: ReplayedEvent) -> str | None:
        if isinstance(step.after, Bot):
            self._note(step.after, step)
        return self._judge(step) if isinstance(step.event, JUDGED) else None

    def end(self) -> None:
        for step in self._spent.values():
            if not self.may_go_on(step):
                self.accuse_step(step, "it is still in service, after its last failure")

    def _note(self, bot: Bot, step: ReplayedEvent) -> None:
        self._spent.pop(bot.id, None)
        if _is_spent(bot) and bot.dead_at is None:
            self._spent[bot.id] = step

    def _judge(self, step: ReplayedEvent) -> str | None:
        event, before = step.event, step.before
        if before.deleted_at is not None:
            return "this happens to what was deleted"
        if isinstance(event, (Bot.Claimed, *BOT_SERVICE)):
            return _serves(event, before)
        if isinstance(event, Bot.Deleted):
            return None if before.order_id is None else f"deleted while it holds {before.order_id}"
        if isinstance(event, Order.Deleted):
            return None if before.claim is None else f"deleted under claim {before.claim.id}"
        if isinstance(event, Order.Claimed) and self.case.world.get(event.bot_id) is None:
            return f"claimed by bot {event.bot_id}, which is not there"
        return None


# What may happen to an order, by its status; one that is deleted can only be restored.
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

    def see(self, step: ReplayedEvent) -> str | None:
        event, before = step.event, step.before
        if isinstance(before, Bot):
            if (event.claim_id, event.order_id) != (before.claim_id, before.order_id):
                return f"names claim {event.claim_id}, but the bot holds {before.claim_id}"
            return None
        if isinstance(event, Order.Restored) is (before.deleted_at is None):
            return "restored, though not deleted" if before.deleted_at is None else "deleted before"
        if not isinstance(event, (*ORDER_MAY[before.status], Order.Restored)):
            return f"this cannot happen to an order that is {before.status}"
        if isinstance(event, ORDER_ENDS) and event.claim_id != before.claim.id:
            return f"names claim {event.claim_id}, but {before.claim.id} holds the order"
        return None


Place = tuple[bool, int, UUID]
"""Of a pending order: VIPs first, then by number."""


class Urgency(Invariant):
    """The relaxed form: claims at the same moment keep off each other's orders, so an order may be
    passed over while some other command has it in hand, which need not leave a trace. But no
    command takes longer than five seconds.

    What an operator has assigned is not judged: any order may be given to any bot.
    """

    id = "I-18"
    statement = "No order is passed over by less urgent ones for more than five seconds."
    kinds = ORDER.events
    is_picky = True

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._queue: list[Place] = []
        self._pending: set[Place] = set()
        self._passed: dict[Place, datetime] = {}
        """When a claim first left it behind."""

    def see(self, step: ReplayedEvent) -> str | None:
        place = step.after.kind is not OrderKind.VIP, step.after.number, step.after.id
        self._pending.discard(place)
        self._passed.pop(place, None)
        self._forget_past()
        if step.after.is_ready:
            self._pending.add(place)
            heappush(self._queue, place)
        if not isinstance(step.event, Order.Claimed) or step.event.assigned:
            return None
        self.seen = True
        return self._compare(step, self._queue[0], place) if self._queue else None

    def _forget_past(self) -> None:
        """Who is pending no more is still in the queue, until he comes to its head or is in the
        majority."""
        while self._queue and self._queue[0] not in self._pending:
            heappop(self._queue)
        if len(self._queue) > 2 * len(self._pending) + 1000:
            self._queue = sorted(self._pending)

    def _compare(self, claim: ReplayedEvent, first: Place, place: Place) -> str | None:
        if first > place or (claim.event.aged and first[0] != place[0]):
            return None
        since = self._passed.setdefault(first, claim.entry.recorded_at)
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

    def see(self, step: ReplayedEvent) -> str | None:
        number, entry, at = step.event.number, step.entry, step.event.at
        key = str(number).encode()
        self.case.world.memory.note("number", key, str(step.place), step.place, entry.position)
        self._recent.append((entry.recorded_at, number))
        highest, self._highest = self._highest, max(self._highest, number)
        # Of those that are made at the same time, any may be first.
        if number < highest and any(n > number and then < at for then, n in self._recent):
            return f"number {number}, after a higher one had been recorded"
        return None

    def end(self) -> None:
        if clash := self.case.world.memory.clash("number"):
            self.accuse("its number was given before", *clash)


class Timers(Invariant):
    id = "I-20"
    statement = "Nothing is completed by time, or taken from a bot, before it is due."
    kinds = (Clock.Jumped, Order.Claimed, *ORDER_ENDS)
    is_picky = True

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._jumps = Jumps()
        self._claims: dict[int, ClockReading] = {}

    def see(self, step: ReplayedEvent) -> str | None:
        event, one = step.event, step.entry.aggregate.int
        if isinstance(event, Clock.Jumped):
            self._jumps.see(step)
            return None
        if isinstance(event, Order.Claimed):
            self._claims[one] = ClockReading(event.at, step.place)
            return None
        began, claim = self._claims.pop(one, None), step.before.claim
        is_by_time = BY_TIME.get(type(event), lambda _event: False)
        if began is None or claim is None or not is_by_time(event):
            return None
        self.seen = True
        elapsed, jumps = self._jumps.elapsed(began, ClockReading(event.at, step.place))
        tolerance = JUMP_TOLERANCE if jumps else TOLERANCE
        early = claim.due_at - claim.started_at - tolerance - elapsed
        return f"{early.total_seconds():.3f} s too early" if early > timedelta(0) else None


INVARIANTS = (
    *(OneHolder, OneOrder, Agreement, NoDanglingHolder, CompletedOnce),
    *(Urgency, OrderNumbers, Timers),
)
