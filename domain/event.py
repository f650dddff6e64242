"""Base classes of events and deciders, the form of every aggregate."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any, ClassVar, Generic, Self, TypeVar
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from daybook.domain.values import INSTANT_LAST

Upcast = Callable[[dict[str, Any]], dict[str, Any]]


class Event(Struct, frozen=True, kw_only=True, gc=False):
    """A recorded decision: nested in its aggregate, named by a past participle.

    The topic is stored and never changes. A new field has a default and needs no new version. A
    changed field raises the version, and `upcasts[n]` converts stored fields from version n to n +
    1.
    """

    topic: ClassVar[str]
    schema_version: ClassVar[int] = 1
    upcasts: ClassVar[Mapping[int, Upcast]] = {}
    status_after: ClassVar[StrEnum | None] = None
    """The status that the aggregate has after the event; None if the event does not set it."""

    at: datetime


class EventWithReason(Event, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """A decision by a person, with an optional reason."""

    because: str | None = None


@lru_cache(maxsize=64)
def add_seconds(now: datetime, seconds: float) -> datetime:
    """Adds seconds, capped at the last storable instant. Cached, because the decisions of a batch
    share one time and mostly one duration."""
    try:
        return min(now + timedelta(seconds=seconds), INSTANT_LAST)
    except (OverflowError, ValueError):
        # Beyond the calendar: a job of an older version may have a lease of 10¹⁸ seconds.
        return INSTANT_LAST


class State(Struct, frozen=True, gc=False):
    """The state of an aggregate, folded from its events."""

    id: UUID
    version: int

    def after(self, event: Event, **changes: Any) -> Self:
        if event.status_after is not None:
            changes["status"] = event.status_after
        return replace(self, version=self.version + 1, updated_at=event.at, **changes)


S = TypeVar("S", bound=State)


class Decider(Struct, Generic[S], frozen=True, eq=False, kw_only=True):
    """An aggregate as the log sees it: its name, its events and the fold to its state.

    `finished` is true when no further event is expected: the aggregate leaves the live tables and
    remains in the log. `related_ids` returns the ids under which `count_related` counts it.
    """

    name: str
    state: type[S]
    events: tuple[type[Event], ...]
    evolve: Callable[[S | None, Event], S]
    finished: Callable[[S], bool]
    related_ids: Callable[[S], Iterable[UUID]] | None = None

    def fold(self, events: Iterable[Event]) -> S | None:
        state: S | None = None
        for event in events:
            state = self.evolve(state, event)
        return state


def events_of(aggregate: type) -> tuple[type[Event], ...]:
    """The events nested in an aggregate class, in source order."""
    nested = vars(aggregate).values()
    return tuple(kind for kind in nested if isinstance(kind, type) and issubclass(kind, Event))
