"""The common shape of all invariants: each sees the log pass by, and gives its verdict."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import ClassVar

from msgspec import Struct

from daybook.audit.client_records import ClientRecords
from daybook.audit.entries import Earlier
from daybook.audit.replayed_state import LONG_AGO, ReplayedEvent, ReplayedState
from daybook.audit.service_database import ServiceDatabase
from daybook.domain.event import Event

COMMIT_SECONDS_MAX = timedelta(seconds=5)


class Verdict(StrEnum):
    VALID = "valid"
    INVALID = "invalid"
    UNKNOWN = "unknown"
    """Nothing was seen that it is about."""


class Violation(Struct, frozen=True):
    reason: str
    place: int | None = None
    """Of the event; None when it is not about one event."""

    position: int | None = None


class Case(Struct, frozen=True, eq=False, kw_only=True):
    """What there is to judge by."""

    world: ReplayedState
    earlier: Earlier | None = None
    witnesses: ClientRecords | None = None
    service: ServiceDatabase | None = None
    calm_since: datetime = LONG_AGO
    """When the last known fault was over: what is promised to happen soon, is from then on."""


class Invariant:
    id: ClassVar[str]
    statement: ClassVar[str]
    kinds: tuple[type[Event], ...] | None = ()
    """The events it sees; None for all, even those that cannot be decoded."""

    is_picky: ClassVar[bool] = False
    """Whether not all that it sees is what it is about: then it sets `seen` itself."""

    sees_set_aside: ClassVar[bool] = False
    """Whether it also judges aggregates that were set aside, by the columns beside the data."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.seen = False
        self.violation: Violation | None = None

    def see(self, step: ReplayedEvent) -> str | None:  # noqa: ARG002 (some only judge at the end)
        """What is wrong with this event; None when nothing is."""
        return None

    def end(self) -> None:
        """For what only the end of the log shows."""

    def may_go_on(self, step: ReplayedEvent) -> bool:
        """Whether the rest of its command may lie behind the end of the log. An export ends where
        nothing before it can be added, which may be in the middle of a command; a command that has
        not been recorded after five seconds never is."""
        end = self.case.world.now
        return self.case.service is None and end <= step.entry.recorded_at + COMMIT_SECONDS_MAX

    def accuse(self, reason: str, place: int | None = None, position: int | None = None) -> None:
        """Keeps the first."""
        known = self.violation
        if known is None or (place or 0) < (known.place or 0):
            self.violation = Violation(reason, place, position)

    def accuse_step(self, step: ReplayedEvent, reason: str) -> None:
        self.accuse(reason, step.place, step.entry.position)

    def verdict(self) -> Verdict:
        if self.violation is not None:
            return Verdict.INVALID
        return Verdict.VALID if self.seen else Verdict.UNKNOWN
