"""The whole board in one answer, for pages that then follow the stream."""

from typing import TypedDict

from starlette.requests import Request
from starlette.routing import Route

from daybook.api.endpoints.query import DatabaseQueryEndpoint
from daybook.api.http.query_parameters import NoParameters
from daybook.api.http.timestamps import BotJSON, Moment, OrderJSON, bot_json, moment, order_json
from daybook.api.keys.access import AUDITOR, STAFF, can_see
from daybook.api.runtime.service import Service
from daybook.domain.orders.order import OrderStatus
from daybook.projections.orders.board import read_board


class BoardResponse(TypedDict):
    """All of one moment. Of the statuses in `cut` there are more orders than these; everything
    up to `position` that was recorded by then is in it."""

    orders: list[OrderJSON]
    bots: list[BotJSON]
    cut: list[OrderStatus]
    position: int
    serverNow: Moment


async def board(_: NoParameters, request: Request) -> BoardResponse:
    """Orders and bots of one moment: all that wait or are cooked, and the latest complete ones."""
    service: Service = request.app.service
    shown = await service.read(read_board)
    return {
        "orders": [order_json(order) for order in shown.orders if can_see(request, order)],
        "bots": [bot_json(bot) for bot in shown.bots],
        "cut": shown.cut,
        "position": shown.position,
        "serverNow": moment(shown.now),
    }


routes: list[Route] = [DatabaseQueryEndpoint("/api/board", board, scope=STAFF | AUDITOR).route]
