"""Exponential backoff with full jitter."""

from msgspec import Struct


class Backoff(Struct, frozen=True, gc=False):
    """Up to base · 2ⁿ⁻¹ seconds after the nth failure, capped. Full jitter keeps jobs that failed
    together from retrying together."""

    base_seconds: float = 0.2
    cap_seconds: float = 300.0

    def seconds(self, failures_count: int, jitter: float) -> float:
        # The cap on the exponent keeps 2ⁿ within the range of a float.
        doublings = min(failures_count - 1, 32)
        return jitter * min(self.base_seconds * 2.0**doublings, self.cap_seconds)
