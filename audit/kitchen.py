"""Orders and bots: one holder, one order in hand, both sides agree, and the urgent come first."""

from collections import deque
from datetime import datetime, timedelta
from heapq import heappop, heappush
from uuid import UUID

from audit.actors import DISPATCH
from audit.invariant import Case, Invariant
from audit.memory import Numbers
from audit.world import Step
from domain.bot import Bot
from domain.claim import CompletedVia, ReleaseReason
from domain.event import Event
from domain.order import Order, OrderKind, OrderStatus

# Clocks are read to the microsecond, but not at the same moment.
TOLERANCE = timedelta(milliseconds=50)
# A command that has not been committed after this time never is.
COMMIT_SECONDS_MAX = timedelta(seconds=5)
# As far as a claim is followed in what it left behind: one that leaves more is wrong anyhow.
PASSED_MAX = 1000

ORDER_ENDS = (Order.Completed, Order.Failed, Order.Released)
BOT_ENDS = (Bot.Completed, Bot.Failed, Bot.Released)


class OneHolder(Invariant):
    id = "I-13"
    statement = "No order has two holders."
    kinds = (Order.Claimed,)

    def see(self, step: Step) -> str | None:
        held = step.before.claim
        return None if held is None else f"claimed while claim {held.id} holds it"


class OneOrder(Invariant):
    id = "I-14"
    statement = "No bot holds two orders."
    kinds = (Bot.Claimed, Order.Claimed, *ORDER_ENDS)

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._held: dict[UUID, UUID] = {}
        """What each bot holds, as the orders tell it."""

    def see(self, step: Step) -> str | None:
        event, order = step.event, step.before
        if isinstance(event, Bot.Claimed):
            return None if order.order_id is None else f"it holds order {order.order_id} already"
        if isinstance(event, Order.Claimed):
            held = self._held.setdefault(event.bot_id, step.entry.aggregate)
            return None if held == step.entry.aggregate else f"its bot holds order {held} already"
        if order.claim is not None and self._held.get(order.claim.bot_id) == order.id:
            del self._held[order.claim.bot_id]
        return None


class Agreement(Invariant):
    id = "I-15"
    statement = "After every command, an order and its bot say the same of each other."
    kinds = (Order.Claimed, *ORDER_ENDS, Bot.Claimed, *BOT_ENDS)

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._open: dict[UUID, Step] = {}
        """Who is contradicted, since which event. The rest of that event's command may mend it."""

    def see(self, step: Step) -> str | None:
        since = self._open.get(step.entry.aggregate)
        if since is not None and since.entry.command_id != step.entry.command_id:
            self._accuse(since)
        for one in self._concerned(step):
            if self._is_contradicted(one):
                self._open.setdefault(one, step)
            else:
                self._open.pop(one, None)
        return None

    def end(self) -> None:
        for since in self._open.values():
            self._accuse(since)

    def _accuse(self, since: Step) -> None:
        self.accuse_step(since, "after its command, an order and its bot contradict each other")

    @staticmethod
    def _concerned(step: Step) -> list[UUID]:
        if isinstance(step.before, Order) or isinstance(step.after, Order):
            claims = [state.claim for state in (step.before, step.after) if state is not None]
            others = [claim.bot_id for claim in claims if claim is not None]
        else:
            bots = [state for state in (step.before, step.after) if state is not None]
            others = [bot.order_id for bot in bots if bot.order_id is not None]
        return [step.entry.aggregate, *others]

    def _is_contradicted(self, one: UUID) -> bool:
        state = self.case.world.get(one)
        if isinstance(state, Order) and state.claim is not None:
            bot = self.case.world.get(state.claim.bot_id)
            said = (bot.order_id, bot.claim_id) if isinstance(bot, Bot) else None
            return said != (state.id, state.claim.id)
        if isinstance(state, Bot) and state.order_id is not None:
            order = self.case.world.get(state.order_id)
            claim = order.claim if isinstance(order, Order) else None
            return claim is None or (claim.bot_id, claim.id) != (state.id, state.claim_id)
        return False


class NoDanglingHolder(Invariant):
    id = "I-16"
    statement = "Nothing that is deleted holds anything or is held."
    kinds = (Bot.Claimed, Bot.Deleted, Order.Claimed, Order.Deleted)

    def see(self, step: Step) -> str | None:
        event, before = step.event, step.before
        if isinstance(event, Bot.Deleted):
            return None if before.order_id is None else f"deleted while it holds {before.order_id}"
        if isinstance(event, Order.Deleted):
            return None if before.claim is None else f"deleted under claim {before.claim.id}"
        if before.deleted_at is not None:
            return "claimed after it was deleted"
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

    def see(self, step: Step) -> str | None:
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


class Waiting:
    """A pending order, in the order in which bots take them."""

    __slots__ = ("key", "order", "since")

    def __init__(self, order: Order, since: datetime) -> None:
        self.key = order.kind is not OrderKind.VIP, order.number
        self.order = order
        self.since = since

    def __lt__(self, other: "Waiting") -> bool:
        return self.key < other.key


class Urgency(Invariant):
    """The relaxed form: claims at the same moment keep off each other's orders, so an order may be
    passed over while another claim holds it that has begun and is not recorded yet. What such a
    claim took is claimed by a command that had begun before; an order that only a later command
    touches, or nobody, was passed over for no reason.

    Only what dispatch claims is judged: an operator may give any order to any bot.
    """

    id = "I-18"
    statement = "No bot is given an order while a more urgent one has been waiting for long."
    kinds = (
        *(Order.Created, Order.Claimed, Order.MovedToDLQ, Order.Requeued, Order.Deleted),
        *(Order.Restored, Order.Failed, Order.Released),
    )
    is_picky = True

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._queue: list[Waiting] = []
        self._pending: dict[UUID, Waiting] = {}
        self._passed: dict[UUID, Step] = {}
        """Orders that were left behind, each with the claim that did."""

    def see(self, step: Step) -> str | None:
        self._settle(step)
        if step.entry.actor == DISPATCH and isinstance(step.event, Order.Claimed):
            self.seen = True
            self._passed |= {one.order.id: step for one in self._left_behind(step)}
        self._pending.pop(step.entry.aggregate, None)
        if step.after.is_ready:
            waiting = Waiting(step.after, step.entry.recorded_at)
            self._pending[step.entry.aggregate] = waiting
            heappush(self._queue, waiting)
        while self._queue and not self._is_pending(self._queue[0]):
            heappop(self._queue)
        return None

    def end(self) -> None:
        for claim in self._passed.values():
            if self.case.world.now > claim.entry.recorded_at + COMMIT_SECONDS_MAX:
                self._accuse(claim)

    def _settle(self, step: Step) -> None:
        """An order that was passed over is touched: by somebody who was at it at that time?"""
        claim = self._passed.pop(step.entry.aggregate, None)
        if claim is not None and step.event.at > claim.entry.recorded_at:
            self._accuse(claim)

    def _accuse(self, claim: Step) -> None:
        self.accuse_step(claim, "a more urgent order was passed over")

    def _left_behind(self, step: Step) -> list[Waiting]:
        mine = Waiting(step.before, step.entry.recorded_at)
        before: list[Waiting] = []
        while self._queue and self._queue[0] < mine and len(before) < PASSED_MAX:
            before.append(heappop(self._queue))
        for one in before:
            heappush(self._queue, one)
        return [one for one in before if self._is_pending(one) and _was_passed(one, step)]

    def _is_pending(self, waiting: Waiting) -> bool:
        return self._pending.get(waiting.order.id) is waiting


def _was_passed(waiting: Waiting, claim: Step) -> bool:
    if waiting.since + COMMIT_SECONDS_MAX > claim.event.at:
        return False  # It may have been committed after the claim had looked.
    if not claim.event.aged:
        return True
    is_older = waiting.order.created_at <= claim.before.created_at
    return is_older and waiting.order.kind is claim.before.kind


class OrderNumbers(Invariant):
    id = "I-19"
    statement = "Order numbers are unique, and a later order has a higher one."
    kinds = (Order.Created,)

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._numbers = Numbers()
        self._highest = 0
        self._recent: deque[tuple[datetime, int]] = deque(maxlen=1000)

    def see(self, step: Step) -> str | None:
        number, at = step.event.number, step.event.at
        self._recent.append((step.entry.recorded_at, number))
        if not self._numbers.add(number):
            return f"number {number} was given before"
        if number > self._highest:
            self._highest = number
            return None
        # Of those that are made at the same time, any may be first.
        if any(other > number and recorded < at for recorded, other in self._recent):
            return f"number {number} after a higher one was recorded"
        return None


class Timers(Invariant):
    id = "I-20"
    statement = "Nothing is completed by time, or taken from a bot, before it is due."
    kinds = (Order.Completed, Order.Released)
    is_picky = True

    def see(self, step: Step) -> str | None:
        event, claim = step.event, step.before.claim
        if isinstance(event, Order.Completed):
            by_time = event.via is CompletedVia.TIMER
        else:
            by_time = event.reason is ReleaseReason.EXPIRED
        if not by_time or claim is None:
            return None
        self.seen = True
        early = claim.due_at - TOLERANCE - event.at
        return f"{early.total_seconds():.3f} s too early" if early > timedelta(0) else None


INVARIANTS = (
    OneHolder,
    OneOrder,
    Agreement,
    NoDanglingHolder,
    CompletedOnce,
    Urgency,
    OrderNumbers,
    Timers,
)
