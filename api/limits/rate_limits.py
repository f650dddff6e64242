"""Rate limits for public requests: tickets per mobile number, requests per address.

The database counts over a sliding window, for all processes together. A request passes all limits
or is charged to none. While the database is unavailable no request passes. A request whose command
failed is refunded.
"""

from functools import partial
from hashlib import sha256
from hmac import compare_digest
from http import HTTPStatus
from math import ceil
from secrets import token_bytes
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace
from starlette.types import Scope

from daybook.api.http.problems import BadInputError
from daybook.api.http.request_reader import Headers
from daybook.api.limits.refunds import Charge, Refunds
from daybook.api.runtime.guest_encryption import GuestVault, RunRelaxed
from daybook.api.settings.networks import UNKNOWN, client_address, read_networks
from daybook.api.settings.settings import Settings
from daybook.api.telemetry import counters
from daybook.api.telemetry.structured_log import log_event
from daybook.eventlog.errors import NoGuestKeyError, UnavailableError
from daybook.eventlog.side_tables.rate_limit_windows import (
    Limit,
    LimitRequest,
    LimitState,
    try_acquire,
)

PER_PHONE = "per-phone"
PER_ADDRESS = "per-address"
HOUR_SECONDS = 3600
MINUTE_SECONDS = 60
KIOSK_KEY = b"daybook-kiosk-key"

ADVICE = {
    PER_PHONE: "This mobile number has reached its limit of tickets",
    PER_ADDRESS: "Too many requests came from this address",
}


class RateLimitDecision(Struct, frozen=True, kw_only=True):
    """The decision of all limits on one request; `headers` go into every response."""

    headers: dict[str, str]
    limit: str | None = None
    """The name of the limit that refused; None if the request is allowed."""

    retry_after_seconds: int | None = None
    charge: Charge | None = None
    """For a refund, if the request was allowed for a command."""

    @property
    def is_allowed(self) -> bool:
        return self.limit is None

    @property
    def raw_headers(self) -> list[tuple[bytes, bytes]]:
        return [(name.lower().encode(), value.encode()) for name, value in self.headers.items()]

    def check(self) -> None:
        """Raises the 429 if a limit refused."""
        if self.limit is None:
            return
        sentence = (
            f"{ADVICE[self.limit]}: retry in {_duration_text(self.retry_after_seconds or 1)}."
        )
        raise BadInputError(
            HTTPStatus.TOO_MANY_REQUESTS, "rate_limited", sentence, headers=self.headers
        )


class RateLimits:
    def __init__(self, settings: Settings, guests: GuestVault, run_relaxed: RunRelaxed) -> None:
        self._per_phone = Limit(PER_PHONE, settings.tickets_per_mobile_max, HOUR_SECONDS)
        self._per_address = Limit(PER_ADDRESS, settings.requests_per_address_max, MINUTE_SECONDS)
        self._trusted = read_networks(settings.trusted_proxies)
        self._proxy_header = settings.proxy_header
        # Digests have one length, so that comparing them takes the same time for every key.
        self._kiosks = [sha256(key.encode()).digest() for key in settings.kiosk_key_list]
        self._guests = guests
        self._run_relaxed = run_relaxed
        self._refunds = Refunds(run_relaxed)
        self._salt = token_bytes(16)

    def address_of(self, scope: Scope) -> str:
        """The client's address; proxies are believed only if they are trusted."""
        return client_address(scope, trusted=self._trusted, header=self._proxy_header)

    def pseudonym_of(self, scope: Scope) -> str | None:
        """The pseudonym under which the client's address is counted; None without an address.
        Without a guest key the pseudonym is salted per process."""
        address = self.address_of(scope)
        if address == UNKNOWN:
            return None
        try:
            return self._guests.address_pseudonym(address)
        except NoGuestKeyError:
            return sha256(self._salt + address.encode()).hexdigest()

    def is_kiosk(self, headers: Headers) -> bool:
        """Whether the request has a kiosk's key: all guests of a kiosk share its address."""
        given = sha256(headers.get(KIOSK_KEY, b"")).digest()
        # Compares all keys, so that the time does not depend on the match.
        matches = [compare_digest(given, known) for known in self._kiosks]
        return any(matches)

    async def charge(
        self,
        restaurant_id: UUID,
        *,
        pseudonym: str,
        address: str,
        route: str,
        is_exempt: bool,
        command_id: UUID,
        may_be_repeated: bool = False,
    ) -> RateLimitDecision:
        """Decides on both limits at once; `is_exempt` skips the limit per address.

        `pseudonym` comes from `GuestVault.pseudonym`. All attempts at one command count once;
        `may_be_repeated` says whether another attempt may be running. Raises UnavailableError while
        the database is unavailable: no request passes uncounted.
        """
        requested = [LimitRequest(self._per_phone, f"{restaurant_id} {pseudonym}")]
        if not is_exempt:
            key = f"{route} {self._guests.address_pseudonym(address)}"
            requested.append(LimitRequest(self._per_address, key))
        charge = Charge(asked=tuple(requested), command_id=command_id, noted_at=None)
        try:
            states = await self._run_relaxed(
                partial(try_acquire, asked=requested, command_id=command_id)
            )
        except UnavailableError:
            # The database may have counted the request all the same. It is not refunded if another
            # attempt at the command may be running.
            if not may_be_repeated:
                self._refunds.give_back_later(charge)
            raise
        decision = decision_of(requested, states)
        if decision.limit is None:
            return replace(decision, charge=replace(charge, noted_at=states[0].noted_at))
        self._log_hit(decision, restaurant_id, route)
        return decision

    async def give_back(self, charge: Charge, *, all_limits: bool) -> None:
        """Refunds a failed command. Without `all_limits` only the ticket limit is refunded: a guest
        whose command was refused has no ticket, but has sent a request."""
        given = [one for one in charge.asked if all_limits or one.limit is self._per_phone]
        await self._refunds.give_back(replace(charge, asked=tuple(given)))

    def _log_hit(self, decision: RateLimitDecision, restaurant_id: UUID, route: str) -> None:
        counters.LIMIT_HITS.labels(decision.limit).inc()
        log_event(
            "rate_limit.hit",
            restaurantId=restaurant_id,
            limit=decision.limit,
            route=route,
            retryAfterSeconds=decision.retry_after_seconds,
        )


def decision_of(requested: list[LimitRequest], states: list[LimitState]) -> RateLimitDecision:
    headers = {
        "RateLimit-Policy": ", ".join(
            f'"{one.limit.name}";q={one.limit.count_max};w={one.limit.seconds}' for one in requested
        ),
        "RateLimit": ", ".join(
            f'"{one.name}";r={one.remaining};t={ceil(one.seconds)}' for one in states
        ),
    }
    refusing = [one for one in states if not one.has_room]
    if not refusing:
        return RateLimitDecision(headers=headers)
    # Until the last refusing limit has room, a retry would be refused again.
    last = max(refusing, key=lambda one: one.seconds)
    seconds = max(1, ceil(last.seconds))
    headers["Retry-After"] = str(seconds)
    return RateLimitDecision(headers=headers, limit=last.name, retry_after_seconds=seconds)


def _duration_text(seconds: int) -> str:
    if seconds < 2 * MINUTE_SECONDS:
        return f"{seconds} seconds" if seconds > 1 else "a second"
    return f"{ceil(seconds / MINUTE_SECONDS)} minutes"
