"""Staff search a guest's tickets by mobile number."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Any, ClassVar, TypedDict
from uuid import UUID

import orjson
from msgspec import Meta
from starlette.routing import Route

from daybook.api.endpoints.command import Body, Reply, RequestContext, WriteEndpoint
from daybook.api.http.phone_numbers import WRITTEN_CHARACTERS_MAX, normalise_phone_number
from daybook.api.keys.access import STAFF
from daybook.api.tickets.queries import with_guests
from daybook.api.tickets.responses import StaffTicketJSON
from daybook.api.tickets.restaurants import PAGE_DEFAULT, PAGE_MAX, slug_of
from daybook.domain.errors import NotFoundError
from daybook.domain.tickets.restaurant import Restaurant
from daybook.eventlog.origin import StoredResponse
from daybook.projections.tickets.restaurants import one_restaurant
from daybook.projections.tickets.ticket_list import TicketView, tickets_of_guest


class SearchBody(Body, frozen=True):
    """In the body, because proxies log URLs."""

    mobile_number: Annotated[str, Meta(min_length=1, max_length=WRITTEN_CHARACTERS_MAX)]
    limit: Annotated[int, Meta(ge=1, le=PAGE_MAX)] = PAGE_DEFAULT


class FoundTicketsAnswer(TypedDict):
    tickets: list[StaffTicketJSON]


def found_tickets_json(tickets: list[StaffTicketJSON]) -> FoundTicketsAnswer:
    return {"tickets": tickets}


class TicketSearchEndpoint(WriteEndpoint[SearchBody]):
    """An unknown number, or that of an erased guest, yields an empty list."""

    summary = "Find all tickets of a guest by mobile number, newest first."
    answers = staticmethod(found_tickets_json)
    headers: ClassVar[Mapping[str, Any]] = {}
    problems = (HTTPStatus.NOT_FOUND,)

    async def answer(self, context: RequestContext, body: bytes) -> Reply:
        request = self.read(context, body)
        restaurant = await self._restaurant(context)
        number = normalise_phone_number(
            request.mobile_number, calling_code=context.settings.calling_code
        )
        subject_id = await context.service.guests.find(restaurant.id, number)
        views = await self._tickets(context, restaurant, subject_id, request.limit)
        tickets = await with_guests(context.service, views, context.caller)
        return StoredResponse(HTTPStatus.OK, orjson.dumps(found_tickets_json(tickets))), []

    async def _restaurant(self, context: RequestContext) -> Restaurant:
        slug = slug_of(context)
        restaurant = await context.service.read(lambda reader: one_restaurant(reader, slug))
        if restaurant is None or not context.caller.bounds.can_see(restaurant):
            raise NotFoundError("restaurant", slug)
        return restaurant

    async def _tickets(
        self, context: RequestContext, restaurant: Restaurant, subject_id: UUID | None, limit: int
    ) -> Sequence[TicketView]:
        if subject_id is None:
            return []
        return await context.service.read(
            lambda reader: tickets_of_guest(reader, restaurant, subject_id, limit=limit)
        )


SEARCH = TicketSearchEndpoint(
    "POST", "/api/restaurants/{slug}/ticket-search", takes=SearchBody, scope=STAFF
)

routes: list[Route] = [SEARCH.route]
