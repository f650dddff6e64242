"""The database's clock, by which everything is dated, and the event of its jumps.

Leases and timers are measured by elapsed time and outlast a jump. The event tells a reader that
times before and after it cannot be compared, because they are not those of one clock.
"""

from datetime import datetime
from typing import ClassVar
from uuid import UUID

from msgspec import Struct

from daybook.domain.command import Needs, UnitOfWork
from daybook.domain.event import Decider, Event, events_of

# There is one: a service has one database.
CLOCK_ID = UUID("5c1f3d1e-6b1a-5d0a-9a53-2f0c7b0e8f44")


class Clock(Struct, frozen=True, kw_only=True, gc=False):
    id: UUID
    version: int
    jumped_seconds: float
    """By the last jump: forward, or back when negative."""

    updated_at: datetime

    class Jumped(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "clock.jumped"
        seconds: float
        """Forward, or back when negative."""

        within_seconds: float
        """It happened at most so long before `at`, which is a time of the new clock."""


def evolve(clock: Clock | None, event: Event) -> Clock:
    assert isinstance(event, Clock.Jumped), f"a clock does not know {event}"
    return Clock(
        id=CLOCK_ID,
        version=1 if clock is None else clock.version + 1,
        jumped_seconds=event.seconds,
        updated_at=event.at,
    )


CLOCK: Decider[Clock] = Decider(
    name="clock",
    state=Clock,
    events=events_of(Clock),
    evolve=evolve,
    # Nothing is expected of it: it has no live table, and its events are read from the log.
    finished=lambda _clock: True,
)


class RecordJump(Struct, frozen=True, kw_only=True, gc=False):
    seconds: float
    within_seconds: float
    """How long before it was noticed the clock jumped at most."""

    noticed_at: datetime
    """By the new clock."""

    @property
    def needs(self) -> Needs:
        return Needs(lock=((CLOCK, CLOCK_ID),))

    def decide(self, work: UnitOfWork) -> Clock:
        # Others were recorded between the jump and this moment, some of them after it was noticed.
        since_seconds = max((work.now - self.noticed_at).total_seconds(), 0.0)
        within_seconds = self.within_seconds + since_seconds
        jumped = Clock.Jumped(at=work.now, seconds=self.seconds, within_seconds=within_seconds)
        return work.record(CLOCK, CLOCK_ID, jumped)
