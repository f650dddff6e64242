"""A guest joins a line: public, limited, and once however often it is sent.

The order matters. A known idempotency key is answered before any limit is asked, so sending again
is free. The guest's details are sealed before there is a command, so nothing personal comes near
the log. When the command comes to nothing, its admissions are given back to the limits.
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
    RawHeaders,
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
from daybook.api.tickets.responses import served_json
from daybook.api.tickets.restaurants import PLAIN_PATTERN, slug_of
from daybook.domain.errors import Refusal
from daybook.domain.tickets.commands import JoinLine, TicketResult
from daybook.domain.tickets.restaurant import restaurant_id
from daybook.domain.tickets.ticket import Guest
from daybook.eventlog.errors import IdempotencyKeyReusedError, OutcomeUnknownError
from daybook.eventlog.origin import Origin, Receipt, StoredResponse
from daybook.eventlog.writing.idempotency import IdempotencyKey, Scope, find_key

PARTY_MAX = 50
# The same request may be on its way in another process: so long its answer is waited for before a
# limit refuses.
TWIN_SECONDS = 0.25

NameText = Annotated[str, Meta(min_length=1, max_length=200)]
MobileText = Annotated[str, Meta(min_length=1, max_length=40)]
KioskKey = Annotated[
    str,
    Meta(max_length=200, description="A kiosk's: its guests are not limited by its address."),
]
SeatingText = Annotated[str, Meta(min_length=1, max_length=40, pattern=PLAIN_PATTERN)]


class NewTicket(Body, frozen=True):
    name: NameText
    mobile_number: MobileText
    party_size: Annotated[int, Meta(ge=1, le=PARTY_MAX)]
    seating_type: SeatingText | None = None
    idempotency_key: KeyText | None = None


class Wish(Body, frozen=True):
    """What a request says, as far as its fingerprint may know: nothing that leads to a guest."""

    guest: str
    party_size: int
    seating_type: str | None


def joined(served: TicketResult) -> TicketAnswer:
    return {"ticket": served_json(served)}


class JoinEndpoint(WriteEndpoint[NewTicket]):
    summary = "Join a restaurant's line."
    answers = staticmethod(joined)
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
        self._turns: WeakValueDictionary[Scope, asyncio.Lock] = WeakValueDictionary()
        """One at a time of those that show the same key: only the first asks the limits."""

    async def answer(
        self, context: RequestContext, body: bytes
    ) -> tuple[StoredResponse, RawHeaders]:
        new = self.read(context, body)
        line = restaurant_id(slug_of(context))
        guest = guest_details(
            new.name, new.mobile_number, calling_code=context.settings.calling_code
        )
        try:
            key = self._key(context, new, guest, line)
            if key is None:
                return await self._join(context, new, guest, line, None)
            async with self._turns.setdefault(key.scope, asyncio.Lock()):
                return await self._join(context, new, guest, line, key)
        except KNOWN_ERRORS as error:
            problem = problem_of(error)
            return stored_problem(problem), retry_after(problem)

    async def _join(
        self,
        context: RequestContext,
        new: NewTicket,
        guest: GuestDetails,
        line: UUID,
        key: IdempotencyKey | None,
    ) -> tuple[StoredResponse, RawHeaders]:
        began = time.monotonic()
        if known := await _known(context, key):
            return _replayed(known, line)
        origin = origin_of(context, key, context.correlation)
        admitted = await self._admit(context, guest, line, key, origin.command_id)
        if isinstance(admitted, Receipt):
            return _replayed(admitted, line)
        try:
            receipt = await self._submit(context, new, guest, line, origin=origin, key=key)
        except OutcomeUnknownError:
            # It may have taken effect, and then it counts.
            raise
        except KNOWN_ERRORS as error:
            await _give_back(context, admitted, error)
            raise
        if receipt.replayed_response is not None:
            answer, headers = _replayed(receipt, line)
            return answer, headers + admitted.raw_headers
        _tell(receipt.result, time.monotonic() - began)
        return self._render(receipt.result), receipt_headers(receipt) + admitted.raw_headers

    async def _submit(
        self,
        context: RequestContext,
        new: NewTicket,
        guest: GuestDetails,
        line: UUID,
        *,
        origin: Origin,
        key: IdempotencyKey | None,
    ) -> Receipt:
        sealed = await context.service.guests.seal(line, guest)
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
        line: UUID,
        key: IdempotencyKey | None,
        command_id: UUID,
    ) -> RateLimitDecision | Receipt:
        """The admission; or, if a limit refuses, the answer of a twin that was let in before."""
        limits: RateLimits = context.scope["app"].rate_limits
        admission = await limits.admit(
            line,
            pseudonym=context.service.guests.pseudonym(line, guest.mobile_number),
            address=limits.address_of(context.scope),
            route=self.operation,
            is_exempt=limits.is_kiosk(context.headers),
            command_id=command_id,
            may_be_repeated=key is not None,
        )
        if not admission.is_allowed and key is not None:
            await asyncio.sleep(TWIN_SECONDS)
            if known := await _known(context, key):
                return known
        admission.check()
        return admission

    def _key(
        self, context: RequestContext, new: NewTicket, guest: GuestDetails, line: UUID
    ) -> IdempotencyKey | None:
        """Of this restaurant alone: another's key leads nowhere, whatever it is."""
        header = read_idempotency_key(context.scope)
        if header and new.idempotency_key and header != new.idempotency_key:
            raise unprocessable("schema", "The header and the body name two idempotency keys.")
        text = header or new.idempotency_key
        if text is None:
            return None
        who = context.service.guests.pseudonym(line, f"{guest.mobile_number}\0{guest.name}")
        wish = Wish(guest=who, party_size=new.party_size, seating_type=new.seating_type)
        # With the space, it is a key that no client can send.
        return idempotency_key(context, wish, self.operation, f"{text} {line}", self._render)

    def _render(self, outcome: TicketResult | Refusal) -> StoredResponse:
        if isinstance(outcome, Refusal):
            return stored_problem(problem_of(outcome))
        return StoredResponse(self.status, orjson.dumps(joined(outcome)))


async def _give_back(
    context: RequestContext, admitted: RateLimitDecision, error: Exception
) -> None:
    assert admitted.charge is not None
    limits: RateLimits = context.scope["app"].rate_limits
    await limits.give_back(admitted.charge, all_limits=not isinstance(error, Refusal))


async def _known(context: RequestContext, key: IdempotencyKey | None) -> Receipt | None:
    """What was answered to this key before. Raises KeyReusedError if that was another request."""
    if key is None:
        return None
    known = await context.service.write_unlogged(lambda reader: find_key(reader, key.scope))
    if known is None:
        return None
    if known.fingerprint != key.fingerprint:
        raise IdempotencyKeyReusedError(key.key)
    return Receipt(None, known.command_id, known.position, known.answer)


def _replayed(receipt: Receipt, line: UUID) -> tuple[StoredResponse, RawHeaders]:
    assert receipt.replayed_response is not None
    log_event("queue.idempotency_reuse", restaurantId=line, commandId=receipt.command_id)
    return receipt.replayed_response, receipt_headers(receipt)


def _tell(served: TicketResult, seconds: float) -> None:
    ticket = served.ticket
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
