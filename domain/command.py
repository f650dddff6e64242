"""The contract between a command and the write path.

A command lists its needs and decides from those alone (`decide`). Commands are pure: the time and
drawn numbers come from the unit of work.
"""

from collections.abc import Hashable, Iterable, Sequence
from datetime import datetime
from enum import IntEnum
from itertools import chain
from typing import Any, Generic, Protocol, TypeVar
from uuid import UUID

from msgspec import Struct

from daybook.domain.event import Decider, Event, S

A_co = TypeVar("A_co", covariant=True)


class CommandPriority(IntEnum):
    """Execution order under load: lower values run first."""

    HIGH = 0  # Ends work, or has no other priority
    NORMAL = 1  # Begins work: new orders, jobs and pushes
    LOW = 2  # Background work without a waiting caller


class AggregateNeed(Struct, frozen=True, gc=False):
    """Aggregates of one kind that a command reads before it decides."""

    decider: Decider[Any]

    @property
    def weight(self) -> int:
        """How much of a batch it takes up."""
        return 1


class Lock(AggregateNeed, frozen=True, gc=False):
    """Aggregates by id, locked until the decision is durable."""

    ids: Sequence[UUID]
    may_use_cache: bool = False
    """The row cache may serve them. For commands that read nothing but state folded from events;
    rows are still locked before the write."""

    @property
    def weight(self) -> int:
        return len(self.ids)


class LockRelated(AggregateNeed, frozen=True, gc=False):
    """Aggregates that refer to an id, such as the order of a bot; locked."""

    to: UUID


class LockAll(AggregateNeed, frozen=True, gc=False):
    """Every unfinished aggregate of a kind, locked."""


class Peek(AggregateNeed, frozen=True, gc=False):
    """Aggregates by id, read without a lock. A finished one counts as absent."""

    ids: Sequence[UUID]


class PeekAll(AggregateNeed, frozen=True, gc=False):
    """Every unfinished aggregate of a kind, without a lock; only for small tables."""


class CountRelated(AggregateNeed, frozen=True, gc=False):
    """How many aggregates refer to each id, without a lock."""

    to: Sequence[UUID]

    @property
    def weight(self) -> int:
        return len(self.to)


class PickReady(AggregateNeed, frozen=True, gc=False):
    """The most urgent ready aggregates of a kind, locked. The live table defines the meaning of the
    selector."""

    selector: Hashable
    limit: int

    @property
    def weight(self) -> int:
        return self.limit


class NextNumbers(Struct, frozen=True, gc=False):
    """Numbers of a sequence."""

    sequence: str
    count: int

    @property
    def weight(self) -> int:
        return self.count


Need = AggregateNeed | NextNumbers
Needs = Sequence[Need]


class NotLoadedError(Exception):
    """An aggregate was related to another after the needs were loaded. The command is decided
    again, with the aggregate loaded."""


class UnitOfWork(Protocol):
    """The loaded aggregates in their current state; records decisions."""

    @property
    def now(self) -> datetime: ...

    def get(self, decider: Decider[S], aggregate_id: UUID) -> S | None:
        """Returns the aggregate, finished or not, or None if it never existed.

        Raises NotLoadedError if it is not among the needs.
        """

    def count_related(self, decider: Decider[Any], to: UUID) -> int:
        """Aggregates of the kind that referred to the id when the batch began."""

    def all(self, decider: Decider[S]) -> Sequence[S]:
        """Every unfinished aggregate of a kind in `LockAll` or `PeekAll`; of other kinds, the
        loaded ones."""

    def pick_one(self, decider: Decider[S], selector: Hashable = None) -> S | None:
        """The most urgent ready aggregate that no earlier command of the batch picked."""

    def pick(self, decider: Decider[S], selector: Hashable, *, limit: int) -> list[S]:
        """Up to `limit` ready aggregates, the most urgent first."""

    def next_number(self, sequence: str) -> int:
        """The next number of the sequence; each number is drawn once."""

    def record(self, decider: Decider[S], aggregate_id: UUID, event: Event) -> S:
        """Appends an event and returns the folded state."""


class Command(Protocol[A_co]):
    """An intention. `decide` records events and returns a result, or raises a refusal. A command
    may have an attribute `priority`."""

    @property
    def needs(self) -> Needs: ...

    def decide(self, work: UnitOfWork) -> A_co: ...


def priority_of(command: Command[Any]) -> CommandPriority:
    priority: CommandPriority = getattr(command, "priority", CommandPriority.HIGH)
    return priority


def weight_of(needs: Iterable[Need]) -> int:
    """The largest number of aggregates or numbers of one sort."""
    weights: dict[type, int] = {}
    for need in needs:
        weights[type(need)] = weights.get(type(need), 0) + need.weight
    return max(weights.values(), default=1) or 1


class Wrapped(Struct, Generic[A_co], frozen=True, gc=False):
    """Base of commands that decide another command."""

    command: Command[A_co]

    @property
    def needs(self) -> Needs:
        return self.command.needs

    @property
    def priority(self) -> CommandPriority:
        return priority_of(self.command)


class AllOrNothing(Struct, frozen=True, gc=False):
    """Commands decided in one transaction; the result is the list of their results."""

    commands: Sequence[Command[Any]]

    @property
    def needs(self) -> Needs:
        return [*chain.from_iterable(command.needs for command in self.commands)]

    @property
    def priority(self) -> CommandPriority:
        return min([priority_of(one) for one in self.commands], default=CommandPriority.HIGH)

    def decide(self, work: UnitOfWork) -> list[Any]:
        return [command.decide(work) for command in self.commands]
