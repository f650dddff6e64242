"""Restaurants over HTTP: how each of them runs its line."""

import re
from http import HTTPStatus
from typing import Annotated, TypedDict

import orjson
from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.requests import Request
from starlette.routing import Route

from daybook.api.endpoints.command import Body, CommandEndpoint, RequestContext, stored_problem
from daybook.api.endpoints.query import DatabaseQueryEndpoint
from daybook.api.http.problems import problem_of
from daybook.api.http.query_parameters import NoParameters, Parameters
from daybook.api.http.request_reader import bad_request
from daybook.api.jobs.queries import PageCursor
from daybook.api.keys.access import ADMIN, AUDITOR, PUBLIC, STAFF, caller_of, can_see
from daybook.api.runtime.service import Service
from daybook.api.tickets.responses import BoardJSON, RestaurantJSON, board_json, restaurant_json
from daybook.domain.errors import NotFoundError, Refusal
from daybook.domain.patterns import whole
from daybook.domain.tickets.commands import ChangeRestaurant, OpenedRestaurant, OpenRestaurant
from daybook.domain.tickets.restaurant import Profile, Reset, Restaurant
from daybook.eventlog.origin import StoredResponse
from daybook.projections.page_cursor import BadCursorError, read_cursor, write_cursor
from daybook.projections.tickets.restaurants import one_restaurant, read_restaurants
from daybook.projections.tickets.ticket_list import next_tokens

SLUG_CHARACTERS_MAX = 60
PREFIX_CHARACTERS_MAX = 12
DAY_SECONDS = 24 * 3600
MINUTES_PER_PARTY_USUAL = 10.0
GRACE_SECONDS_USUAL = 300.0
NEXT_MAX = 5
PAGE_USUAL = 100
PAGE_MAX = 1000

SLUG_PATTERN = whole("[a-z0-9]+(-[a-z0-9]+)*")
SLUG = re.compile(SLUG_PATTERN)

# For texts that the log keeps for ever: no control characters, and nothing that could be somebody's
# telephone number.
PLAIN_PATTERN = whole(r"(?!.*[0-9]([ ()./-]{0,2}[0-9]){6})[^\x00-\x1f\x7f]+")

Slug = Annotated[str, Meta(min_length=1, max_length=SLUG_CHARACTERS_MAX, pattern=SLUG_PATTERN)]
# What is seen on a board, so no control characters.
Name = Annotated[str, Meta(min_length=1, max_length=100, pattern=whole(r"[^\x00-\x1f\x7f]+"))]
Prefix = Annotated[
    str, Meta(min_length=1, max_length=PREFIX_CHARACTERS_MAX, pattern=whole("[A-Z0-9]+"))
]
Minutes = Annotated[float, Meta(gt=0, le=24 * 60)]
GraceSeconds = Annotated[float, Meta(ge=1, le=DAY_SECONDS)]
# What it means is checked where it is decided about.
TimeZone = Annotated[str, Meta(min_length=1, max_length=100)]


class NewRestaurant(Body, frozen=True):
    slug: Slug
    name: Name
    token_prefix: Prefix | None = None
    average_minutes_per_party: Minutes = MINUTES_PER_PARTY_USUAL
    reset_policy: Reset = Reset.NEVER
    time_zone: TimeZone = "UTC"
    no_show_grace_seconds: GraceSeconds | None = GRACE_SECONDS_USUAL


class RestaurantChange(Body, frozen=True):
    """What is left out stays as it is."""

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
    limit: Annotated[
        int, Meta(ge=1, le=PAGE_MAX, description="How many restaurants a page has at most.")
    ] = PAGE_USUAL
    cursor: PageCursor | None = None


class RestaurantCursor(Struct, frozen=True):
    """Behind which slug a page begins."""

    restaurant: str


def open_(body: NewRestaurant, _call: RequestContext) -> OpenRestaurant:
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
    """Change how a restaurant runs its line. Tickets that were given stay as they are."""
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


def changed(restaurant: Restaurant) -> RestaurantAnswer:
    return {"restaurant": restaurant_json(restaurant)}


def was_opened(opened: OpenedRestaurant) -> RestaurantAnswer:
    return changed(opened.restaurant)


class OpenEndpoint(CommandEndpoint[NewRestaurant, OpenedRestaurant]):
    """Answers 200 when there was that very restaurant before."""

    also = (HTTPStatus.OK,)

    def render(self, outcome: OpenedRestaurant | Refusal) -> StoredResponse:
        if isinstance(outcome, Refusal):
            return stored_problem(problem_of(outcome))
        status = HTTPStatus.CREATED if outcome.is_new else HTTPStatus.OK
        return StoredResponse(status, orjson.dumps(was_opened(outcome)))


async def list_restaurants(asked: RestaurantListing, request: Request) -> RestaurantPageAnswer:
    """All restaurants, by slug."""
    service: Service = request.app.service
    after, own = _after(asked.cursor), caller_of(request).bounds.restaurant
    if own is not None:
        # Pages are cut from all there are: where one ends would tell of others.
        alone = await service.read(lambda reader: one_restaurant(reader, own))
        shown = [restaurant_json(alone)] if alone is not None and own > after else []
        return {"restaurants": shown, "nextCursor": None}
    found = await service.read(
        lambda reader: read_restaurants(reader, after=after, limit=asked.limit + 1)
    )
    page = found[: asked.limit]
    is_more = len(found) > asked.limit
    return {
        "restaurants": [restaurant_json(one) for one in page],
        "nextCursor": write_cursor(RestaurantCursor(page[-1].slug)) if is_more else None,
    }


async def get_restaurant(_: NoParameters, request: Request) -> RestaurantAnswer:
    """One restaurant."""
    return changed(await read_restaurant(request))


async def board(_: NoParameters, request: Request) -> WaitlistResponse:
    """Who was called last, who is next, and how long it takes: for everybody to see."""
    restaurant = await read_restaurant(request)
    service: Service = request.app.service
    tokens = await service.read(lambda reader: next_tokens(reader, restaurant.id, NEXT_MAX))
    return {"board": board_json(restaurant, tokens)}


async def read_restaurant(request: Request) -> Restaurant:
    service: Service = request.app.service
    slug = read_slug(request.path_params["slug"])
    restaurant = await service.read(lambda reader: one_restaurant(reader, slug))
    if restaurant is None or not can_see(request, restaurant):
        raise NotFoundError("restaurant", slug)
    return restaurant


def slug_of(context: RequestContext) -> str:
    return read_slug(context.scope["path_params"]["slug"])


def read_slug(text: str) -> str:
    if len(text) > SLUG_CHARACTERS_MAX or not SLUG.fullmatch(text):
        raise bad_request(
            "bad_slug",
            f"A restaurant's slug is 1 to {SLUG_CHARACTERS_MAX} of a-z and 0-9, with single "
            "hyphens between them.",
        )
    return text


def _after(cursor: str | None) -> str:
    try:
        return read_cursor(cursor, RestaurantCursor).restaurant if cursor is not None else ""
    except BadCursorError as error:
        raise bad_request("bad_cursor", str(error)) from error


OPEN = OpenEndpoint(
    "POST",
    "/api/restaurants",
    takes=NewRestaurant,
    scope=ADMIN,
    command=open_,
    shape=was_opened,
    status=HTTPStatus.CREATED,
)
CHANGE = CommandEndpoint(
    "PATCH",
    "/api/restaurants/{slug}",
    takes=RestaurantChange,
    scope=ADMIN,
    command=change,
    shape=changed,
)

routes: list[Route] = [
    OPEN.route,
    CHANGE.route,
    DatabaseQueryEndpoint(
        "/api/restaurants", list_restaurants, scope=STAFF | AUDITOR, parameters=RestaurantListing
    ).route,
    DatabaseQueryEndpoint("/api/restaurants/{slug}", get_restaurant, scope=PUBLIC).route,
    DatabaseQueryEndpoint("/api/restaurants/{slug}/board", board, scope=PUBLIC).route,
]
