"""What a command may use while it decides: the desk on which its aggregates lie.

A command says beforehand what must lie there (`reads`), and then decides from that alone. It
is pure: the desk is an argument, and so are the time and the numbers drawn from it. Who fills
the desk and makes the decisions durable is not the domain's business.
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
    """Who goes first when there is more than can be done."""

    HIGH = 0
    """What ends something, and whatever is not said to wait."""

    NORMAL = 1
    """What only begins something, and ends nothing."""

    LOW = 2
    """What nobody waits for."""


class Needs(Struct, frozen=True, gc=False, kw_only=True):
    """What a command needs before it can decide."""

    lock: tuple[tuple[Decider[Any], UUID], ...] = ()
    """Aggregates named by id: held for this command alone until its decision is durable."""

    may_use_cache: bool = False
    """Whether what is remembered of those named will do: for who looks at nothing but what events
    say. They are held all the same, once it is decided."""

    lock_related: tuple[tuple[Decider[Any], UUID], ...] = ()
    """Aggregates of that kind which are tied to that id, whichever they are: a bot's order."""

    lock_all: tuple[Decider[Any], ...] = ()
    """Kinds of which all unfinished ones are wanted."""

    peek: tuple[tuple[Decider[Any], UUID], ...] = ()
    """Aggregates named by id that are only looked at: others may change them meanwhile, and one
    that is finished is as if there were none."""

    peek_all: tuple[Decider[Any], ...] = ()
    """Kinds of which all are looked at in that way: for those that are few."""

    pick: Decider[Any] | None = None
    """A kind of aggregate of which the most urgent ready ones are wanted."""

    pick_count: int = 0

    pick_selector: Hashable = None
    """Which of the ready ones, and how they are chosen: as their table understands it."""

    count_related: tuple[tuple[Decider[Any], UUID], ...] = ()
    """How many aggregates of that kind are tied to that id, whichever: only looked at."""

    next_numbers: tuple[tuple[str, int], ...] = ()
    """Sequences of numbers, and how many of each are wanted."""

    priority: CommandPriority = CommandPriority.HIGH

    @staticmethod
    def of_all(parts: Sequence["Needs"]) -> "Needs":
        """What several commands need together: at most one kind of ready ones."""
        sources = {(part.pick, part.pick_selector) for part in parts if part.pick}
        assert len(sources) <= 1, "commands that belong together take one kind of ready aggregate"
        ready, among = sources.pop() if sources else (None, None)
        return Needs(
            lock=_chained([part.lock for part in parts]),
            may_use_cache=all(part.may_use_cache for part in parts),
            lock_related=_chained([part.lock_related for part in parts]),
            lock_all=tuple({*_chained([part.lock_all for part in parts])}),
            peek=_chained([part.peek for part in parts]),
            peek_all=tuple({*_chained([part.peek_all for part in parts])}),
            pick=ready,
            pick_count=sum([part.pick_count for part in parts]),
            pick_selector=among,
            count_related=_chained([part.count_related for part in parts]),
            next_numbers=_chained([part.next_numbers for part in parts]),
            priority=min([part.priority for part in parts], default=CommandPriority.HIGH),
        )

    @property
    def weight(self) -> int:
        """How much room a command takes in a batch."""
        draws = sum([count for _, count in self.next_numbers])
        return max(1, len(self.lock), self.pick_count, draws, len(self.count_related))


def _chained(parts: Iterable[tuple[P, ...]]) -> tuple[P, ...]:
    return tuple(chain.from_iterable(parts))


class NotLoadedError(Exception):
    """A command came upon an aggregate that it had not asked for, because somebody tied it to
    another just then. It decides anew, and will find it."""


class UnitOfWork(Protocol):
    """The aggregates a command asked for, as they are now; decisions are recorded on it."""

    @property
    def now(self) -> datetime: ...

    def get(self, decider: Decider[S], aggregate_id: UUID) -> S | None:
        """The aggregate as it stands, finished ones too; None if there never was one.

        Raises NotOnDeskError when it was not asked for.
        """

    def count_related(self, decider: Decider[Any], to: UUID) -> int:
        """How many of that kind were tied to that id, when the batch began."""

    def all(self, decider: Decider[S]) -> Sequence[S]:
        """All unfinished ones of a kind that was asked for as a whole; of another kind, those
        that lie here."""

    def pick_one(self, decider: Decider[S], among: Hashable = None) -> S | None:
        """The most urgent ready aggregate that no command before this one has taken."""

    def pick(self, decider: Decider[S], among: Hashable, *, limit: int) -> list[S]:
        """So many of them, or as many as there are."""

    def next_number(self, sequence: str) -> int:
        """The next number of the sequence; every number is drawn once."""

    def record(self, decider: Decider[S], aggregate_id: UUID, event: Event) -> S:
        """Adds an event and returns the state it leads to."""


class Command(Protocol[A_co]):
    """An intention. `decide` answers, records events on the desk, or raises a refusal."""

    @property
    def needs(self) -> Needs: ...

    def decide(self, work: UnitOfWork) -> A_co: ...


class AllOrNothing(Struct, frozen=True, gc=False):
    """Commands that are decided as one, all or nothing; the answer is the list of theirs."""

    commands: Sequence[Command[Any]]

    @property
    def needs(self) -> Needs:
        return Needs.of_all([command.needs for command in self.commands])

    def decide(self, work: UnitOfWork) -> list[Any]:
        return [command.decide(work) for command in self.commands]
