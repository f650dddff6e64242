"""An adaptive concurrency limit (additive increase, multiplicative decrease).

While the average latency is within its target the limit rises by one per full round of requests;
above the target it falls by 10 %, once per round. Throughput stays at its peak under any load, and
the limit needs no tuning to the machine.
"""

import asyncio

INITIAL = 32.0
MINIMUM = 4.0
MAXIMUM = 1000.0
DECREASE = 0.9
# Below this utilisation a latency says nothing about the limit, so it does not rise.
UTILISATION_MIN = 0.5
# Weight of the latest latency in the moving average.
LAST_WEIGHT = 0.1


class AdaptiveConcurrencyLimit:
    def __init__(self, seconds_max: float) -> None:
        self._seconds_max = seconds_max
        self._count = 0
        self._limit = INITIAL
        self._average_seconds = 0.0
        self._decreased_at = 0.0

    @property
    def is_full(self) -> bool:
        return self._count >= self._limit

    def begin(self) -> float:
        """Returns the start time, which `end` needs."""
        self._count += 1
        return asyncio.get_running_loop().time()

    def end(self, began_at: float) -> None:
        ended_at = asyncio.get_running_loop().time()
        self._average_seconds += LAST_WEIGHT * (ended_at - began_at - self._average_seconds)
        if self._average_seconds > self._seconds_max:
            # Requests that began before the last decrease are late for the same reason.
            if began_at > self._decreased_at:
                self._limit = max(MINIMUM, self._limit * DECREASE)
                self._decreased_at = ended_at
        elif self._count >= UTILISATION_MIN * self._limit:
            self._limit = min(MAXIMUM, self._limit + 1 / self._limit)
        self._count -= 1
