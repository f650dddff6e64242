"""Exponential backoff with full jitter."""

import random

from msgspec import Struct

# Keeps the power within the range of a float.
EXPONENT_MAX = 64


class Backoff(Struct, frozen=True, kw_only=True):
    """After the nth failure, a random time up to base · factorⁿ⁻¹ and at most the cap. Full jitter
    spreads retries of calls that failed together."""

    base_seconds: float = 0.2
    factor: float = 2.0
    cap_seconds: float = 300.0

    def seconds(self, failures_count: int, chance: random.Random) -> float:
        assert failures_count >= 1
        exponent = min(failures_count - 1, EXPONENT_MAX)
        return chance.uniform(0, min(self.base_seconds * self.factor**exponent, self.cap_seconds))
