"""Endpoints for restaurants: profile, waitlist settings and the public board."""

import re
from http import HTTPStatus
from typing import Annotated, TypedDict

from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.requests import Request
from starlette.routing import Route

from daybook.api.endpoints.command import Body, RequestContext, WriteEndpoint
from daybook.api.endpoints.paging import PageCursor, decode_cursor
from daybook.api.endpoints.query import QueryEndpoint, service_of
from daybook.api.http.query_parameters import NoParameters, Parameters
from daybook.api.http.request_reader import bad_request
from daybook.api.keys.access import ADMIN, AUDITOR, PUBLIC, STAFF, caller_of, can_see
from daybook.api.tickets.responses import BoardJSON, RestaurantJSON, board_json, restaurant_json
from daybook.domain.errors import NotFoundError
from daybook.domain.patterns import whole
from daybook.domain.tickets.commands import ChangeRestaurant, OpenedRestaurant, OpenRestaurant
from daybook.domain.tickets.restaurant import Profile, Reset, Restaurant
from daybook.projections.page_cursor import write_cursor
from daybook.projections.tickets.restaurants import one_restaurant, read_restaurants
from daybook.projections.tickets.ticket_list import next_tokens

SLUG_CHARACTERS_MAX = 60
PREFIX_CHARACTERS_MAX = 12
DAY_SECONDS = 24 * 3600
MINUTES_PER_PARTY_DEFAULT = 10.0
GRACE_SECONDS_DEFAULT = 300.0
NEXT_MAX = 5
PAGE_DEFAULT = 100
PAGE_MAX = 1000

SLUG_PATTERN = whole("[a-z0-9]+(-[a-z0-9]+)*")
SLUG = re.compile(SLUG_PATTERN)

# For texts stored in the log for ever: no control characters, nothing like a telephone number.
PLAIN_PATTERN = whole(r"(?!.*[0-9]([ ()./-]{0,2}[0-9]){6})[^\x00-\x1f\x7f]+")

Slug = Annotated[str, Meta(min_length=1, max_length=SLUG_CHARACTERS_MAX, pattern=SLUG_PATTERN)]
# Displayed on boards: no control characters.
Name = Annotated[str, Meta(min_length=1, max_length=100, pattern=whole(r"[^\x00-\x1f\x7f]+"))]
Prefix = Annotated[
    str, Meta(min_length=1, max_length=PREFIX_CHARACTERS_MAX, pattern=whole("[A-Z0-9]+"))
]
Minutes = Annotated[float, Meta(gt=0, le=24 * 60)]
GraceSeconds = Annotated[float, Meta(ge=1, le=DAY_SECONDS)]
# The command validates the meaning.
TimeZone = Annotated[str, Meta(min_length=1, max_length=100)]


class NewRestaurant(Body, frozen=True):
    slug: Slug
    name: Name
    token_prefix: Prefix | None = None
    average_minutes_per_party: Minutes = MINUTES_PER_PARTY_DEFAULT
    reset_policy: Reset = Reset.NEVER
    time_zone: TimeZone = "UTC"
    no_show_grace_seconds: GraceSeconds | None = GRACE_SECONDS_DEFAULT


class RestaurantChange(Body, frozen=True):
    """An omitted member keeps its value."""

    name: Name | UnsetType = UNSET
    token_prefix: Prefix | UnsetType = UNSET
    average_minutes_per_party: Minutes | UnsetType = UNSET
    reset_policy: Reset | UnsetType = UNSET
    time_zone: TimeZone | UnsetType = UNSET
    no_show_grace_seconds: GraceSeconds | UnsetType | None = UNSET


class RestaurantAnswer(TypedDict):
    restaurant: RestaurantJSON


class RestaurantPageAnswer(TypedDict):
    restaurants: list[RestaurantJSON]
    nextCursor: str | None


class WaitlistResponse(TypedDict):
    board: BoardJSON


class RestaurantListing(Parameters, frozen=True):
    limit: Annotated[int, Meta(ge=1, le=PAGE_MAX, description="Restaurants per page at most.")] = (
        PAGE_DEFAULT
    )
    cursor: PageCursor | None = None


class RestaurantCursor(Struct, frozen=True):
    restaurant: str


def open_restaurant(body: NewRestaurant, _context: RequestContext) -> OpenRestaurant:
    """Open a restaurant."""
    profile = Profile(
        name=body.name,
        token_prefix=body.token_prefix or default_prefix(body.slug),
        minutes_per_party=body.average_minutes_per_party,
        reset=body.reset_policy,
        time_zone=body.time_zone,
        no_show_seconds=body.no_show_grace_seconds,
    )
    return OpenRestaurant(slug=body.slug, profile=profile)


def change(body: RestaurantChange, context: RequestContext) -> ChangeRestaurant:
    """Change a restaurant's settings; existing tickets keep theirs."""
    return ChangeRestaurant(
        slug=slug_of(context),
        name=body.name,
        token_prefix=body.token_prefix,
        minutes_per_party=body.average_minutes_per_party,
        reset=body.reset_policy,
        time_zone=body.time_zone,
        no_show_seconds=body.no_show_grace_seconds,
    )


def default_prefix(slug: str) -> str:
    return slug.replace("-", "").upper()[:PREFIX_CHARACTERS_MAX]


def one_restaurant_json(restaurant: Restaurant) -> RestaurantAnswer:
    return {"restaurant": restaurant_json(restaurant)}


def opened_json(opened: OpenedRestaurant) -> RestaurantAnswer:
    return one_restaurant_json(opened.restaurant)


def opened_status(opened: OpenedRestaurant) -> HTTPStatus:
    """200 if the same restaurant existed before."""
    return HTTPStatus.CREATED if opened.is_new else HTTPStatus.OK


async def list_restaurants(query: RestaurantListing, request: Request) -> RestaurantPageAnswer:
    """All restaurants, by slug."""
    service = service_of(request)
    cursor = decode_cursor(query.cursor, RestaurantCursor)
    after, own = cursor.restaurant if cursor else "", caller_of(request).bounds.restaurant
    if own is not None:
        # No shared paging: page boundaries would reveal other restaurants.
        only = await service.read(lambda reader: one_restaurant(reader, own))
        visible = [restaurant_json(only)] if only is not None and own > after else []
        return {"restaurants": visible, "nextCursor": None}
    found = await service.read(
        lambda reader: read_restaurants(reader, after=after, limit=query.limit + 1)
    )
    page = found[: query.limit]
    is_more = len(found) > query.limit
    return {
        "restaurants": [restaurant_json(one) for one in page],
        "nextCursor": write_cursor(RestaurantCursor(page[-1].slug)) if is_more else None,
    }


async def get_restaurant(_: NoParameters, request: Request) -> RestaurantAnswer:
    """One restaurant."""
    return one_restaurant_json(await read_restaurant(request))


async def board(_: NoParameters, request: Request) -> WaitlistResponse:
    """The public waitlist board: last calls, next tokens and estimated wait."""
    restaurant = await read_restaurant(request)
    tokens = await service_of(request).read(
        lambda reader: next_tokens(reader, restaurant.id, NEXT_MAX)
    )
    return {"board": board_json(restaurant, tokens)}


async def read_restaurant(request: Request) -> Restaurant:
    slug = read_slug(request.path_params["slug"])
    restaurant = await service_of(request).read(lambda reader: one_restaurant(reader, slug))
    if restaurant is None or not can_see(request, restaurant):
        raise NotFoundError("restaurant", slug)
    return restaurant


def slug_of(context: RequestContext) -> str:
    return read_slug(context.scope["path_params"]["slug"])


def read_slug(text: str) -> str:
    if len(text) > SLUG_CHARACTERS_MAX or not SLUG.fullmatch(text):
        raise bad_request(
            "bad_slug",
            f"A restaurant's slug has 1 to {SLUG_CHARACTERS_MAX} characters of a-z and 0-9, with "
            "single hyphens between them.",
        )
    return text


OPEN = WriteEndpoint(
    "POST",
    "/api/restaurants",
    scope=ADMIN,
    command=open_restaurant,
    shape=opened_json,
    status=HTTPStatus.CREATED,
    status_of=opened_status,
    also=(HTTPStatus.OK,),
)
CHANGE = WriteEndpoint(
    "PATCH", "/api/restaurants/{slug}", scope=ADMIN, command=change, shape=one_restaurant_json
)

routes: list[Route] = [
    OPEN.route,
    CHANGE.route,
    QueryEndpoint(
        "/api/restaurants", list_restaurants, scope=STAFF | AUDITOR, parameters=RestaurantListing
    ).route,
    QueryEndpoint("/api/restaurants/{slug}", get_restaurant, scope=PUBLIC).route,
    QueryEndpoint("/api/restaurants/{slug}/board", board, scope=PUBLIC).route,
]
