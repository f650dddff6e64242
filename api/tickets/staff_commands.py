"""Staff commands on tickets: call, recall, seat, no-show, return, cancel, transfer.

Responses include the guest's name and number. These are added when a response is sent and are never
stored with an idempotency key; a replay decrypts them again.
"""

import time
from contextlib import suppress
from http import HTTPStatus
from typing import Annotated, Any, Generic, TypedDict, TypeVar
from uuid import UUID

import orjson
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import replace
from starlette.routing import Route

from daybook.api.endpoints.command import (
    Body,
    CommandEndpoint,
    EmptyBody,
    Reply,
    RequestContext,
    receipt_headers,
    stored_problem,
)
from daybook.api.http.problems import KNOWN_ERRORS, BadInputError, problem_of
from daybook.api.keys.access import PUBLIC, STAFF
from daybook.api.runtime.service import Service
from daybook.api.telemetry.structured_log import log_event
from daybook.api.tickets.queries import TicketAnswer
from daybook.api.tickets.responses import (
    StaffTicketJSON,
    guest_json,
    staff_ticket_json,
    ticket_result_json,
    wait_json,
)
from daybook.api.tickets.restaurants import PLAIN_PATTERN, Slug, slug_of
from daybook.domain.command import Command
from daybook.domain.errors import NotFoundError, Refusal
from daybook.domain.tickets.commands import (
    CallNext,
    CallTicket,
    CancelTicket,
    MarkNoShow,
    RecallTicket,
    ReturnTicket,
    SeatTicket,
    TicketResult,
    TransferTicket,
)
from daybook.domain.tickets.restaurant import restaurant_id
from daybook.domain.tickets.ticket import ID_VERSION, TicketStatus
from daybook.eventlog.errors import NoGuestKeyError, UnavailableError
from daybook.eventlog.origin import Origin, StoredResponse
from daybook.eventlog.writing.idempotency import IdempotencyKey
from daybook.projections.tickets.ticket_list import one_ticket

DeskText = Annotated[str, Meta(min_length=1, max_length=40, pattern=PLAIN_PATTERN)]
TokenText = Annotated[str, Meta(min_length=1, max_length=40)]
ReasonText = Annotated[str, Meta(min_length=1, max_length=200, pattern=PLAIN_PATTERN)]

B = TypeVar("B", bound=Body)


class NextCall(Body, frozen=True):
    """`afterToken` makes the call conditional on the token called last; null means no call yet. An
    Idempotency-Key makes a retry safe, too."""

    after_token: TokenText | UnsetType | None = UNSET
    desk: DeskText | None = None


class CallOf(Body, frozen=True):
    desk: DeskText | None = None


class Cancellation(Body, frozen=True):
    reason: ReasonText | None = None


class Transfer(Body, frozen=True):
    to_restaurant: Slug


class StaffTicketAnswer(TypedDict):
    ticket: StaffTicketJSON


def call_next(body: NextCall, context: RequestContext) -> CallNext:
    """Call the first waiting guest; 204 if the waitlist is empty."""
    return CallNext(slug=slug_of(context), desk=body.desk, after_token=body.after_token)


def call_one(body: CallOf, context: RequestContext) -> CallTicket:
    """Call a guest out of turn."""
    return CallTicket(slug=slug_of(context), ticket_id=ticket_id_of(context), desk=body.desk)


def recall(body: CallOf, context: RequestContext) -> RecallTicket:
    """Call a guest again after no response."""
    return RecallTicket(slug=slug_of(context), ticket_id=ticket_id_of(context), desk=body.desk)


def seat(_: EmptyBody, context: RequestContext) -> SeatTicket:
    """Seat a guest."""
    return SeatTicket(slug=slug_of(context), ticket_id=ticket_id_of(context))


def miss(_: EmptyBody, context: RequestContext) -> MarkNoShow:
    """Mark a called guest as no-show."""
    return MarkNoShow(slug=slug_of(context), ticket_id=ticket_id_of(context))


def return_(_: EmptyBody, context: RequestContext) -> ReturnTicket:
    """Return a guest to the former position in the waitlist."""
    return ReturnTicket(slug=slug_of(context), ticket_id=ticket_id_of(context))


def cancel(body: Cancellation, context: RequestContext) -> CancelTicket:
    """Cancel a ticket."""
    return CancelTicket(slug=slug_of(context), ticket_id=ticket_id_of(context), reason=body.reason)


def transfer(body: Transfer, context: RequestContext) -> TransferTicket:
    """Transfer a guest to the end of another restaurant's waitlist, with a new token."""
    return TransferTicket(
        slug=slug_of(context), ticket_id=ticket_id_of(context), to_slug=body.to_restaurant
    )


def ticket_id_of(context: RequestContext) -> UUID:
    ticket_id = context.id
    if ticket_id.version != ID_VERSION:
        raise BadInputError(
            HTTPStatus.NOT_FOUND, NotFoundError.code, str(NotFoundError("ticket", ticket_id))
        )
    return ticket_id


def staff_json(result: TicketResult) -> StaffTicketAnswer:
    """The stored form, without the guest's details: `_with_guest` adds them when it is sent."""
    subject_id = result.ticket.guest.subject_id
    return {"ticket": staff_ticket_json(ticket_result_json(result), subject_id, None)}


def public_json(result: TicketResult) -> TicketAnswer:
    """Guests may cancel their own tickets."""
    return {"ticket": ticket_result_json(result)}


class StaffCommandEndpoint(CommandEndpoint[B, Any], Generic[B]):
    @property
    def is_for_staff(self) -> bool:
        return self.answers is staff_json

    def key(self, context: RequestContext, value: B) -> IdempotencyKey | None:
        """The key is scoped to the restaurant."""
        key = super().key(context, value)
        if key is None:
            return None
        # The space makes a key that no client can send.
        return replace(key, key=f"{key.key} {restaurant_id(slug_of(context))}")

    async def submit(
        self,
        context: RequestContext,
        command: Command[Any],
        origin: Origin,
        key: IdempotencyKey | None,
    ) -> Reply:
        began = time.monotonic()
        try:
            receipt = await context.submit(command, origin, key)
            if receipt.replayed_response is None and receipt.result is not None:
                _log_result(receipt.result, time.monotonic() - began)
            answer = receipt.replayed_response or self.render(receipt.result)
            if self.is_for_staff:
                answer = await _with_guest(context.service, answer, receipt.result)
            return answer, receipt_headers(receipt)
        except KNOWN_ERRORS as error:
            headers = [(b"daybook-command-id", str(origin.command_id).encode())]
            return self.error_reply(error, headers)

    def render(self, outcome: TicketResult | Refusal | None) -> StoredResponse:
        if isinstance(outcome, Refusal):
            return stored_problem(problem_of(outcome))
        if outcome is None:
            return StoredResponse(HTTPStatus.NO_CONTENT, b"")
        return StoredResponse(self.status, orjson.dumps(self.answers(outcome)))


class CallNextEndpoint(StaffCommandEndpoint[NextCall]):
    also = (HTTPStatus.NO_CONTENT,)


async def _with_guest(
    service: Service, answer: StoredResponse, fresh: TicketResult | None
) -> StoredResponse:
    """Adds the guest's details and, for a waiting ticket, its position. If they cannot be read, the
    response is sent without them: staff that saw an error would call the next guest."""
    if answer.status != HTTPStatus.OK:
        return answer
    ticket = orjson.loads(answer.body)["ticket"]
    with suppress(UnavailableError, NoGuestKeyError):
        if fresh is not None and ticket["status"] != TicketStatus.WAITING:
            guest = fresh.ticket.guest
        else:
            view = await service.write_unlogged(
                lambda reader: one_ticket(reader, UUID(ticket["id"]))
            )
            assert view is not None, "a ticket that was changed exists"
            if view.wait is not None and ticket["status"] == TicketStatus.WAITING:
                ticket |= {"position": view.position, "estimatedWait": wait_json(view.wait)}
            guest = view.ticket.guest
        (details,) = await service.guests.decrypt_each([(guest.subject_id, guest.sealed)])
        ticket["guest"] = guest_json(details)
    return StoredResponse(answer.status, orjson.dumps({"ticket": ticket}))


def _log_result(result: TicketResult, seconds: float) -> None:
    ticket, was = result.ticket, result.was
    about = {
        "restaurantId": ticket.restaurant_id,
        "entryId": ticket.id,
        "tokenNumber": ticket.token.number,
    }
    if ticket.status is TicketStatus.CALLED:
        duration = round(seconds * 1000, 1)
        log_event("queue.called", **about, desk=ticket.desk, duration=duration)
    if was is not ticket.status:
        log_event("queue.status_changed", **about, **{"from": was, "to": ticket.status})


RESTAURANT = "/api/restaurants/{slug}"
TICKET = f"{RESTAURANT}/tickets/{{id}}"

CALL_NEXT = CallNextEndpoint(
    "POST", f"{RESTAURANT}/call-next", scope=STAFF, command=call_next, shape=staff_json
)
CALL = StaffCommandEndpoint(
    "POST", f"{TICKET}/call", scope=STAFF, command=call_one, shape=staff_json
)
RECALL = StaffCommandEndpoint(
    "POST", f"{TICKET}/recall", scope=STAFF, command=recall, shape=staff_json
)
SEAT = StaffCommandEndpoint("POST", f"{TICKET}/seat", scope=STAFF, command=seat, shape=staff_json)
NO_SHOW = StaffCommandEndpoint(
    "POST", f"{TICKET}/no-show", scope=STAFF, command=miss, shape=staff_json
)
RETURN = StaffCommandEndpoint(
    "POST", f"{TICKET}/return", scope=STAFF, command=return_, shape=staff_json
)
CANCEL = StaffCommandEndpoint(
    "POST", f"{TICKET}/cancel", scope=PUBLIC, command=cancel, shape=public_json
)
TRANSFER = StaffCommandEndpoint(
    "POST", f"{TICKET}/transfer", scope=STAFF, command=transfer, shape=staff_json
)

routes: list[Route] = [
    write.route for write in (CALL_NEXT, CALL, RECALL, SEAT, NO_SHOW, RETURN, CANCEL, TRANSFER)
]
