"""The database clock, which dates every event, and the event of its jumps.

Leases and timers measure elapsed time and survive a jump. The event marks the point before and
after which timestamps cannot be compared.
"""

from datetime import datetime
from typing import ClassVar
from uuid import UUID

from msgspec import Struct

from daybook.domain.command import Lock, Needs, UnitOfWork
from daybook.domain.event import Decider, Event, State, events_of

# A service has one database, and so one clock.
CLOCK_ID = UUID("5c1f3d1e-6b1a-5d0a-9a53-2f0c7b0e8f44")


class Clock(State, frozen=True, kw_only=True, gc=False):
    jumped_seconds: float  # Last jump: positive is forward, negative is back
    updated_at: datetime

    class Jumped(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "clock.jumped"
        seconds: float  # Positive is forward, negative is back
        within_seconds: float
        """The jump happened at most this long before `at`, a time of the new clock."""


def evolve(clock: Clock | None, event: Event) -> Clock:
    assert isinstance(event, Clock.Jumped), f"unknown clock event {event}"
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
    # No live table: jumps are read from the log.
    finished=lambda _clock: True,
)


class RecordJump(Struct, frozen=True, kw_only=True, gc=False):
    seconds: float
    within_seconds: float  # Upper bound of the time between the jump and its detection
    noticed_at: datetime  # By the new clock

    @property
    def needs(self) -> Needs:
        return [Lock(CLOCK, [CLOCK_ID])]

    def decide(self, work: UnitOfWork) -> Clock:
        # Events may have been recorded between the jump, its detection and this moment.
        since_seconds = max((work.now - self.noticed_at).total_seconds(), 0.0)
        within_seconds = self.within_seconds + since_seconds
        jumped = Clock.Jumped(at=work.now, seconds=self.seconds, within_seconds=within_seconds)
        return work.record(CLOCK, CLOCK_ID, jumped)
