"""JSON of restaurants and tickets.

`TicketJSON` is public and stored with idempotency keys, so it holds no personal data. Name and
number of a guest are added for staff only.
"""

from datetime import date
from typing import NotRequired, TypedDict
from uuid import UUID

from daybook.api.http.timestamps import Moment, moment
from daybook.api.runtime.guest_encryption import GuestDetails
from daybook.domain.tickets.commands import TicketResult
from daybook.domain.tickets.restaurant import Call, Reset, Restaurant, Wait, wait_at
from daybook.domain.tickets.ticket import Ticket, TicketStatus
from daybook.projections.tickets.ticket_list import TicketView


class WaitJSON(TypedDict):
    minutesLow: int
    minutesHigh: int


class CallJSON(TypedDict):
    ticketId: UUID
    tokenNumber: str
    desk: str | None
    at: Moment


class RestaurantJSON(TypedDict):
    id: UUID
    slug: str
    name: str
    tokenPrefix: str
    averageMinutesPerParty: float
    resetPolicy: Reset
    timeZone: str
    noShowGraceSeconds: float | None
    waiting: int
    createdAt: Moment
    updatedAt: Moment
    version: int


class BoardJSON(TypedDict):
    restaurant: str
    name: str
    lastCalled: CallJSON | None
    lastCalls: list[CallJSON]
    next: list[str]
    """The next tokens to be called."""
    waiting: int
    estimatedWait: WaitJSON
    """For guests joining now."""


class TicketJSON(TypedDict):
    """`position` is set while the ticket waits; `seatedAt`, `noShowAt` and `cancelledAt` are when
    it ended, the other times when it last entered that state."""

    id: UUID
    restaurant: str
    tokenNumber: str
    serviceDay: date | None
    status: TicketStatus
    position: int | None
    positionAtJoin: int
    estimatedWait: WaitJSON | None
    partySize: int
    seatingType: str | None
    calls: int
    desk: str | None
    createdAt: Moment
    calledAt: Moment | None
    recalledAt: Moment | None
    dueAt: Moment | None
    seatedAt: Moment | None
    noShowAt: Moment | None
    returnedAt: Moment | None
    cancelledAt: Moment | None
    transferredAt: Moment | None
    updatedAt: Moment
    version: int


class GuestJSON(TypedDict):
    name: str
    mobileNumber: str


class StaffTicketJSON(TicketJSON):
    """`guest` is null if the guest was erased, and omitted for auditors."""

    subjectId: UUID
    guest: NotRequired[GuestJSON | None]


def restaurant_json(restaurant: Restaurant) -> RestaurantJSON:
    profile = restaurant.profile
    return {
        "id": restaurant.id,
        "slug": restaurant.slug,
        "name": profile.name,
        "tokenPrefix": profile.token_prefix,
        "averageMinutesPerParty": profile.minutes_per_party,
        "resetPolicy": profile.reset,
        "timeZone": profile.time_zone,
        "noShowGraceSeconds": profile.no_show_seconds,
        "waiting": restaurant.waiting_count,
        "createdAt": moment(restaurant.created_at),
        "updatedAt": moment(restaurant.updated_at),
        "version": restaurant.version,
    }


def board_json(restaurant: Restaurant, next_tokens: list[str]) -> BoardJSON:
    calls = [_call_json(call) for call in restaurant.last_calls]
    waiting = restaurant.waiting_count
    return {
        "restaurant": restaurant.slug,
        "name": restaurant.profile.name,
        "lastCalled": calls[0] if calls else None,
        "lastCalls": calls,
        "next": next_tokens,
        "waiting": waiting,
        "estimatedWait": wait_json(wait_at(waiting + 1, restaurant.profile.minutes_per_party)),
    }


def _call_json(call: Call) -> CallJSON:
    return {
        "ticketId": call.ticket_id,
        "tokenNumber": call.token_number,
        "desk": call.desk,
        "at": moment(call.at),
    }


def wait_json(wait: Wait) -> WaitJSON:
    return {"minutesLow": wait.minutes_low, "minutesHigh": wait.minutes_high}


def ticket_result_json(result: TicketResult) -> TicketJSON:
    """Includes position and wait only for a ticket that just joined: the position of a returned
    ticket must be read from the waitlist."""
    ticket = result.ticket
    joined = ticket.updated_at in (ticket.created_at, ticket.transferred_at)
    if not (ticket.is_waiting and joined):
        return ticket_json(ticket, result.restaurant.slug)
    return ticket_json(ticket, result.restaurant.slug, ticket.position_at_join, ticket.estimate)


def ticket_view_json(view: TicketView) -> TicketJSON:
    return ticket_json(view.ticket, view.slug, view.position, view.wait)


def ticket_json(
    ticket: Ticket, slug: str, position: int | None = None, wait: Wait | None = None
) -> TicketJSON:
    ended = moment(ticket.ended_at) if ticket.ended_at else None
    status = ticket.status
    return {
        "id": ticket.id,
        "restaurant": slug,
        "tokenNumber": ticket.token.number,
        "serviceDay": ticket.token.service_day,
        "status": status,
        "position": position,
        "positionAtJoin": ticket.position_at_join,
        "estimatedWait": wait_json(wait) if wait else None,
        "partySize": ticket.party_size,
        "seatingType": ticket.seating_type,
        "calls": ticket.calls_count,
        "desk": ticket.desk,
        "createdAt": moment(ticket.created_at),
        "calledAt": moment(ticket.called_at) if ticket.called_at else None,
        "recalledAt": moment(ticket.recalled_at) if ticket.recalled_at else None,
        "dueAt": moment(ticket.due_at) if ticket.due_at else None,
        "seatedAt": ended if status is TicketStatus.SEATED else None,
        "noShowAt": ended if status is TicketStatus.NO_SHOW else None,
        "returnedAt": moment(ticket.returned_at) if ticket.returned_at else None,
        "cancelledAt": ended if status is TicketStatus.CANCELLED else None,
        "transferredAt": moment(ticket.transferred_at) if ticket.transferred_at else None,
        "updatedAt": moment(ticket.updated_at),
        "version": ticket.version,
    }


def guest_json(guest: GuestDetails | None) -> GuestJSON | None:
    return {"name": guest.name, "mobileNumber": guest.mobile_number} if guest else None


def staff_ticket_json(
    ticket: TicketJSON, subject_id: UUID, guest: GuestDetails | None
) -> StaffTicketJSON:
    return {**ticket, "subjectId": subject_id, "guest": guest_json(guest)}


def auditor_ticket_json(ticket: TicketJSON, subject_id: UUID) -> StaffTicketJSON:
    rendered = staff_ticket_json(ticket, subject_id, None)
    del rendered["guest"]
    return rendered
