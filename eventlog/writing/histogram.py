"""A histogram that costs next to nothing to fill: one thread does, and nobody locks."""

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """How many were up to each bound and above the one before; the last, above all."""

        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value
