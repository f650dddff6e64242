"""Guests join a waitlist: public, rate-limited and idempotent.

The order matters: a known idempotency key is answered before the limits are charged, so retries are
free; personal data is encrypted before the command exists, so none reaches the log; a failed
command refunds its charges.
"""

import asyncio
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any, ClassVar
from uuid import UUID
from weakref import WeakValueDictionary

import orjson
from msgspec import Meta
from starlette.routing import Route
from uuid_utils.compat import uuid7

from daybook.api.endpoints.command import (
    Body,
    Reply,
    RequestContext,
    WriteEndpoint,
    idempotency_key,
    origin_of,
    receipt_headers,
    retry_after,
    stored_problem,
)
from daybook.api.http.problems import KNOWN_ERRORS, problem_of
from daybook.api.http.request_reader import KeyText, read_idempotency_key, unprocessable
from daybook.api.keys.access import PUBLIC
from daybook.api.limits.rate_limits import RateLimitDecision, RateLimits
from daybook.api.runtime.guest_encryption import GuestDetails, guest_details
from daybook.api.telemetry.structured_log import log_event
from daybook.api.tickets.queries import TicketAnswer
from daybook.api.tickets.responses import ticket_result_json
from daybook.api.tickets.restaurants import PLAIN_PATTERN, slug_of
from daybook.domain.errors import Refusal
from daybook.domain.tickets.commands import JoinLine, TicketResult
from daybook.domain.tickets.restaurant import restaurant_id
from daybook.domain.tickets.ticket import Guest
from daybook.eventlog.errors import IdempotencyKeyReusedError, OutcomeUnknownError
from daybook.eventlog.origin import Origin, Receipt, StoredResponse
from daybook.eventlog.writing.idempotency import IdempotencyKey, Scope, find_key

PARTY_MAX = 50
# A limit may refuse a duplicate whose original runs in another process: wait this long for its
# response first.
DUPLICATE_WAIT_SECONDS = 0.25

NameText = Annotated[str, Meta(min_length=1, max_length=200)]
MobileText = Annotated[str, Meta(min_length=1, max_length=40)]
KioskKey = Annotated[
    str,
    Meta(max_length=200, description="Exempts a kiosk's guests from the limit by address."),
]
SeatingText = Annotated[str, Meta(min_length=1, max_length=40, pattern=PLAIN_PATTERN)]


class NewTicket(Body, frozen=True):
    name: NameText
    mobile_number: MobileText
    party_size: Annotated[int, Meta(ge=1, le=PARTY_MAX)]
    seating_type: SeatingText | None = None
    idempotency_key: KeyText | None = None


class JoinFingerprint(Body, frozen=True):
    """The fingerprinted part of a request: nothing that identifies a guest."""

    guest: str
    party_size: int
    seating_type: str | None


def joined_json(result: TicketResult) -> TicketAnswer:
    return {"ticket": ticket_result_json(result)}


class JoinEndpoint(WriteEndpoint[NewTicket]):
    summary = "Join a restaurant's waitlist."
    answers = staticmethod(joined_json)
    problems = (HTTPStatus.TOO_MANY_REQUESTS,)
    headers: ClassVar[Mapping[str, Any]] = {**WriteEndpoint.headers, "Daybook-Kiosk-Key": KioskKey}

    def __init__(self) -> None:
        super().__init__(
            "POST",
            "/api/restaurants/{slug}/tickets",
            takes=NewTicket,
            scope=PUBLIC,
            status=HTTPStatus.CREATED,
        )
        self._locks: WeakValueDictionary[Scope, asyncio.Lock] = WeakValueDictionary()
        """One lock per idempotency key: of concurrent duplicates only the first is charged."""

    async def answer(self, context: RequestContext, body: bytes) -> Reply:
        new = self.read(context, body)
        waitlist_id = restaurant_id(slug_of(context))
        guest = guest_details(
            new.name, new.mobile_number, calling_code=context.settings.calling_code
        )
        try:
            key = self._key(context, new, guest, waitlist_id)
            if key is None:
                return await self._join(context, new, guest, waitlist_id, None)
            async with self._locks.setdefault(key.scope, asyncio.Lock()):
                return await self._join(context, new, guest, waitlist_id, key)
        except KNOWN_ERRORS as error:
            problem = problem_of(error)
            return stored_problem(problem), retry_after(problem)

    async def _join(
        self,
        context: RequestContext,
        new: NewTicket,
        guest: GuestDetails,
        waitlist_id: UUID,
        key: IdempotencyKey | None,
    ) -> Reply:
        began = time.monotonic()
        if known := await _find_reply(context, key):
            return _replayed(known, waitlist_id)
        origin = origin_of(context, key, context.correlation)
        admitted = await self._admit(context, guest, waitlist_id, key, origin.command_id)
        if isinstance(admitted, Receipt):
            return _replayed(admitted, waitlist_id)
        try:
            receipt = await self._submit(context, new, guest, waitlist_id, origin=origin, key=key)
        except OutcomeUnknownError:
            # The command may have been committed, so its charge stays.
            raise
        except KNOWN_ERRORS as error:
            await _refund(context, admitted, error)
            raise
        if receipt.replayed_response is not None:
            answer, headers = _replayed(receipt, waitlist_id)
            return answer, headers + admitted.raw_headers
        _log_joined(receipt.result, time.monotonic() - began)
        return self._render(receipt.result), receipt_headers(receipt) + admitted.raw_headers

    async def _submit(
        self,
        context: RequestContext,
        new: NewTicket,
        guest: GuestDetails,
        waitlist_id: UUID,
        *,
        origin: Origin,
        key: IdempotencyKey | None,
    ) -> Receipt:
        sealed = await context.service.guests.seal(waitlist_id, guest)
        join = JoinLine(
            slug=slug_of(context),
            ticket_id=uuid7(),
            guest=Guest(
                subject_id=sealed.subject_id, sealed=sealed.sealed, pseudonym=sealed.pseudonym
            ),
            party_size=new.party_size,
            seating_type=new.seating_type,
            hourly_max=context.settings.tickets_per_mobile_max,
        )
        return await context.submit(join, origin, key)

    async def _admit(
        self,
        context: RequestContext,
        guest: GuestDetails,
        waitlist_id: UUID,
        key: IdempotencyKey | None,
        command_id: UUID,
    ) -> RateLimitDecision | Receipt:
        """Charges the limits. If one refuses, returns the receipt of a duplicate that succeeded."""
        limits: RateLimits = context.scope["app"].rate_limits
        admission = await limits.admit(
            waitlist_id,
            pseudonym=context.service.guests.pseudonym(waitlist_id, guest.mobile_number),
            address=limits.address_of(context.scope),
            route=self.operation,
            is_exempt=limits.is_kiosk(context.headers),
            command_id=command_id,
            may_be_repeated=key is not None,
        )
        if not admission.is_allowed and key is not None:
            await asyncio.sleep(DUPLICATE_WAIT_SECONDS)
            if known := await _find_reply(context, key):
                return known
        admission.check()
        return admission

    def _key(
        self, context: RequestContext, new: NewTicket, guest: GuestDetails, waitlist_id: UUID
    ) -> IdempotencyKey | None:
        """The key is scoped to the restaurant."""
        header = read_idempotency_key(context.scope)
        if header and new.idempotency_key and header != new.idempotency_key:
            raise unprocessable("schema", "The idempotency keys in header and body differ.")
        text = header or new.idempotency_key
        if text is None:
            return None
        pseudonym = context.service.guests.pseudonym(
            waitlist_id, f"{guest.mobile_number}\0{guest.name}"
        )
        fingerprint = JoinFingerprint(
            guest=pseudonym, party_size=new.party_size, seating_type=new.seating_type
        )
        # The space makes a key that no client can send.
        return idempotency_key(
            context, fingerprint, self.operation, f"{text} {waitlist_id}", self._render
        )

    def _render(self, outcome: TicketResult | Refusal) -> StoredResponse:
        if isinstance(outcome, Refusal):
            return stored_problem(problem_of(outcome))
        return StoredResponse(self.status, orjson.dumps(joined_json(outcome)))


async def _refund(context: RequestContext, admitted: RateLimitDecision, error: Exception) -> None:
    assert admitted.charge is not None
    limits: RateLimits = context.scope["app"].rate_limits
    await limits.give_back(admitted.charge, all_limits=not isinstance(error, Refusal))


async def _find_reply(context: RequestContext, key: IdempotencyKey | None) -> Receipt | None:
    """Returns the stored receipt of this key. Raises IdempotencyKeyReusedError if the request
    differs."""
    if key is None:
        return None
    known = await context.service.write_unlogged(lambda reader: find_key(reader, key.scope))
    if known is None:
        return None
    if known.fingerprint != key.fingerprint:
        raise IdempotencyKeyReusedError(key.key)
    return Receipt(None, known.command_id, known.position, known.answer)


def _replayed(receipt: Receipt, waitlist_id: UUID) -> Reply:
    assert receipt.replayed_response is not None
    log_event("queue.idempotency_reuse", restaurantId=waitlist_id, commandId=receipt.command_id)
    return receipt.replayed_response, receipt_headers(receipt)


def _log_joined(result: TicketResult, seconds: float) -> None:
    ticket = result.ticket
    log_event(
        "queue.created",
        restaurantId=ticket.restaurant_id,
        entryId=ticket.id,
        tokenNumber=ticket.token.number,
        position=ticket.position_at_join,
        duration=round(seconds * 1000, 1),
    )


JOIN = JoinEndpoint()

routes: list[Route] = [JOIN.route]
