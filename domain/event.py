"""What an event is, and what a decider is: the two shapes every aggregate is written in."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, ClassVar, Generic, Protocol, TypeVar
from uuid import UUID

from msgspec import Struct

from daybook.domain.values import INSTANT_LAST

Upcast = Callable[[dict[str, Any]], dict[str, Any]]


class Event(Struct, frozen=True, kw_only=True, gc=False):
    """A decision that was taken: nested in its aggregate, named by a past participle.

    The topic is stored and never changes. A new field has a default and needs no new version;
    when the shape of a field must change, the version is raised and `upcasts[n]` turns the
    stored fields of version n into those of version n + 1.
    """

    topic: ClassVar[str]
    schema_version: ClassVar[int] = 1
    upcasts: ClassVar[Mapping[int, Upcast]] = {}

    at: datetime


class EventWithReason(Event, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """A decision that people take: whoever took it may have said why."""

    because: str | None = None


@lru_cache(maxsize=64)
def add_seconds(now: datetime, seconds: float) -> datetime:
    """So many seconds after now, and never beyond the last instant that may be stored. All that is
    decided together is decided at one moment, and mostly for as long."""
    try:
        return min(now + timedelta(seconds=seconds), INSTANT_LAST)
    except (OverflowError, ValueError):
        # No calendar has it: a job of an older version may have a lease of 10¹⁸ seconds.
        return INSTANT_LAST


class State(Protocol):
    """The least that the log needs to know of an aggregate's state."""

    @property
    def id(self) -> UUID: ...
    @property
    def version(self) -> int: ...


S = TypeVar("S", bound=State)


class Decider(Struct, Generic[S], frozen=True, eq=False, kw_only=True):
    """An aggregate as the log sees it: its name, its events and the fold that gives its state.

    `finished` says that nothing more is expected to happen: such an aggregate leaves the live
    tables and lives on in the log. `ties` are the ids that `Desk.count_related` counts it for.
    """

    name: str
    state: type[S]
    events: tuple[type[Event], ...]
    evolve: Callable[[S | None, Event], S]
    finished: Callable[[S], bool]
    ties: Callable[[S], Iterable[UUID]] | None = None

    def fold(self, events: Iterable[Event]) -> S | None:
        state: S | None = None
        for event in events:
            state = self.evolve(state, event)
        return state


def events_of(aggregate: type) -> tuple[type[Event], ...]:
    """The events nested in an aggregate's class, in the order in which they are written there."""
    nested = vars(aggregate).values()
    return tuple(kind for kind in nested if isinstance(kind, type) and issubclass(kind, Event))
