"""Detects jumps of the database's clock by comparing it with this process's monotonic clock.

Leases and due times are written by the database's clock. An operator, an NTP step or a failover to
another machine can make it jump. Each query reads both clocks, so a jump shows before any deadline
is judged by the new time.
"""

import logging
from collections import deque
from datetime import datetime
from time import monotonic

from msgspec import Struct

_log = logging.getLogger("daybook")

# NTP slews a clock by at most 0.5 ms a second, far below this.
JUMP_SECONDS_MIN = 0.2
# More jumps than happen between two runs of any processor.
JUMPS_MAX = 100


class Look(Struct, frozen=True, gc=False):
    """A reading of the database's clock, taken between two readings of the monotonic clock."""

    now: datetime
    began: float
    ended: float

    @property
    def unsure_seconds(self) -> float:
        """The duration of a slow query, which may hide a jump of up to this length."""
        seconds = self.ended - self.began
        return seconds if seconds > JUMP_SECONDS_MIN else 0.0


class Jump(Struct, frozen=True, gc=False):
    seconds: float
    """Forward if positive, back if negative."""

    within_seconds: float
    """The jump happened at most this long before `noticed_at`."""

    noticed_at: datetime
    """By the new clock."""


class DatabaseClock:
    """Shared by all processors of a process: the first reading after a jump reports it to all."""

    def __init__(self) -> None:
        self.jumps = deque[Jump](maxlen=JUMPS_MAX)
        self.jumps_count = 0
        # Jumps that are not in the log yet, each with the monotonic time of its detection.
        self._unrecorded: list[tuple[Jump, float]] = []
        self._last: Look | None = None

    def look(self, now: datetime, *, began: float, ended: float | None = None) -> Look:
        """Stores a reading of the database's clock; logs a jump since the previous reading."""
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
    elapsed = (look.now - last.now).total_seconds()
    shortest, longest = look.began - last.ended, look.ended - last.began
    if shortest - JUMP_SECONDS_MIN <= elapsed <= longest + JUMP_SECONDS_MIN:
        return None
    seconds = elapsed - (shortest + longest) / 2
    return Jump(seconds=seconds, within_seconds=max(longest, 0.0), noticed_at=look.now)
