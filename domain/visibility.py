"""Visibility of an API key: aggregates outside of it do not exist for the key's holder.

A restricted command decides on a unit of work that hides them, so that another owner's order is
indistinguishable from a missing one. It also refuses to claim from or enqueue into other queues: a
second barrier if a route forgets its own check.
"""

from collections.abc import Hashable, Sequence
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from msgspec import Struct

from daybook.domain.command import Command, UnitOfWork, Wrapped
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
    owners: frozenset[str] | None = None  # Owners whose orders are visible; None for all
    bot_id: UUID | None = None  # Orders held or completed by this bot are visible too
    sees_all_bots: bool = True
    queues: frozenset[str] | None = None  # Visible queues; None for all
    restaurant: str | None = None  # The visible restaurant and its tickets; None for all

    @property
    def is_unrestricted(self) -> bool:
        is_restricted = (
            self.owners is not None or self.queues is not None or self.restaurant is not None
        )
        return self.sees_all_bots and not is_restricted

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
        # A new kind of aggregate is hidden from restricted keys until it has a case here.
        return self.is_unrestricted

    def can_use_queue(self, queue: str) -> bool:
        return self.queues is None or queue in self.queues

    def _holds(self, order: Order) -> bool:
        claim = order.claim or order.completed_under
        return self.bot_id is not None and claim is not None and claim.bot_id == self.bot_id


UNRESTRICTED = Visibility()


class Restricted(Wrapped[A], frozen=True, gc=False):
    visibility: Visibility

    def decide(self, work: UnitOfWork) -> A:
        return self.command.decide(RestrictedUnitOfWork(work, self.visibility))


class RestrictedUnitOfWork:
    def __init__(self, work: UnitOfWork, visibility: Visibility) -> None:
        self._work = work
        self._visibility = visibility

    @property
    def now(self) -> datetime:
        return self._work.now

    def get(self, decider: Decider[S], aggregate_id: UUID) -> S | None:
        state = self._work.get(decider, aggregate_id)
        return state if self._visibility.can_see(state) else None

    def count_related(self, decider: Decider[Any], to: UUID) -> int:
        """Not restricted: a key that may push into a lane may know its backlog."""
        return self._work.count_related(decider, to)

    def all(self, decider: Decider[S]) -> Sequence[S]:
        return [state for state in self._work.all(decider) if self._visibility.can_see(state)]

    def pick_one(self, decider: Decider[S], selector: Hashable = None) -> S | None:
        """Orders of all owners, since bots cook for all; jobs of usable queues only."""
        self._check_selector(selector)
        return self._work.pick_one(decider, selector)

    def pick(self, decider: Decider[S], selector: Hashable, *, limit: int) -> list[S]:
        self._check_selector(selector)
        return self._work.pick(decider, selector, limit=limit)

    def next_number(self, sequence: str) -> int:
        return self._work.next_number(sequence)

    def record(self, decider: Decider[S], aggregate_id: UUID, event: Event) -> S:
        match event:
            case Job.Created():
                self._check_queue(event.queue)
            case Operation.Created():
                for item in event.items:
                    self._check_queue(item.queue)
        return self._work.record(decider, aggregate_id, event)

    def _check_selector(self, selector: Hashable) -> None:
        if isinstance(selector, JobSelector):
            for queue in selector.queues:
                self._check_queue(queue)

    def _check_queue(self, queue: str) -> None:
        if not self._visibility.can_use_queue(queue):
            raise QueueOutOfReachError(queue)


def within(command: Command[A], visibility: Visibility) -> Command[A]:
    return command if visibility.is_unrestricted else Restricted(command, visibility)
