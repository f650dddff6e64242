"""`GET /api/board`: a snapshot of orders and bots for pages that then follow the stream."""

from typing import TypedDict

from starlette.requests import Request
from starlette.routing import Route

from daybook.api.endpoints.query import QueryEndpoint, service_of
from daybook.api.http.query_parameters import NoParameters
from daybook.api.http.timestamps import Moment, moment
from daybook.api.keys.access import AUDITOR, STAFF, can_see
from daybook.api.orders.responses import BotJSON, OrderJSON, bot_json, order_json
from daybook.domain.orders.order import OrderStatus
from daybook.projections.orders.board import read_board


class BoardResponse(TypedDict):
    """A snapshot that includes all events up to `position`. `cut` lists the statuses whose orders
    were truncated."""

    orders: list[OrderJSON]
    bots: list[BotJSON]
    cut: list[OrderStatus]
    position: int
    serverNow: Moment


async def board(_: NoParameters, request: Request) -> BoardResponse:
    """Snapshot of the board: all pending and processing orders, the latest complete ones, bots."""
    snapshot = await service_of(request).read(read_board)
    return {
        "orders": [order_json(order) for order in snapshot.orders if can_see(request, order)],
        "bots": [bot_json(bot) for bot in snapshot.bots],
        "cut": snapshot.cut,
        "position": snapshot.position,
        "serverNow": moment(snapshot.now),
    }


routes: list[Route] = [QueryEndpoint("/api/board", board, scope=STAFF | AUDITOR).route]
