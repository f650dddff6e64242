"""Invariant on clock jumps: the length of a jump does not count as elapsed time."""

from datetime import datetime, timedelta

from msgspec import Struct

from daybook.audit.invariant import Case, Invariant
from daybook.audit.replayed_state import ReplayedEvent
from daybook.domain.clock import Clock
from daybook.domain.jobs.job import FailureReason, Job

# Clocks are read to the microsecond, but not simultaneously; a jump is measured to within one
# database round trip.
TOLERANCE = timedelta(milliseconds=300)


class ClockReading(Struct, frozen=True, gc=False):
    at: datetime
    index: int


class Jumps:
    """All jumps so far. Other events may lie between a jump and its event."""

    def __init__(self) -> None:
        self._known: list[tuple[int, Clock.Jumped]] = []

    def add(self, step: ReplayedEvent) -> None:
        self._known.append((step.index, step.event))

    def elapsed(self, began: ClockReading, ended: ClockReading) -> tuple[timedelta, int]:
        """Upper bound of the elapsed time, and the jumps that may lie between the two readings."""
        elapsed, count = ended.at - began.at, 0
        for index, jump in self._known:
            may_have_ended = ended.index > index or _is_near(ended.at, jump)
            if began.index > index or not may_have_ended:
                continue
            count += 1
            seconds = timedelta(seconds=jump.seconds)
            # An event before it with a time of the new clock may lie on either side of the jump.
            is_between = ended.index > index and not _is_near(began.at, jump)
            elapsed -= seconds if is_between else min(seconds, timedelta(0))
        return elapsed, count


def _is_near(at: datetime, jump: Clock.Jumped) -> bool:
    within = timedelta(seconds=jump.within_seconds) + TOLERANCE
    return jump.at - within <= at <= jump.at + TOLERANCE


class LeasesDuringJumps(Invariant):
    """Heartbeats are not events. A measured lease expiry records its length since the last
    heartbeat; of other leases the log has only the start and the jumps since."""

    id = "I-44"
    statement = "A jump of the clock ends no lease before its time has elapsed."
    kinds = (Clock.Jumped, Job.Claimed, Job.Failed)
    sets_seen = True

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._jumps = Jumps()
        self._claims: dict[int, ClockReading] = {}

    def check(self, step: ReplayedEvent) -> str | None:
        event = step.event
        if isinstance(event, Clock.Jumped):
            self.seen = True
            self._jumps.add(step)
            return None
        one = step.entry.aggregate.int
        if isinstance(event, Job.Claimed):
            self._claims[one] = ClockReading(event.at, step.index)
            return None
        began = self._claims.pop(one, None)
        claim = step.before.claim
        if event.reason is not FailureReason.LEASE_EXPIRED or began is None or claim is None:
            return None
        self.seen = True
        elapsed, jumps = self._jumps.elapsed(began, ClockReading(event.at, step.index))
        length = claim.until - claim.started_at
        if event.lease_seconds is not None:
            length = timedelta(seconds=event.lease_seconds)
        elif not jumps:
            return None
        if elapsed + TOLERANCE >= length:
            return None
        return f"its lease of {length} ended after {elapsed}, with {jumps} jumps of the clock"


INVARIANTS = (LeasesDuringJumps,)
