"""Queries on orders and bots, read from the live tables."""

from typing import Annotated, NotRequired, TypedDict

from msgspec import Meta
from starlette.requests import Request
from starlette.routing import Route

from daybook.api.clock import now
from daybook.api.endpoints.as_of import AsOf, ThenJSON, read_then, refuse_cursor, then_json
from daybook.api.endpoints.paging import PageCursor, refusing_bad_cursors
from daybook.api.endpoints.query import QueryEndpoint, service_of
from daybook.api.http.query_parameters import NoParameters, Parameters
from daybook.api.http.request_reader import read_id
from daybook.api.http.timestamps import Moment, moment
from daybook.api.keys.access import AUDITOR, BOT, CLIENT, STAFF, caller_of, can_see
from daybook.api.orders.responses import BotJSON, OrderJSON, bot_json, order_json
from daybook.domain.errors import NotFoundError
from daybook.domain.orders.order import OrderStatus
from daybook.projections.by_id import one_bot, one_order
from daybook.projections.orders.bots import all_bots
from daybook.projections.orders.order_list import read_orders
from daybook.projections.time_travel.lists import bots_as_of, orders_as_of

PAGE_DEFAULT = 500
PAGE_MAX = 5000


class OrderPageAnswer(TypedDict):
    orders: list[OrderJSON]
    nextCursor: str | None
    serverNow: Moment
    asOf: NotRequired[ThenJSON]


class OneOrderAnswer(TypedDict):
    order: OrderJSON


class AllBotsAnswer(TypedDict):
    bots: list[BotJSON]
    asOf: NotRequired[ThenJSON]


class OneBotAnswer(TypedDict):
    bot: BotJSON


class OrderListing(Parameters, frozen=True):
    status: Annotated[OrderStatus, Meta(description="Only orders of this status.")] | None = None
    limit: Annotated[int, Meta(ge=1, le=PAGE_MAX, description="Orders per page at most.")] = (
        PAGE_DEFAULT
    )
    cursor: PageCursor | None = None
    as_of: AsOf | None = None


class BotListing(Parameters, frozen=True):
    as_of: AsOf | None = None


async def list_orders(query: OrderListing, request: Request) -> OrderPageAnswer:
    """Orders in board order: pending, processing, complete, dead."""
    if query.as_of is not None:
        return await _past_orders(query, query.as_of, request)
    with refusing_bad_cursors():
        page = await service_of(request).read(
            lambda reader: read_orders(
                reader,
                only=query.status,
                limit=query.limit,
                cursor=query.cursor,
                owner=_owner(request),
            )
        )
    return {
        "orders": [order_json(order) for order in page.orders],
        "nextCursor": page.next_cursor,
        "serverNow": moment(page.now),
    }


async def _past_orders(query: OrderListing, then: str, request: Request) -> OrderPageAnswer:
    """A single page: as-of lists have no cursor. Of complete orders, the latest."""
    refuse_cursor(query.cursor)
    moment_then, orders = await read_then(
        request,
        then,
        lambda reader, position: orders_as_of(
            reader, position, only=query.status, limit=query.limit, owner=_owner(request)
        ),
    )
    return {
        "orders": [order_json(order) for order in orders],
        "nextCursor": None,
        "serverNow": moment(moment_then.at) if moment_then.at else moment(now()),
        "asOf": then_json(moment_then),
    }


async def get_order(_: NoParameters, request: Request) -> OneOrderAnswer:
    """One order, including complete and deleted ones."""
    order_id = read_id(request.path_params["id"])
    order = await service_of(request).read(lambda reader: one_order(reader, order_id))
    if order is None or not can_see(request, order):
        raise NotFoundError("order", order_id)
    return {"order": order_json(order)}


async def list_bots(query: BotListing, request: Request) -> AllBotsAnswer:
    """All bots except deleted ones, newest first."""
    if query.as_of is not None:
        then, bots = await read_then(request, query.as_of, bots_as_of)
        return {"bots": [bot_json(bot) for bot in bots], "asOf": then_json(then)}
    return {"bots": [bot_json(bot) for bot in await service_of(request).read(all_bots)]}


async def get_bot(_: NoParameters, request: Request) -> OneBotAnswer:
    """One bot, including deleted ones."""
    bot_id = read_id(request.path_params["id"])
    bot = await service_of(request).read(lambda reader: one_bot(reader, bot_id))
    if bot is None or not can_see(request, bot):
        raise NotFoundError("bot", bot_id)
    return {"bot": bot_json(bot)}


def _owner(request: Request) -> str | None:
    """The owner to filter by, or None for a caller that may see all orders."""
    caller = caller_of(request)
    if caller.bounds.owners is None:
        return None
    assert caller.owner is not None, "a caller restricted to own orders has an owner"
    return caller.owner


endpoints = (
    QueryEndpoint(
        "/api/orders", list_orders, scope=CLIENT | STAFF | AUDITOR, parameters=OrderListing
    ),
    QueryEndpoint("/api/orders/{id}", get_order, scope=CLIENT | BOT | STAFF | AUDITOR),
    QueryEndpoint("/api/bots", list_bots, scope=STAFF | AUDITOR, parameters=BotListing),
    QueryEndpoint("/api/bots/{id}", get_bot, scope=BOT | STAFF | AUDITOR),
)

routes: list[Route] = [endpoint.route for endpoint in endpoints]
