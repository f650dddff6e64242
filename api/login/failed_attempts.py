"""Limits invalid keys per client address: too many get 429 instead of 401.

The database counts for all processes together. Requests with a valid key are never limited, so
guessing locks out no other client at the same address.
"""

from functools import partial
from http import HTTPStatus
from math import ceil
from time import monotonic
from typing import Any

from starlette.types import Scope

from daybook.api.http.problems import Problem
from daybook.api.limits.rate_limits import RateLimits, decision_of
from daybook.api.runtime.guest_encryption import RunRelaxed
from daybook.api.settings.settings import Settings
from daybook.api.telemetry import counters
from daybook.api.telemetry.structured_log import log_event
from daybook.eventlog.errors import UnavailableError
from daybook.eventlog.side_tables.rate_limit_windows import Limit, LimitRequest, try_acquire

PER_ADDRESS = "failed-keys"
WINDOW_SECONDS = 60
# How many throttled addresses this process remembers, to reject them without the database.
THROTTLED_MAX = 10_000


class FailedKeys:
    def __init__(self, settings: Settings, limits: RateLimits, run_relaxed: RunRelaxed) -> None:
        # Exported as 0 from the start, so that the first increment is visible as a rate.
        counters.LIMIT_HITS.labels(PER_ADDRESS)
        self._limit = Limit(PER_ADDRESS, settings.failed_keys_per_address_max, WINDOW_SECONDS)
        self._limits = limits
        self._run_relaxed = run_relaxed
        self._throttled_until: dict[str, float] = {}

    async def check(self, scope: Scope, refused: Problem) -> Problem:
        """Returns `refused`, or a 429 for an address with too many invalid keys."""
        address = self._limits.pseudonym_of(scope)
        if address is None:
            return refused
        seconds = self._throttled_until.get(address, 0.0) - monotonic()
        if seconds > 0:
            return self._throttled_response(ceil(seconds), {})
        asked = [LimitRequest(self._limit, address)]
        try:
            states = await self._run_relaxed(partial(try_acquire, asked=asked))
        except UnavailableError:
            # The request is rejected in any case, so the failure to count it is harmless.
            return refused
        decision = decision_of(asked, states)
        if decision.retry_after_seconds is None:
            return refused
        seconds = decision.retry_after_seconds
        self._remember(address, seconds)
        counters.LIMIT_HITS.labels(PER_ADDRESS).inc()
        log_event("rate_limit.hit", limit=PER_ADDRESS, retryAfterSeconds=seconds)
        return self._throttled_response(seconds, decision.headers)

    def _remember(self, address: str, seconds: float) -> None:
        if len(self._throttled_until) >= THROTTLED_MAX:
            self._throttled_until.clear()
        self._throttled_until[address] = monotonic() + seconds

    def _throttled_response(self, seconds: int, headers: dict[str, Any]) -> Problem:
        return Problem(
            HTTPStatus.TOO_MANY_REQUESTS,
            "rate_limited",
            "Too many invalid API keys came from this address: check the key, and retry in "
            f"{seconds} seconds.",
            headers={**headers, "Retry-After": str(seconds)},
        )
