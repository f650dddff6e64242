"""Queries on tickets: one ticket for its guest, and the waitlist for staff."""

from collections.abc import Sequence
from typing import Annotated, NotRequired, TypedDict

from msgspec import Meta
from starlette.requests import Request
from starlette.routing import Route

from daybook.api.endpoints.as_of import AsOf, ThenJSON, read_then, refuse_cursor, then_json
from daybook.api.endpoints.paging import PageCursor, refusing_bad_cursors
from daybook.api.endpoints.query import QueryEndpoint, service_of
from daybook.api.http.query_parameters import NoParameters, Parameters
from daybook.api.http.request_reader import bad_request, read_id
from daybook.api.keys.access import ADMIN, AUDITOR, PUBLIC, STAFF, Caller, caller_of, can_see
from daybook.api.runtime.service import Service
from daybook.api.tickets.responses import (
    StaffTicketJSON,
    TicketJSON,
    auditor_ticket_json,
    staff_ticket_json,
    ticket_view_json,
)
from daybook.api.tickets.restaurants import PAGE_DEFAULT, PAGE_MAX, read_slug
from daybook.domain.errors import NotFoundError
from daybook.domain.tickets.restaurant import restaurant_id
from daybook.domain.tickets.ticket import Ticket, TicketStatus
from daybook.projections.tickets.ticket_list import TicketPage, TicketView, one_ticket, read_tickets
from daybook.projections.time_travel.tickets import tickets_as_of


class TicketAnswer(TypedDict):
    ticket: TicketJSON


class TicketPageAnswer(TypedDict):
    tickets: list[StaffTicketJSON]
    nextCursor: str | None
    waiting: int
    asOf: NotRequired[ThenJSON]


class TicketListing(Parameters, frozen=True):
    status: (
        Annotated[
            TicketStatus,
            Meta(description="Only tickets of this status; by default called and waiting ones."),
        ]
        | None
    ) = None
    limit: Annotated[int, Meta(ge=1, le=PAGE_MAX, description="Tickets per page at most.")] = (
        PAGE_DEFAULT
    )
    cursor: PageCursor | None = None
    as_of: AsOf | None = None


async def get_ticket(_: NoParameters, request: Request) -> TicketAnswer:
    """One ticket with its current position, including ended and transferred ones."""
    slug = read_slug(request.path_params["slug"])
    ticket_id = read_id(request.path_params["id"])
    view = await service_of(request).read(lambda reader: one_ticket(reader, ticket_id))
    is_here = view is not None and _was_at(slug, view.ticket)
    if view is None or not is_here or not can_see(request, view.ticket):
        raise NotFoundError("ticket", ticket_id)
    return {"ticket": ticket_view_json(view)}


async def list_tickets(query: TicketListing, request: Request) -> TicketPageAnswer:
    """Called and waiting tickets; names and numbers are for staff, not for auditors."""
    if query.as_of is not None:
        return await _past_tickets(query, query.as_of, request)
    slug = read_slug(request.path_params["slug"])
    service = service_of(request)
    page = await _read_page(service, slug, query)
    if page is None or not can_see(request, page.restaurant):
        raise NotFoundError("restaurant", slug)
    return {
        "tickets": await with_guests(service, page.tickets, caller_of(request)),
        "nextCursor": page.next_cursor,
        "waiting": page.restaurant.waiting_count,
    }


async def _past_tickets(query: TicketListing, then: str, request: Request) -> TicketPageAnswer:
    """A single page of called and waiting tickets. Guests erased since then have no name."""
    refuse_cursor(query.cursor)
    if query.status is not None and query.status.is_over:
        raise bad_request("bad_parameter", "With asOf, the status must be WAITING or CALLED.")
    slug = read_slug(request.path_params["slug"])
    if caller_of(request).bounds.restaurant not in (None, slug):
        raise NotFoundError("restaurant", slug)
    line = restaurant_id(slug)
    moment_then, found = await read_then(
        request, then, lambda reader, position: tickets_as_of(reader, position, line=line)
    )
    listed = [one for one in found if query.status in (None, one.ticket.status)]
    return {
        "tickets": await with_guests(
            request.app.service, listed[: query.limit], caller_of(request)
        ),
        "nextCursor": None,
        "waiting": sum(one.ticket.is_waiting for one in found),
        "asOf": then_json(moment_then),
    }


async def with_guests(
    service: Service, views: Sequence[TicketView], caller: Caller
) -> list[StaffTicketJSON]:
    """Names and numbers are opened for the staff alone: an auditor reads everything else."""
    if not caller.scope & (STAFF | ADMIN):
        return [
            auditor_ticket_json(ticket_view_json(one), one.ticket.guest.subject_id) for one in views
        ]
    guests = [one.ticket.guest for one in views]
    opened = await service.guests.decrypt_each([(one.subject_id, one.sealed) for one in guests])
    return [
        staff_ticket_json(ticket_view_json(one), one.ticket.guest.subject_id, guest)
        for one, guest in zip(views, opened, strict=True)
    ]


async def _read_page(service: Service, slug: str, query: TicketListing) -> TicketPage | None:
    with refusing_bad_cursors():
        return await service.read(
            lambda reader: read_tickets(
                reader, slug, only=query.status, limit=query.limit, cursor=query.cursor
            )
        )


def _was_at(slug: str, ticket: Ticket) -> bool:
    """A transferred ticket stays readable at the restaurant that issued it."""
    return restaurant_id(slug) in (ticket.restaurant_id, ticket.came_from)


routes: list[Route] = [
    QueryEndpoint(
        "/api/restaurants/{slug}/tickets",
        list_tickets,
        scope=STAFF | AUDITOR,
        parameters=TicketListing,
    ).route,
    QueryEndpoint("/api/restaurants/{slug}/tickets/{id}", get_ticket, scope=PUBLIC).route,
]
