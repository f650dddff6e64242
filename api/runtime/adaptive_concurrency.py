"""How many requests of one kind may be under way at once: as many as are answered in good time.

The bound finds itself. While answers are in time on average it rises by one in the time that it
takes to answer them all; when they are late it falls by a tenth, once for all that were under way
together. So what is done stays at its peak however much is asked for, and nobody has to know the
machine.
"""

import asyncio

INITIAL = 32.0
MINIMUM = 4.0
MAXIMUM = 1000.0
DECREASE = 0.9
# Who uses less than this part of the bound says nothing about it.
UTILISATION_MIN = 0.5
LAST_WEIGHT = 0.1
"""How much the last answer counts in the average."""


class AdaptiveConcurrencyLimit:
    def __init__(self, seconds_max: float) -> None:
        """`seconds_max` is what good time is."""
        self._seconds_max = seconds_max
        self._count = 0
        self._bound = INITIAL
        self._average_seconds = 0.0
        self._fell_at = 0.0

    @property
    def is_full(self) -> bool:
        return self._count >= self._bound

    def begin(self) -> float:
        """Returns what `end` wants to know."""
        self._count += 1
        return asyncio.get_running_loop().time()

    def end(self, began_at: float) -> None:
        ended_at = asyncio.get_running_loop().time()
        self._average_seconds += LAST_WEIGHT * (ended_at - began_at - self._average_seconds)
        if self._average_seconds > self._seconds_max:
            # Whoever was under way already when it fell is late for the same reason.
            if began_at > self._fell_at:
                self._bound = max(MINIMUM, self._bound * DECREASE)
                self._fell_at = ended_at
        elif self._count >= UTILISATION_MIN * self._bound:
            self._bound = min(MAXIMUM, self._bound + 1 / self._bound)
        self._count -= 1
