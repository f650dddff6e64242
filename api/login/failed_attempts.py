"""Keys that are no good, counted by where they come from: whoever shows too many is told to wait.

Counted in the database, for all processes together. Nobody who shows a good key is concerned, so
that one who guesses locks out nobody else at the same address.
"""

from functools import partial
from http import HTTPStatus
from math import ceil
from time import monotonic
from typing import Any

from starlette.types import Scope

from daybook.api.http.problems import Problem
from daybook.api.limits.rate_limits import RateLimits, admission_of
from daybook.api.runtime.guest_encryption import WriteUnlogged
from daybook.api.settings.settings import Settings
from daybook.api.telemetry import counters
from daybook.api.telemetry.structured_log import log_event
from daybook.eventlog.errors import UnavailableError
from daybook.eventlog.side_tables.rate_limit_windows import Limit, LimitRequest, try_acquire

PER_ADDRESS = "failed-keys"
WINDOW_SECONDS = 60
# Who was refused is refused by this process itself until then; more than these are asked about
# again.
REMEMBERED_MAX = 10_000


class FailedKeys:
    def __init__(self, settings: Settings, limits: RateLimits, note: WriteUnlogged) -> None:
        # Counted from zero on, so that the first is seen to be one more.
        counters.LIMIT_HITS.labels(PER_ADDRESS)
        self._limit = Limit(PER_ADDRESS, settings.failed_keys_per_address_max, WINDOW_SECONDS)
        self._limits = limits
        self._note = note
        self._until: dict[str, float] = {}

    async def judge(self, scope: Scope, refused: Problem) -> Problem:
        """The same refusal; or, for who has shown too many, that it is to wait."""
        address = self._limits.pseudonym_of(scope)
        if address is None:
            return refused
        seconds = self._until.get(address, 0.0) - monotonic()
        if seconds > 0:
            return self._told(ceil(seconds), {})
        try:
            standings = await self._note(
                partial(try_acquire, asked=[LimitRequest(self._limit, address)])
            )
        except UnavailableError:
            # Nobody is let in by this, whatever cannot be counted.
            return refused
        admission = admission_of([LimitRequest(self._limit, address)], standings)
        if admission.retry_after_seconds is None:
            return refused
        self._remember(address, admission.retry_after_seconds)
        counters.LIMIT_HITS.labels(PER_ADDRESS).inc()
        log_event("rate_limit.hit", limit=PER_ADDRESS, retryAfterSeconds=WINDOW_SECONDS)
        return self._told(admission.retry_after_seconds, admission.headers)

    def _remember(self, address: str, seconds: float) -> None:
        if len(self._until) >= REMEMBERED_MAX:
            self._until.clear()
        self._until[address] = monotonic() + seconds

    def _told(self, seconds: int, headers: dict[str, Any]) -> Problem:
        return Problem(
            HTTPStatus.TOO_MANY_REQUESTS,
            "rate_limited",
            "Too many keys that are no good came from this address: look at the key, and try "
            f"again in {seconds} seconds.",
            headers={**headers, "Retry-After": str(seconds)},
        )
