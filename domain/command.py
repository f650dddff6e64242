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

    URGENT = 0
    """What ends something, and whatever is not said to wait."""

    PATIENT = 1
    """What only begins something, and ends nothing."""

    LAST = 2
    """What nobody waits for."""


class Needs(Struct, frozen=True, gc=False, kw_only=True):
    """What a command needs before it can decide."""

    names: tuple[tuple[Decider[Any], UUID], ...] = ()
    """Aggregates named by id: held for this command alone until its decision is durable."""

    from_memory: bool = False
    """Whether what is remembered of those named will do: for who looks at nothing but what events
    say. They are held all the same, once it is decided."""

    tied: tuple[tuple[Decider[Any], UUID], ...] = ()
    """Aggregates of that kind which are tied to that id, whichever they are: a bot's order."""

    every: tuple[Decider[Any], ...] = ()
    """Kinds of which all unfinished ones are wanted."""

    seen: tuple[tuple[Decider[Any], UUID], ...] = ()
    """Aggregates named by id that are only looked at: others may change them meanwhile, and one
    that is finished is as if there were none."""

    seen_all: tuple[Decider[Any], ...] = ()
    """Kinds of which all are looked at in that way: for those that are few."""

    ready: Decider[Any] | None = None
    """A kind of aggregate of which the most urgent ready ones are wanted."""

    ready_count: int = 0

    among: Hashable = None
    """Which of the ready ones, and how they are chosen: as their table understands it."""

    seen_tied: tuple[tuple[Decider[Any], UUID], ...] = ()
    """How many aggregates of that kind are tied to that id, whichever: only looked at."""

    draws: tuple[tuple[str, int], ...] = ()
    """Sequences of numbers, and how many of each are wanted."""

    haste: CommandPriority = CommandPriority.URGENT

    @staticmethod
    def of_all(parts: Sequence["Needs"]) -> "Needs":
        """What several commands need together: at most one kind of ready ones."""
        sources = {(part.ready, part.among) for part in parts if part.ready}
        assert len(sources) <= 1, "commands that belong together take one kind of ready aggregate"
        ready, among = sources.pop() if sources else (None, None)
        return Needs(
            names=_chained([part.names for part in parts]),
            from_memory=all(part.from_memory for part in parts),
            tied=_chained([part.tied for part in parts]),
            every=tuple({*_chained([part.every for part in parts])}),
            seen=_chained([part.seen for part in parts]),
            seen_all=tuple({*_chained([part.seen_all for part in parts])}),
            ready=ready,
            ready_count=sum([part.ready_count for part in parts]),
            among=among,
            seen_tied=_chained([part.seen_tied for part in parts]),
            draws=_chained([part.draws for part in parts]),
            haste=min([part.haste for part in parts], default=CommandPriority.URGENT),
        )

    @property
    def weight(self) -> int:
        """How much room a command takes in a batch."""
        draws = sum([count for _, count in self.draws])
        return max(1, len(self.names), self.ready_count, draws, len(self.seen_tied))


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

    def every(self, decider: Decider[S]) -> Sequence[S]:
        """All unfinished ones of a kind that was asked for as a whole; of another kind, those
        that lie here."""

    def pick_one(self, decider: Decider[S], among: Hashable = None) -> S | None:
        """The most urgent ready aggregate that no command before this one has taken."""

    def pick(self, decider: Decider[S], among: Hashable, *, limit: int) -> list[S]:
        """So many of them, or as many as there are."""

    def draw(self, sequence: str) -> int:
        """The next number of the sequence; every number is drawn once."""

    def record(self, decider: Decider[S], aggregate_id: UUID, event: Event) -> S:
        """Adds an event and returns the state it leads to."""


class Command(Protocol[A_co]):
    """An intention. `decide` answers, records events on the desk, or raises a refusal."""

    @property
    def reads(self) -> Needs: ...

    def decide(self, work: UnitOfWork) -> A_co: ...


class AllOrNothing(Struct, frozen=True, gc=False):
    """Commands that are decided as one, all or nothing; the answer is the list of theirs."""

    commands: Sequence[Command[Any]]

    @property
    def reads(self) -> Needs:
        return Needs.of_all([command.reads for command in self.commands])

    def decide(self, work: UnitOfWork) -> list[Any]:
        return [command.decide(work) for command in self.commands]
