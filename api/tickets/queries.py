"""Reading tickets: a guest's own with its position, and the line as the staff see it."""

from collections.abc import Sequence
from typing import Annotated, NotRequired, TypedDict

from msgspec import Meta
from starlette.requests import Request
from starlette.routing import Route

from daybook.api.endpoints.as_of import AsOf, ThenJSON, read_then, refuse_cursor, then_json
from daybook.api.endpoints.query import DatabaseQueryEndpoint
from daybook.api.http.query_parameters import NoParameters, Parameters
from daybook.api.http.request_reader import bad_request, read_id
from daybook.api.jobs.queries import PageCursor
from daybook.api.keys.access import ADMIN, AUDITOR, PUBLIC, STAFF, Caller, caller_of, can_see
from daybook.api.runtime.service import Service
from daybook.api.tickets.responses import (
    StaffTicketJSON,
    TicketJSON,
    staff_json,
    standing_json,
    unnamed_json,
)
from daybook.api.tickets.restaurants import PAGE_MAX, PAGE_USUAL, read_slug
from daybook.domain.errors import NotFoundError
from daybook.domain.tickets.restaurant import restaurant_id
from daybook.domain.tickets.ticket import Ticket, TicketStatus
from daybook.projections.page_cursor import BadCursorError
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
            Meta(description="Only tickets of this status; without it, who was called or waits."),
        ]
        | None
    ) = None
    limit: Annotated[
        int, Meta(ge=1, le=PAGE_MAX, description="How many tickets a page has at most.")
    ] = PAGE_USUAL
    cursor: PageCursor | None = None
    as_of: AsOf | None = None


async def get_ticket(_: NoParameters, request: Request) -> TicketAnswer:
    """One ticket with its position now, also when it is over or was transferred from here."""
    slug = read_slug(request.path_params["slug"])
    ticket_id = read_id(request.path_params["id"])
    service: Service = request.app.service
    standing = await service.read(lambda reader: one_ticket(reader, ticket_id))
    is_here = standing is not None and _was_at(slug, standing.ticket)
    if standing is None or not is_here or not can_see(request, standing.ticket):
        raise NotFoundError("ticket", ticket_id)
    return {"ticket": standing_json(standing)}


async def list_tickets(asked: TicketListing, request: Request) -> TicketPageAnswer:
    """Called and waiting tickets: with names and numbers for the staff, without for auditors."""
    if asked.as_of is not None:
        return await _past_tickets(asked, asked.as_of, request)
    slug = read_slug(request.path_params["slug"])
    service: Service = request.app.service
    page = await _read_page(service, slug, asked)
    if page is None or not can_see(request, page.restaurant):
        raise NotFoundError("restaurant", slug)
    return {
        "tickets": await with_guests(service, page.tickets, caller_of(request)),
        "nextCursor": page.next_cursor,
        "waiting": page.restaurant.waiting_count,
    }


async def _past_tickets(asked: TicketListing, then: str, request: Request) -> TicketPageAnswer:
    """The past has one page, of who was called and who waited. Guests who were erased since are
    not shown as they were: nobody can."""
    refuse_cursor(asked.cursor)
    if asked.status is not None and asked.status.is_over:
        raise bad_request("bad_parameter", "With asOf, the status must be WAITING or CALLED.")
    slug = read_slug(request.path_params["slug"])
    if caller_of(request).bounds.restaurant not in (None, slug):
        raise NotFoundError("restaurant", slug)
    line = restaurant_id(slug)
    moment_then, found = await read_then(
        request, then, lambda reader, position: tickets_as_of(reader, position, line=line)
    )
    listed = [one for one in found if asked.status in (None, one.ticket.status)]
    return {
        "tickets": await with_guests(
            request.app.service, listed[: asked.limit], caller_of(request)
        ),
        "nextCursor": None,
        "waiting": sum(one.ticket.is_waiting for one in found),
        "asOf": then_json(moment_then),
    }


async def with_guests(
    service: Service, standings: Sequence[TicketView], caller: Caller
) -> list[StaffTicketJSON]:
    """Names and numbers are opened for the staff alone: an auditor reads everything else."""
    if not caller.scope & (STAFF | ADMIN):
        return [unnamed_json(standing_json(one), one.ticket.guest.subject_id) for one in standings]
    guests = [one.ticket.guest for one in standings]
    opened = await service.guests.decrypt_each([(one.subject_id, one.sealed) for one in guests])
    return [
        staff_json(standing_json(one), one.ticket.guest.subject_id, guest)
        for one, guest in zip(standings, opened, strict=True)
    ]


async def _read_page(service: Service, slug: str, asked: TicketListing) -> TicketPage | None:
    try:
        return await service.read(
            lambda reader: read_tickets(
                reader, slug, only=asked.status, limit=asked.limit, cursor=asked.cursor
            )
        )
    except BadCursorError as error:
        raise bad_request("bad_cursor", str(error)) from error


def _was_at(slug: str, ticket: Ticket) -> bool:
    """A guest who was sent on still finds the ticket where it was drawn."""
    return restaurant_id(slug) in (ticket.restaurant_id, ticket.came_from)


routes: list[Route] = [
    DatabaseQueryEndpoint(
        "/api/restaurants/{slug}/tickets",
        list_tickets,
        scope=STAFF | AUDITOR,
        parameters=TicketListing,
    ).route,
    DatabaseQueryEndpoint("/api/restaurants/{slug}/tickets/{id}", get_ticket, scope=PUBLIC).route,
]
