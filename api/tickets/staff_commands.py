"""Staff commands on tickets: call, recall, seat, no-show, return, cancel, transfer.

Responses include the guest's name and number. These are added when a response is sent and are never
stored with an idempotency key; a replay decrypts them again.
"""

import time
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Annotated, TypedDict
from uuid import UUID

import orjson
from msgspec import UNSET, Meta, UnsetType
from starlette.routing import Route

from daybook.api.endpoints.command import (
    Body,
    EmptyBody,
    RequestContext,
    Submission,
    WriteEndpoint,
    client_key,
)
from daybook.api.http.problems import BadInputError
from daybook.api.keys.access import PUBLIC, STAFF
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
from daybook.domain.errors import NotFoundError
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
from daybook.eventlog.origin import Receipt, StoredResponse
from daybook.projections.tickets.ticket_list import one_ticket

DeskText = Annotated[str, Meta(min_length=1, max_length=40, pattern=PLAIN_PATTERN)]
TokenText = Annotated[str, Meta(min_length=1, max_length=40)]
ReasonText = Annotated[str, Meta(min_length=1, max_length=200, pattern=PLAIN_PATTERN)]


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
    """The stored form, without the guest's details: `add_guest` adds them when it is sent."""
    subject_id = result.ticket.guest.subject_id
    return {"ticket": staff_ticket_json(ticket_result_json(result), subject_id, None)}


def public_json(result: TicketResult) -> TicketAnswer:
    """Guests may cancel their own tickets."""
    return {"ticket": ticket_result_json(result)}


def call_status(result: TicketResult | None) -> HTTPStatus:
    """204 if the waitlist is empty."""
    return HTTPStatus.NO_CONTENT if result is None else HTTPStatus.OK


def restaurant_key(context: RequestContext) -> str | None:
    """The idempotency key is scoped to the restaurant."""
    text = client_key(context)
    # The space makes a key that no client can send.
    return None if text is None else f"{text} {restaurant_id(slug_of(context))}"


async def logs_result(change: Submission) -> Receipt:
    began = time.monotonic()
    receipt = await change.submit()
    if receipt.result is not None:
        _log_result(receipt.result, time.monotonic() - began)
    return receipt


async def add_guest(
    context: RequestContext, answer: StoredResponse, receipt: Receipt
) -> StoredResponse:
    """Adds the guest's details and, for a waiting ticket, its position. If they cannot be read, the
    response is sent without them: staff that saw an error would call the next guest."""
    if answer.status != HTTPStatus.OK:
        return answer
    service, fresh = context.service, receipt.result
    ticket = orjson.loads(answer.body)["ticket"]
    with suppress(UnavailableError, NoGuestKeyError):
        if fresh is not None and ticket["status"] != TicketStatus.WAITING:
            guest = fresh.ticket.guest
        else:
            view = await service.run_on_relaxed_connection(
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

on_tickets = partial(WriteEndpoint, "POST", keyed_by=restaurant_key, submits=logs_result)
by_staff = partial(on_tickets, scope=STAFF, shape=staff_json, completes=add_guest)

CALL_NEXT = by_staff(
    f"{RESTAURANT}/call-next",
    command=call_next,
    status_of=call_status,
    also=(HTTPStatus.NO_CONTENT,),
)
CALL = by_staff(f"{TICKET}/call", command=call_one)
RECALL = by_staff(f"{TICKET}/recall", command=recall)
SEAT = by_staff(f"{TICKET}/seat", command=seat)
NO_SHOW = by_staff(f"{TICKET}/no-show", command=miss)
RETURN = by_staff(f"{TICKET}/return", command=return_)
TRANSFER = by_staff(f"{TICKET}/transfer", command=transfer)
CANCEL = on_tickets(f"{TICKET}/cancel", scope=PUBLIC, command=cancel, shape=public_json)

routes: list[Route] = [
    write.route for write in (CALL_NEXT, CALL, RECALL, SEAT, NO_SHOW, RETURN, CANCEL, TRANSFER)
]
