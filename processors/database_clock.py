"""The database's clock, watched by the monotonic clock of this process.

Leases and due times are written by the database's clock, which may jump: an operator sets it, NTP
steps it, a failover brings another machine's. A monotonic clock does not jump. This process reads
both in every look, so a jump shows as a difference between them, before anything is judged by it.
"""

import logging
from collections import deque
from datetime import datetime
from time import monotonic

from msgspec import Struct

_log = logging.getLogger("daybook")

# Clocks are slewed by half a millisecond a second at most. A smaller step is not worth a line.
JUMP_SECONDS_MIN = 0.2
# More than happen between two looks of any processor.
JUMPS_MAX = 100


class Look(Struct, frozen=True, gc=False):
    """A reading of the database's clock, taken between two readings of the monotonic clock."""

    now: datetime
    began: float
    ended: float

    @property
    def unsure_seconds(self) -> float:
        """A jump up to this long may be hidden by the time that the answer took."""
        seconds = self.ended - self.began
        return seconds if seconds > JUMP_SECONDS_MIN else 0.0


class Jump(Struct, frozen=True, gc=False):
    seconds: float
    """How far the clock went forward, or back when negative."""

    within_seconds: float
    """How long before it was noticed it happened at most."""

    noticed_at: datetime
    """By the new clock."""


class DatabaseClock:
    """Shared by all processors of a process: the first that reads it notices a jump for all."""

    def __init__(self) -> None:
        self.jumps = deque[Jump](maxlen=JUMPS_MAX)
        """The last jumps that this process has noticed."""

        self.jumps_count = 0

        self._unrecorded: list[tuple[Jump, float]] = []
        """Jumps that are not in the log yet, and when they were noticed."""

        self._last: Look | None = None

    def look(self, now: datetime, *, began: float, ended: float | None = None) -> Look:
        """Takes a reading of the database's clock, and notices a jump since the last reading."""
        look = Look(now, began, monotonic() if ended is None else ended)
        last, self._last = self._last, look
        if last is not None and (jump := _jump(last, look)) is not None:
            self.jumps.append(jump)
            self.jumps_count += 1
            self._unrecorded.append((jump, look.ended))
            _log.warning(
                "the database's clock jumped by %+.1f s: leases and timers are measured by elapsed "
                "time and keep their length; delayed jobs and schedules follow the new time. Check "
                "the time synchronisation of the database's machine",
                jump.seconds,
            )
        return look

    @property
    def unrecorded(self) -> list[Jump]:
        """Jumps that are not in the log yet, the oldest first."""
        return [jump for jump, _ in self._unrecorded]

    def mark_recorded(self, jump: Jump) -> None:
        self._unrecorded = [one for one in self._unrecorded if one[0] is not jump]

    def forget(self, *, before: float) -> None:
        """Drops jumps noticed before that moment: another process has recorded them."""
        self._unrecorded = [one for one in self._unrecorded if one[1] >= before]


def _jump(last: Look, look: Look) -> Jump | None:
    """Returns a jump only if the duration of the two readings cannot explain the difference."""
    passed = (look.now - last.now).total_seconds()
    least, most = look.began - last.ended, look.ended - last.began
    if least - JUMP_SECONDS_MIN <= passed <= most + JUMP_SECONDS_MIN:
        return None
    seconds = passed - (least + most) / 2
    return Jump(seconds=seconds, within_seconds=max(most, 0.0), noticed_at=look.now)
