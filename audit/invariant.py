"""Base of all invariants: each checks the log event by event and gives a verdict."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import ClassVar

from msgspec import Struct

from daybook.audit.client_records import ClientRecords
from daybook.audit.entries import EarlierExport
from daybook.audit.replayed_state import LONG_AGO, ReplayedEvent, ReplayedState
from daybook.audit.service_database import ServiceDatabase
from daybook.domain.event import Event

COMMIT_SECONDS_MAX = timedelta(seconds=5)


class Verdict(StrEnum):
    VALID = "valid"
    INVALID = "invalid"
    UNKNOWN = "unknown"  # The log has nothing that the invariant applies to


class Violation(Struct, frozen=True):
    reason: str
    index: int | None = None  # Index of the event; None if no single event is at fault
    position: int | None = None


class Case(Struct, frozen=True, eq=False, kw_only=True):
    replay: ReplayedState
    earlier: EarlierExport | None = None
    client_records: ClientRecords | None = None
    service: ServiceDatabase | None = None
    calm_since: datetime = LONG_AGO  # End of the last known fault: time limits count from then


class Invariant:
    id: ClassVar[str]
    statement: ClassVar[str]
    kinds: tuple[type[Event], ...] | None = ()
    """Events to check; None for all, including undecodable ones."""

    sets_seen: ClassVar[bool] = False
    """The invariant applies only to some of its events and sets `seen` itself."""

    checks_set_aside: ClassVar[bool] = False
    """Also checks the metadata of aggregates that were set aside."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.seen = False
        self.violation: Violation | None = None

    def check(self, step: ReplayedEvent) -> str | None:  # noqa: ARG002 (some only judge at the end)
        """Returns the fault of the event, or None."""
        return None

    def end(self) -> None:
        """Checks that need the end of the log."""

    def may_continue(self, step: ReplayedEvent) -> bool:
        """Whether the rest of the event's command may lie beyond the end of an export, which may
        cut a command. A command is recorded within five seconds or not at all."""
        end = self.case.replay.now
        return self.case.service is None and end <= step.entry.recorded_at + COMMIT_SECONDS_MAX

    def report(self, reason: str, index: int | None = None, position: int | None = None) -> None:
        """Keeps the earliest violation."""
        known = self.violation
        if known is None or (index or 0) < (known.index or 0):
            self.violation = Violation(reason, index, position)

    def report_at(self, step: ReplayedEvent, reason: str) -> None:
        self.report(reason, step.index, step.entry.position)

    def verdict(self) -> Verdict:
        if self.violation is not None:
            return Verdict.INVALID
        return Verdict.VALID if self.seen else Verdict.UNKNOWN
