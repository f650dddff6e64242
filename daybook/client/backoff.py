"""How long to rest before something is tried again."""

import random

from msgspec import Struct

# A thing that fails often enough would take the power out of what a number can hold.
EXPONENT_MAX = 64


class Backoff(Struct, frozen=True, kw_only=True):
    """After the nth failure any time up to base · factorⁿ⁻¹, at most the cap. The whole range is
    used, so that those who failed together do not come back together."""

    base_seconds: float = 0.2
    factor: float = 2.0
    cap_seconds: float = 300.0

    def seconds(self, failures_count: int, chance: random.Random) -> float:
        assert failures_count >= 1
        exponent = min(failures_count - 1, EXPONENT_MAX)
        return chance.uniform(0, min(self.base_seconds * self.factor**exponent, self.cap_seconds))
