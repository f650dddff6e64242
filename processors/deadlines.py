"""Deadlines that survive a jump of the clock by which they were written.

As long as the database's clock is steady, a deadline is judged by it, and nothing needs to be
remembered. A deadline from before a jump is measured by elapsed time instead, from the moment at
which the jump was noticed: never too short, and at most once its whole length too long.
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
    """A row as the queries of processors give it. The first columns are these, and a query without
    a finding gives the time alone."""

    of: Hashable
    until: datetime
    """As it is written: a heartbeat makes it another deadline."""

    seconds: float
    """How long it has still to last, by the database's clock."""

    length_seconds: float
    """How long it lasts in all."""

    rest: tuple[Any, ...] = ()
    """The other columns."""

    @property
    def key(self) -> Hashable:
        return self.of, self.until

    @property
    def is_odd(self) -> bool:
        """It was written when the clock was ahead: there is more left than there ever was."""
        return self.seconds > self.length_seconds + JUMP_SECONDS_MIN


class DueDeadline(Struct, frozen=True):
    deadlines: list[Deadline]
    """Deadlines that are over, the oldest first."""

    next_seconds: float
    """After how long the next one follows, as far as is known."""


class Deadlines:
    """Of one processor."""

    def __init__(self) -> None:
        self._jumps_count = 0
        """How many jumps of the clock it has taken into account."""

        self._ends: dict[Hashable, float] = {}
        """When deadlines that the clock cannot tell are over, by the monotonic clock."""

    async def find_due(
        self,
        session: Session,
        query: LiteralString,
        *,
        grace_seconds: float = 0.0,
        **parameters: Any,
    ) -> DueDeadline:
        """Finds deadlines that were over `grace_seconds` ago; a standby process waits for its
        `patience_seconds` more."""
        grace_seconds += session.standby_delay_seconds
        given = {**parameters, "grace": grace_seconds, "odd": JUMP_SECONDS_MIN}
        sees_all = self._must_see_all(session.clock)
        look, found = await _read(session, query, given, sees_all=sees_all)
        if not sees_all and (self._has_jumped(session.clock) or any(one.is_odd for one in found)):
            sees_all = True
            look, found = await _read(session, query, given, sees_all=True)
        left = self.left(session.clock, look, found, are_all=sees_all)
        judged = sorted(zip(left, range(len(found)), strict=True))
        over = [found[place] for seconds, place in judged if seconds + grace_seconds <= 0]
        coming = [seconds + grace_seconds for seconds, _ in judged[len(over) :]]
        if len(over) >= BATCH_MAX:
            return DueDeadline(over[:BATCH_MAX], 0)
        return DueDeadline(over, min([POLL_SECONDS, *coming]))

    def left(
        self,
        clock: DatabaseClock,
        look: Look,
        deadlines: Sequence[Deadline],
        *,
        are_all: bool,
    ) -> list[float]:
        """How many seconds each of them still has."""
        shifts = self._shifts(clock)
        left = [self._left(one, look, shifts) for one in deadlines]
        if are_all:
            self._jumps_count = clock.jumps_count
            held = {one.key for one in deadlines}
            self._ends = {key: end for key, end in self._ends.items() if key in held}
        return left

    def _left(self, one: Deadline, look: Look, shifts: Sequence[float]) -> float:
        end = self._ends.get(one.key)
        if end is None and not shifts and not one.is_odd:
            return one.seconds + look.unsure_seconds
        if end is None:
            # It was written before the jumps, or after some of them. The longest of these is never
            # too short, and nothing lasts longer than its length.
            longest = one.seconds + max([0.0, *shifts])
            end = self._ends[one.key] = look.ended + min(one.length_seconds, longest)
        return end - look.ended

    def _must_see_all(self, clock: DatabaseClock) -> bool:
        return bool(self._ends) or self._has_jumped(clock)

    def _has_jumped(self, clock: DatabaseClock) -> bool:
        return clock.jumps_count > self._jumps_count

    def _shifts(self, clock: DatabaseClock) -> list[float]:
        """How far the clock went by all jumps that are new here, by all but the first, and so on:
        a deadline was written before one of them, or after the last."""
        new = (
            [*clock.jumps][self._jumps_count - clock.jumps_count :]
            if self._has_jumped(clock)
            else []
        )
        return [*accumulate(jump.seconds for jump in reversed(new))]


async def _read(
    session: Session, query: LiteralString, given: Mapping[str, Any], *, sees_all: bool
) -> tuple[Look, list[Deadline]]:
    """One statement reads the clock and the deadlines that are judged by it."""
    parameters = {**given, "all": sees_all, "limit": None if sees_all else BATCH_MAX + 1}
    began = monotonic()
    rows = await (await session.connection.execute(query, parameters)).fetchall()
    look = session.clock.look(rows[0][0], began=began)
    found = [
        Deadline(row[1], row[2], row[3], row[4], row[5:]) for row in rows if row[1] is not None
    ]
    return look, found
