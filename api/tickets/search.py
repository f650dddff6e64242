"""Staff search a guest's tickets by mobile number."""

from http import HTTPStatus
from typing import Annotated, TypedDict

from msgspec import Meta
from starlette.routing import Route

from daybook.api.endpoints.command import Body, RequestContext, WriteEndpoint
from daybook.api.http.phone_numbers import WRITTEN_CHARACTERS_MAX, normalise_phone_number
from daybook.api.keys.access import STAFF
from daybook.api.tickets.queries import with_guests
from daybook.api.tickets.responses import StaffTicketJSON
from daybook.api.tickets.restaurants import PAGE_DEFAULT, PAGE_MAX, slug_of
from daybook.domain.errors import NotFoundError
from daybook.domain.tickets.restaurant import Restaurant
from daybook.projections.tickets.restaurants import one_restaurant
from daybook.projections.tickets.ticket_list import tickets_of_guest


class SearchBody(Body, frozen=True):
    """In the body, because proxies log URLs."""

    mobile_number: Annotated[str, Meta(min_length=1, max_length=WRITTEN_CHARACTERS_MAX)]
    limit: Annotated[int, Meta(ge=1, le=PAGE_MAX)] = PAGE_DEFAULT


class FoundTicketsAnswer(TypedDict):
    tickets: list[StaffTicketJSON]


async def search(body: SearchBody, context: RequestContext) -> FoundTicketsAnswer:
    """Find all tickets of a guest by mobile number, newest first."""
    restaurant = await _restaurant(context)
    number = normalise_phone_number(body.mobile_number, calling_code=context.settings.calling_code)
    subject_id = await context.service.guests.find(restaurant.id, number)
    if subject_id is None:
        # The number is unknown, or that of an erased guest.
        return {"tickets": []}
    views = await context.service.read(
        lambda reader: tickets_of_guest(reader, restaurant, subject_id, limit=body.limit)
    )
    return {"tickets": await with_guests(context.service, views, context.caller)}


async def _restaurant(context: RequestContext) -> Restaurant:
    slug = slug_of(context)
    restaurant = await context.service.read(lambda reader: one_restaurant(reader, slug))
    if restaurant is None or not context.caller.bounds.can_see(restaurant):
        raise NotFoundError("restaurant", slug)
    return restaurant


SEARCH = WriteEndpoint(
    "POST",
    "/api/restaurants/{slug}/ticket-search",
    scope=STAFF,
    answer=search,
    headers={},
    problems=(HTTPStatus.NOT_FOUND,),
)

routes: list[Route] = [SEARCH.route]
