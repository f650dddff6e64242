"""The bounds of a key: an aggregate outside of them does not exist for its holder.

A command under a bound key decides on a desk that shows only aggregates within the bounds. So it
finds another's order exactly as it finds one that never was, and answers with the same words. It
neither takes jobs from a queue outside the bounds nor puts any into it: routes refuse that early,
and the desk refuses it if a route has forgotten the check.
"""

from collections.abc import Hashable, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar
from uuid import UUID

from msgspec import Struct

from daybook.domain.command import Command, Needs, UnitOfWork
from daybook.domain.errors import QueueOutOfReachError
from daybook.domain.event import Decider, Event, S
from daybook.domain.jobs.job import Job
from daybook.domain.jobs.queue import Queue
from daybook.domain.jobs.work import JobSelector
from daybook.domain.messages.operation import Operation
from daybook.domain.orders.bot import Bot
from daybook.domain.orders.order import Order
from daybook.domain.tickets.restaurant import Restaurant, restaurant_id
from daybook.domain.tickets.ticket import Ticket

A = TypeVar("A")


class Visibility(Struct, frozen=True, kw_only=True):
    """Nothing given: everything is seen."""

    owners: frozenset[str] | None = None
    """Only orders of these; None for all."""

    bot_id: UUID | None = None
    """Beside them, orders that this bot holds or has completed."""

    sees_all_bots: bool = True
    queues: frozenset[str] | None = None
    """Only these queues and their jobs; None for all."""

    restaurant: str | None = None
    """Only this restaurant and its tickets; None for all."""

    @property
    def is_none(self) -> bool:
        is_bound = self.owners is not None or self.queues is not None or self.restaurant is not None
        return self.sees_all_bots and not is_bound

    def can_see(self, state: object) -> bool:
        match state:
            case Order():
                return self.owners is None or state.owner in self.owners or self._holds(state)
            case Bot():
                return self.sees_all_bots or state.id == self.bot_id
            case Job():
                return self.can_use_queue(state.queue)
            case Queue():
                return self.can_use_queue(state.name)
            case Operation():
                return all(self.can_use_queue(item.queue) for item in state.items)
            case Restaurant():
                return self.restaurant in (None, state.slug)
            case Ticket():
                return self.restaurant is None or state.restaurant_id == restaurant_id(
                    self.restaurant
                )
        # A new kind of thing is hidden from bound keys until somebody says here whose it is.
        return self.is_none

    def can_use_queue(self, queue: str) -> bool:
        return self.queues is None or queue in self.queues

    def _holds(self, order: Order) -> bool:
        claim = order.claim or order.completed_under
        return self.bot_id is not None and claim is not None and claim.bot_id == self.bot_id


UNBOUND = Visibility()


class Restricted(Struct, Generic[A], frozen=True, gc=False):
    """A command that is decided within bounds."""

    command: Command[A]
    bounds: Visibility

    @property
    def needs(self) -> Needs:
        return self.command.needs

    def decide(self, work: UnitOfWork) -> A:
        return self.command.decide(RestrictedUnitOfWork(work, self.bounds))


class RestrictedUnitOfWork:
    def __init__(self, work: UnitOfWork, visibility: Visibility) -> None:
        self._desk = work
        self._bounds = visibility

    @property
    def now(self) -> datetime:
        return self._desk.now

    def get(self, decider: Decider[S], aggregate_id: UUID) -> S | None:
        state = self._desk.get(decider, aggregate_id)
        return state if self._bounds.can_see(state) else None

    def count_related(self, decider: Decider[Any], to: UUID) -> int:
        """Whoever may push into a lane may know how much is accepted before it."""
        return self._desk.count_related(decider, to)

    def all(self, decider: Decider[S]) -> Sequence[S]:
        return [state for state in self._desk.all(decider) if self._bounds.can_see(state)]

    def pick_one(self, decider: Decider[S], among: Hashable = None) -> S | None:
        """Orders of all owners, since bots cook for all; jobs only of queues the key reaches."""
        self._must_select(among)
        return self._desk.pick_one(decider, among)

    def pick(self, decider: Decider[S], among: Hashable, *, limit: int) -> list[S]:
        self._must_select(among)
        return self._desk.pick(decider, among, limit=limit)

    def next_number(self, sequence: str) -> int:
        return self._desk.next_number(sequence)

    def record(self, decider: Decider[S], aggregate_id: UUID, event: Event) -> S:
        match event:
            case Job.Created():
                self._must_reach(event.queue)
            case Operation.Created():
                for item in event.items:
                    self._must_reach(item.queue)
        return self._desk.record(decider, aggregate_id, event)

    def _must_select(self, among: Hashable) -> None:
        if isinstance(among, JobSelector):
            for queue in among.queues:
                self._must_reach(queue)

    def _must_reach(self, queue: str) -> None:
        if not self._bounds.can_use_queue(queue):
            raise QueueOutOfReachError(queue)


def within(command: Command[A], visibility: Visibility) -> Command[A]:
    return command if visibility.is_none else Restricted(command, visibility)
