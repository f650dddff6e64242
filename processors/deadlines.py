"""Deadlines that survive a jump of the database's clock.

While the clock is steady, it alone decides and no state is kept. A deadline written before a jump
is measured by monotonic time from the detection of the jump: it never ends early, and at most once
its own length late.
"""

from collections.abc import Hashable, Mapping, Sequence
from datetime import datetime
from itertools import accumulate
from time import monotonic
from typing import Any, LiteralString

from msgspec import Struct

from daybook.processors.database_clock import JUMP_SECONDS_MIN, DatabaseClock, Look
from daybook.processors.processor import BATCH_MAX, POLL_SECONDS, Session


class Deadline(Struct, frozen=True, gc=False):
    """A row of a processor's query, after the column `now`. If the query matches nothing, it
    returns one row with `now` alone."""

    owner_id: Hashable
    until: datetime
    """As stored. A heartbeat changes it, which makes it another deadline."""

    seconds: float
    """Remaining time by the database's clock."""

    length_seconds: float
    extra_columns: tuple[Any, ...] = ()
    """Further columns of the query."""

    @property
    def key(self) -> Hashable:
        return self.owner_id, self.until

    @property
    def was_set_by_fast_clock(self) -> bool:
        """Whether more time is left than its whole length: it was written by a clock ahead."""
        return self.seconds > self.length_seconds + JUMP_SECONDS_MIN


class DueDeadlines(Struct, frozen=True):
    deadlines: list[Deadline]
    """Expired deadlines, oldest first."""

    next_seconds: float
    """Time until the next known deadline."""


class Deadlines:
    """The deadlines of one processor."""

    def __init__(self) -> None:
        # The number of clock jumps that are already reflected in `_ends`.
        self._jumps_count = 0
        # Monotonic end times of deadlines that the database's clock cannot judge.
        self._ends: dict[Hashable, float] = {}

    async def find_due(
        self,
        session: Session,
        query: LiteralString,
        *,
        grace_seconds: float = 0.0,
        **parameters: Any,
    ) -> DueDeadlines:
        """Returns deadlines that expired at least `grace_seconds` ago. A standby process adds its
        `standby_delay_seconds`."""
        grace_seconds += session.standby_delay_seconds
        given = {**parameters, "grace": grace_seconds, "jump_seconds_min": JUMP_SECONDS_MIN}
        sees_all = self._must_see_all(session.clock)
        look, found = await _read(session, query, given, sees_all=sees_all)
        is_suspicious = any(one.was_set_by_fast_clock for one in found)
        if not sees_all and (is_suspicious or self._has_jumped(session.clock)):
            sees_all = True
            look, found = await _read(session, query, given, sees_all=True)
        left = self.left(session.clock, look, found, are_all=sees_all)
        judged = sorted(zip(left, range(len(found)), strict=True))
        over = [found[index] for seconds, index in judged if seconds + grace_seconds <= 0]
        coming = [seconds + grace_seconds for seconds, _ in judged[len(over) :]]
        if len(over) >= BATCH_MAX:
            return DueDeadlines(over[:BATCH_MAX], 0)
        return DueDeadlines(over, min([POLL_SECONDS, *coming]))

    def left(
        self,
        clock: DatabaseClock,
        look: Look,
        deadlines: Sequence[Deadline],
        *,
        are_all: bool,
    ) -> list[float]:
        """Returns the remaining seconds of each deadline, by monotonic time after a jump."""
        shifts = self._shifts(clock)
        left = [self._left(one, look, shifts) for one in deadlines]
        if are_all:
            self._jumps_count = clock.jumps_count
            open_keys = {one.key for one in deadlines}
            self._ends = {key: end for key, end in self._ends.items() if key in open_keys}
        return left

    def _left(self, one: Deadline, look: Look, shifts: Sequence[float]) -> float:
        end = self._ends.get(one.key)
        if end is None and not shifts and not one.was_set_by_fast_clock:
            return one.seconds + look.unsure_seconds
        if end is None:
            # The deadline was written before all of the jumps or after some of them. The largest
            # shift never ends it early, and its own length bounds the delay.
            longest = one.seconds + max([0.0, *shifts])
            end = self._ends[one.key] = look.ended + min(one.length_seconds, longest)
        return end - look.ended

    def _must_see_all(self, clock: DatabaseClock) -> bool:
        return bool(self._ends) or self._has_jumped(clock)

    def _has_jumped(self, clock: DatabaseClock) -> bool:
        return clock.jumps_count > self._jumps_count

    def _shifts(self, clock: DatabaseClock) -> list[float]:
        """Total shift by all new jumps, by all but the first, and so on: a deadline was written
        before one of these jumps, or after the last."""
        new = (
            [*clock.jumps][self._jumps_count - clock.jumps_count :]
            if self._has_jumped(clock)
            else []
        )
        return [*accumulate(jump.seconds for jump in reversed(new))]


async def _read(
    session: Session, query: LiteralString, given: Mapping[str, Any], *, sees_all: bool
) -> tuple[Look, list[Deadline]]:
    """Reads the clock and the deadlines in one statement, so that both belong together."""
    parameters = {**given, "all": sees_all, "limit": None if sees_all else BATCH_MAX + 1}
    began = monotonic()
    rows = await (await session.connection.execute(query, parameters)).fetchall()
    look = session.clock.look(rows[0][0], began=began)
    found = [
        Deadline(row[1], row[2], row[3], row[4], row[5:]) for row in rows if row[1] is not None
    ]
    return look, found
