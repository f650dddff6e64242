"""Reading orders and bots: nothing here writes, and every answer is current."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from http import HTTPStatus
from typing import TypedDict, TypeVar

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from api.problems import RETRY_AFTER, JSONAnswer, Problem
from api.requests import bad_request, read_id, read_parameters
from api.service import Service
from api.shapes import BotJSON, Moment, OrderJSON, bot_json, moment, order_json
from domain.errors import NotFoundError
from domain.order import OrderStatus
from projections.current import all_bots, one_bot, one_order
from projections.order_list import ListBehindError, read_orders
from projections.order_place import BadCursorError

PAGE_USUAL = 500
PAGE_MAX = 5000
# A database that is away is noticed by the pool, after less than a second. This is for one that
# is there and does not answer.
READ_SECONDS_MAX = 2.0

AWAY = "The database cannot be read at the moment: ask again."

T = TypeVar("T")
Reader = AsyncConnection[TupleRow]
Answering = Callable[[Request], Awaitable[Response]]


class OrdersAnswer(TypedDict):
    orders: list[OrderJSON]
    nextCursor: str | None
    serverNow: Moment


class OrderAnswer(TypedDict):
    order: OrderJSON


class BotsAnswer(TypedDict):
    bots: list[BotJSON]


class BotAnswer(TypedDict):
    bot: BotJSON


def reading(endpoint: Answering) -> Answering:
    """An endpoint that says so when the database cannot be read."""

    @wraps(endpoint)
    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except ListBehindError as error:
            return _unavailable(str(error))
        except (psycopg.OperationalError, OSError):
            return _unavailable(AWAY)

    return answer


@reading
async def list_orders(request: Request) -> Response:
    """Orders in the order of the board: waiting, being cooked, complete, dead."""
    given = read_parameters(request.scope["query_string"], ("status", "limit", "cursor"))
    only, limit = _read_status(given.get("status")), _read_limit(given.get("limit"))
    cursor = given.get("cursor")
    try:
        page = await _read(
            request, lambda reader: read_orders(reader, only=only, limit=limit, cursor=cursor)
        )
    except BadCursorError as error:
        raise bad_request("bad_cursor", str(error)) from error
    answer: OrdersAnswer = {
        "orders": [order_json(order) for order in page.orders],
        "nextCursor": page.next_cursor,
        "serverNow": moment(page.now),
    }
    return JSONAnswer(answer)


@reading
async def get_order(request: Request) -> Response:
    """One order, also when it is complete or deleted."""
    read_parameters(request.scope["query_string"])
    order_id = read_id(request.path_params["id"])
    order = await _read(request, lambda reader: one_order(reader, order_id))
    if order is None:
        raise NotFoundError("order", order_id)
    answer: OrderAnswer = {"order": order_json(order)}
    return JSONAnswer(answer)


@reading
async def list_bots(request: Request) -> Response:
    """All bots that are not deleted, newest first."""
    read_parameters(request.scope["query_string"])
    answer: BotsAnswer = {"bots": [bot_json(bot) for bot in await _read(request, all_bots)]}
    return JSONAnswer(answer)


@reading
async def get_bot(request: Request) -> Response:
    """One bot, also when it is deleted."""
    read_parameters(request.scope["query_string"])
    bot_id = read_id(request.path_params["id"])
    bot = await _read(request, lambda reader: one_bot(reader, bot_id))
    if bot is None:
        raise NotFoundError("bot", bot_id)
    answer: BotAnswer = {"bot": bot_json(bot)}
    return JSONAnswer(answer)


async def _read(request: Request, query: Callable[[Reader], Awaitable[T]]) -> T:
    service: Service = request.app.service

    async def ask() -> T:
        async with service.readers.connection() as reader:
            return await query(reader)

    # Not cancelled when it takes too long: psycopg would wait for the server's consent, and a
    # server that hangs gives none. It keeps its connection, of which there are only a few.
    asking = asyncio.create_task(ask())
    await asyncio.wait({asking}, timeout=READ_SECONDS_MAX)
    if not asking.done():
        asking.add_done_callback(_forget)
        raise TimeoutError
    return asking.result()


def _forget(asking: "asyncio.Task[T]") -> None:
    if not asking.cancelled():
        asking.exception()


def _unavailable(sentence: str) -> Problem:
    return Problem(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", sentence, headers=RETRY_AFTER)


def _read_status(text: str | None) -> OrderStatus | None:
    if text is None:
        return None
    if text not in OrderStatus.__members__:
        known = ", ".join(OrderStatus)
        raise bad_request("bad_parameter", f"The parameter status must be one of {known}.")
    return OrderStatus(text)


def _read_limit(text: str | None) -> int:
    if text is None:
        return PAGE_USUAL
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(PAGE_MAX))
    if not is_number or not 1 <= int(text) <= PAGE_MAX:
        raise bad_request(
            "bad_parameter", f"The parameter limit must be a number from 1 to {PAGE_MAX}."
        )
    return int(text)


routes = [
    Route("/api/orders", list_orders, methods=["GET"]),
    Route("/api/orders/{id}", get_order, methods=["GET"]),
    Route("/api/bots", list_bots, methods=["GET"]),
    Route("/api/bots/{id}", get_bot, methods=["GET"]),
]
