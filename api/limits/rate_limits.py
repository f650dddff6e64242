"""Rate limits for public requests: tickets per mobile number, requests per address.

The database counts them, over a sliding window, for all processes together. A request is let in by
all limits or uses up none of them. While the database is away no request is let in. A request
whose command came to nothing gives its admissions back.
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
from daybook.api.runtime.guest_encryption import GuestVault, WriteUnlogged
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
    PER_PHONE: "This mobile number has taken as many tickets as it may",
    PER_ADDRESS: "Too many requests came from this address",
}


class RateLimitDecision(Struct, frozen=True, kw_only=True):
    """What was decided, and the headers that say so: for the answer, whichever it is."""

    headers: dict[str, str]
    limit: str | None = None
    """The name of the limit that refused; None if all of them let it in."""

    retry_after_seconds: int | None = None
    charge: Charge | None = None
    """The admissions that were used up, if the request was let in for a command."""

    @property
    def is_allowed(self) -> bool:
        return self.limit is None

    @property
    def raw_headers(self) -> list[tuple[bytes, bytes]]:
        return [(name.lower().encode(), value.encode()) for name, value in self.headers.items()]

    def check(self) -> None:
        """Raises the answer for who was refused."""
        if self.limit is None:
            return
        sentence = f"{ADVICE[self.limit]}: try again in {_span(self.retry_after_seconds or 1)}."
        raise BadInputError(
            HTTPStatus.TOO_MANY_REQUESTS, "rate_limited", sentence, headers=self.headers
        )


class RateLimits:
    def __init__(self, settings: Settings, guests: GuestVault, note: WriteUnlogged) -> None:
        self._per_phone = Limit(PER_PHONE, settings.tickets_per_mobile_max, HOUR_SECONDS)
        self._per_address = Limit(PER_ADDRESS, settings.requests_per_address_max, MINUTE_SECONDS)
        self._trusted = read_networks(settings.trusted_proxies)
        self._proxy_header = settings.proxy_header
        # Digests are of one length, so that comparing them takes as long for every key.
        self._kiosks = [sha256(key.encode()).digest() for key in settings.kiosk_key_list]
        self._guests = guests
        self._note = note
        self._given_back = Refunds(note)
        self._salt = token_bytes(16)

    def address_of(self, scope: Scope) -> str:
        """The client's, as far as it can be believed."""
        return client_address(scope, trusted=self._trusted, header=self._proxy_header)

    def pseudonym_of(self, scope: Scope) -> str | None:
        """What stands for the client's address where it is counted; None for a peer without one.
        Where no key makes pseudonyms for all processes, each has its own."""
        address = self.address_of(scope)
        if address == UNKNOWN:
            return None
        try:
            return self._guests.address_pseudonym(address)
        except NoGuestKeyError:
            return sha256(self._salt + address.encode()).hexdigest()

    def is_kiosk(self, headers: Headers) -> bool:
        """Whether the request shows a kiosk's key: all guests of a kiosk share its address."""
        given = sha256(headers.get(KIOSK_KEY, b"")).digest()
        # All of them are compared, whichever it is.
        matches = [compare_digest(given, known) for known in self._kiosks]
        return any(matches)

    async def admit(
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
        """Decides on both limits at once. `is_exempt` exempts from the one on addresses alone.

        `pseudonym` is that of `GuestBook.pseudonym`. Attempts at one command count as one;
        `may_be_repeated` says whether others than this one can be under way. Raises
        UnavailableError while the database is away: no request is let in uncounted.
        """
        asked = [LimitRequest(self._per_phone, f"{restaurant_id} {pseudonym}")]
        if not is_exempt:
            key = f"{route} {self._guests.address_pseudonym(address)}"
            asked.append(LimitRequest(self._per_address, key))
        charge = Charge(asked=tuple(asked), command_id=command_id, noted_at=None)
        try:
            standings = await self._note(partial(try_acquire, asked=asked, command_id=command_id))
        except UnavailableError:
            # The database may have noted the admission all the same. It is kept if another attempt
            # at the command can be under way.
            if not may_be_repeated:
                self._given_back.give_back_later(charge)
            raise
        admission = admission_of(asked, standings)
        if admission.limit is None:
            return replace(admission, charge=replace(charge, noted_at=standings[0].noted_at))
        self._tell(admission, restaurant_id, route)
        return admission

    async def give_back(self, charge: Charge, *, all_limits: bool) -> None:
        """Gives back the admissions of a command that came to nothing. Without `all_limits` only
        the one for tickets: a guest whom a rule refuses has no ticket, but has sent a request."""
        given = [one for one in charge.asked if all_limits or one.limit is self._per_phone]
        await self._given_back.give_back(replace(charge, asked=tuple(given)))

    def _tell(self, admission: RateLimitDecision, restaurant_id: UUID, route: str) -> None:
        counters.LIMIT_HITS.labels(admission.limit).inc()
        log_event(
            "rate_limit.hit",
            restaurantId=restaurant_id,
            limit=admission.limit,
            route=route,
            retryAfterSeconds=admission.retry_after_seconds,
        )


def admission_of(asked: list[LimitRequest], standings: list[LimitState]) -> RateLimitDecision:
    headers = {
        "RateLimit-Policy": ", ".join(
            f'"{one.limit.name}";q={one.limit.count_max};w={one.limit.seconds}' for one in asked
        ),
        "RateLimit": ", ".join(
            f'"{one.name}";r={one.remaining};t={ceil(one.seconds)}' for one in standings
        ),
    }
    refusing = [one for one in standings if not one.has_room]
    if not refusing:
        return RateLimitDecision(headers=headers)
    # Before the last of them has room it would be refused again.
    last = max(refusing, key=lambda one: one.seconds)
    seconds = max(1, ceil(last.seconds))
    headers["Retry-After"] = str(seconds)
    return RateLimitDecision(headers=headers, limit=last.name, retry_after_seconds=seconds)


def _span(seconds: int) -> str:
    if seconds < 2 * MINUTE_SECONDS:
        return f"{seconds} seconds" if seconds > 1 else "a second"
    return f"{ceil(seconds / MINUTE_SECONDS)} minutes"
