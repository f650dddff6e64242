"""Guests join a waitlist: public, rate-limited and idempotent.

The order matters: a known idempotency key is answered before the limits are charged, so retries are
free; personal data is encrypted before the command exists, so none reaches the log; a failed
command refunds its charges.
"""

import asyncio
import time
from http import HTTPStatus
from typing import Annotated
from uuid import UUID
from weakref import WeakValueDictionary

import orjson
from msgspec import Meta, Struct
from starlette.routing import Route
from uuid_utils.compat import uuid7

from daybook.api.endpoints.command import (
    COMMAND_HEADERS,
    Body,
    Reply,
    RequestContext,
    WriteEndpoint,
    client_key,
    receipt_headers,
    stored_problem,
)
from daybook.api.http.problems import KNOWN_ERRORS, problem_of
from daybook.api.http.request_reader import KeyText, unprocessable
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
from daybook.eventlog.origin import Receipt, StoredResponse
from daybook.eventlog.writing.idempotency import IdempotencyKey, Scope, find_key

PARTY_MAX = 50
# A limit may refuse a duplicate whose original runs in another process: wait this long for its
# response first.
DUPLICATE_WAIT_SECONDS = 0.25

_LOCKS: WeakValueDictionary[Scope, asyncio.Lock] = WeakValueDictionary()
"""One lock per idempotency key: of concurrent duplicates only the first is charged."""

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


class JoinRequest(Struct, frozen=True):
    context: RequestContext
    new: NewTicket
    guest: GuestDetails
    waitlist_id: UUID

    def pseudonym(self, text: str) -> str:
        return self.context.service.guests.pseudonym(self.waitlist_id, text)

    def key(self) -> IdempotencyKey | None:
        """The key is scoped to the restaurant."""
        header, own = client_key(self.context), self.new.idempotency_key
        if header and own and header != own:
            raise unprocessable("schema", "The idempotency keys in header and body differ.")
        text = header or own
        if text is None:
            return None
        fingerprint = JoinFingerprint(
            guest=self.pseudonym(f"{self.guest.mobile_number}\0{self.guest.name}"),
            party_size=self.new.party_size,
            seating_type=self.new.seating_type,
        )
        # The space makes a key that no client can send.
        return self.context.idempotency_key(f"{text} {self.waitlist_id}", fingerprint, render)

    async def command(self) -> JoinLine:
        sealed = await self.context.service.guests.seal(self.waitlist_id, self.guest)
        return JoinLine(
            slug=slug_of(self.context),
            ticket_id=uuid7(),
            guest=Guest(
                subject_id=sealed.subject_id, sealed=sealed.sealed, pseudonym=sealed.pseudonym
            ),
            party_size=self.new.party_size,
            seating_type=self.new.seating_type,
            hourly_max=self.context.settings.tickets_per_mobile_max,
        )


def joined_json(result: TicketResult) -> TicketAnswer:
    return {"ticket": ticket_result_json(result)}


def render(outcome: TicketResult | Refusal) -> StoredResponse:
    if isinstance(outcome, Refusal):
        return stored_problem(problem_of(outcome))
    return StoredResponse(HTTPStatus.CREATED, orjson.dumps(joined_json(outcome)))


async def join(new: NewTicket, context: RequestContext) -> TicketAnswer | Reply:
    """Join a restaurant's waitlist."""
    calling_code = context.settings.calling_code
    guest = guest_details(new.name, new.mobile_number, calling_code=calling_code)
    request = JoinRequest(context, new, guest, restaurant_id(slug_of(context)))
    key = request.key()
    if key is None:
        return await _join(request, None)
    async with _LOCKS.setdefault(key.scope, asyncio.Lock()):
        return await _join(request, key)


async def _join(request: JoinRequest, key: IdempotencyKey | None) -> Reply:
    began, context = time.monotonic(), request.context
    if known := await _find_reply(context, key):
        return _replayed(known, request.waitlist_id)
    origin = context.origin(key, context.correlation)
    charged = await _charge(request, key, origin.command_id)
    if isinstance(charged, Receipt):
        return _replayed(charged, request.waitlist_id)
    try:
        receipt = await context.submit(await request.command(), origin, key)
    except OutcomeUnknownError:
        # The command may have been committed, so its charge stays.
        raise
    except KNOWN_ERRORS as error:
        await _refund(context, charged, error)
        raise
    if receipt.replayed_response is not None:
        reply = _replayed(receipt, request.waitlist_id)
    else:
        _log_joined(receipt.result, time.monotonic() - began)
        reply = Reply(render(receipt.result), receipt_headers(receipt))
    return Reply(reply.response, reply.headers + charged.raw_headers)


async def _charge(
    request: JoinRequest, key: IdempotencyKey | None, command_id: UUID
) -> RateLimitDecision | Receipt:
    """Charges the limits. If one refuses, returns the receipt of a duplicate that succeeded."""
    context = request.context
    limits: RateLimits = context.scope["app"].rate_limits
    decision = await limits.charge(
        request.waitlist_id,
        pseudonym=request.pseudonym(request.guest.mobile_number),
        address=limits.address_of(context.scope),
        route=JOIN.operation,
        is_exempt=limits.is_kiosk(context.headers),
        command_id=command_id,
        may_be_repeated=key is not None,
    )
    if not decision.is_allowed and key is not None:
        await asyncio.sleep(DUPLICATE_WAIT_SECONDS)
        if known := await _find_reply(context, key):
            return known
    decision.check()
    return decision


async def _refund(context: RequestContext, charged: RateLimitDecision, error: Exception) -> None:
    assert charged.charge is not None
    limits: RateLimits = context.scope["app"].rate_limits
    await limits.give_back(charged.charge, all_limits=not isinstance(error, Refusal))


async def _find_reply(context: RequestContext, key: IdempotencyKey | None) -> Receipt | None:
    """Returns the stored receipt of this key. Raises IdempotencyKeyReusedError if the request
    differs."""
    if key is None:
        return None
    run = context.service.run_on_relaxed_connection
    known = await run(lambda reader: find_key(reader, key.scope))
    if known is None:
        return None
    if known.fingerprint != key.fingerprint:
        raise IdempotencyKeyReusedError(key.key)
    return Receipt(None, known.command_id, known.position, known.answer)


def _replayed(receipt: Receipt, waitlist_id: UUID) -> Reply:
    assert receipt.replayed_response is not None
    log_event("queue.idempotency_reuse", restaurantId=waitlist_id, commandId=receipt.command_id)
    return Reply(receipt.replayed_response, receipt_headers(receipt))


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


JOIN = WriteEndpoint(
    "POST",
    "/api/restaurants/{slug}/tickets",
    scope=PUBLIC,
    answer=join,
    status=HTTPStatus.CREATED,
    headers={**COMMAND_HEADERS, "Daybook-Kiosk-Key": KioskKey},
    problems=(HTTPStatus.TOO_MANY_REQUESTS,),
)

routes: list[Route] = [JOIN.route]
