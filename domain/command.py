"""The contract between a command and the write path.

A command declares the aggregates it needs (`needs`) and decides from those alone (`decide`).
Commands are pure: the time and drawn numbers come from the unit of work.
"""

from collections.abc import Hashable, Iterable, Sequence
from datetime import datetime
from enum import IntEnum
from itertools import chain
from typing import Any, Protocol, TypeVar
from uuid import UUID

from msgspec import Struct

from daybook.domain.event import Decider, Event, S

A_co = TypeVar("A_co", covariant=True)
P = TypeVar("P")


class CommandPriority(IntEnum):
    """Execution order under load: lower values run first."""

    HIGH = 0  # Ends work, or has no other priority
    NORMAL = 1  # Begins work: new orders, jobs and pushes
    LOW = 2  # Background work without a waiting caller


class Needs(Struct, frozen=True, gc=False, kw_only=True):
    """The aggregates, counts and numbers that a command reads before it decides."""

    lock: tuple[tuple[Decider[Any], UUID], ...] = ()
    """Aggregates by id, locked until the decision is durable."""

    may_use_cache: bool = False
    """The row cache may serve `lock`. For commands that read nothing but state folded from events;
    rows are still locked before the write."""

    lock_related: tuple[tuple[Decider[Any], UUID], ...] = ()
    """Aggregates of a kind that refer to an id, such as the order of a bot; locked."""

    lock_all: tuple[Decider[Any], ...] = ()  # Kinds of which every unfinished aggregate is locked
    peek: tuple[tuple[Decider[Any], UUID], ...] = ()
    """Aggregates by id, read without a lock. A finished one counts as absent."""

    peek_all: tuple[Decider[Any], ...] = ()
    """Kinds read in full without a lock; only for small tables."""

    pick: Decider[Any] | None = None
    """The kind of which the most urgent ready aggregates are locked."""

    pick_count: int = 0

    pick_selector: Hashable = None
    """Filter and order of the pick; the live table defines its meaning."""

    count_related: tuple[tuple[Decider[Any], UUID], ...] = ()
    """Aggregates of a kind that refer to an id: only counted."""

    next_numbers: tuple[tuple[str, int], ...] = ()  # Number sequences, and how many numbers of each
    priority: CommandPriority = CommandPriority.HIGH

    @staticmethod
    def of_all(parts: Sequence["Needs"]) -> "Needs":
        """Union of several commands' needs; at most one kind and selector may be picked."""
        sources = {(part.pick, part.pick_selector) for part in parts if part.pick}
        assert len(sources) <= 1, "commands of one transaction pick one kind of ready aggregate"
        pick, selector = sources.pop() if sources else (None, None)
        return Needs(
            lock=_chain([part.lock for part in parts]),
            may_use_cache=all(part.may_use_cache for part in parts),
            lock_related=_chain([part.lock_related for part in parts]),
            lock_all=tuple({*_chain([part.lock_all for part in parts])}),
            peek=_chain([part.peek for part in parts]),
            peek_all=tuple({*_chain([part.peek_all for part in parts])}),
            pick=pick,
            pick_count=sum([part.pick_count for part in parts]),
            pick_selector=selector,
            count_related=_chain([part.count_related for part in parts]),
            next_numbers=_chain([part.next_numbers for part in parts]),
            priority=min([part.priority for part in parts], default=CommandPriority.HIGH),
        )

    @property
    def weight(self) -> int:
        numbers_count = sum([count for _, count in self.next_numbers])
        return max(1, len(self.lock), self.pick_count, numbers_count, len(self.count_related))


def _chain(parts: Iterable[tuple[P, ...]]) -> tuple[P, ...]:
    return tuple(chain.from_iterable(parts))


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
        """Every unfinished aggregate of a kind in `lock_all` or `peek_all`; of other kinds, the
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
    """An intention. `decide` records events and returns a result, or raises a refusal."""

    @property
    def needs(self) -> Needs: ...

    def decide(self, work: UnitOfWork) -> A_co: ...


class AllOrNothing(Struct, frozen=True, gc=False):
    """Commands decided in one transaction; the result is the list of their results."""

    commands: Sequence[Command[Any]]

    @property
    def needs(self) -> Needs:
        return Needs.of_all([command.needs for command in self.commands])

    def decide(self, work: UnitOfWork) -> list[Any]:
        return [command.decide(work) for command in self.commands]
