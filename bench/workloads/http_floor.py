"""Lower bound of a create request: parses and validates it and sends the same response, without a
command. Run as a program, it prints its port."""

import asyncio
from http import HTTPStatus
from pathlib import Path

import uvicorn
import uvloop
from msgspec.json import Decoder
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from daybook.api.app import App
from daybook.api.clock import now
from daybook.api.endpoints.command import Submission, WriteEndpoint
from daybook.api.http.problems import JSONAnswer
from daybook.api.keys.access import PUBLIC, declare
from daybook.api.orders.commands import NewOrder, create, order_with_message
from daybook.api.runtime.service import Service
from daybook.api.server.listener import listen
from daybook.api.server.run import uvicorn_config
from daybook.api.settings.settings import Settings
from daybook.domain.orders.commands import CreateOrder
from daybook.domain.orders.order import Order, OrderStatus
from daybook.eventlog.origin import Receipt


async def skip_commit(creation: Submission) -> Receipt:
    command: CreateOrder = creation.command
    origin = creation.context.origin(creation.key, creation.correlation)
    at = now()
    order = Order(
        id=command.order_id,
        version=1,
        number=1,
        kind=command.kind,
        status=OrderStatus.PENDING,
        attempts=0,
        attempts_max=command.attempts_max,
        created_at=at,
        updated_at=at,
    )
    return Receipt(order, origin.command_id, 1)


async def plain(request: Request) -> Response:
    """A plain Starlette endpoint with a small response: the lowest bound."""
    order = _decoder.decode(await request.body())
    return JSONAnswer({"type": order.type, "userId": order.user_id}, status_code=201)


_decoder = Decoder(NewOrder)
PLAIN = declare(Route("/plain", plain, methods=["POST"]), PUBLIC)
FLOOR = WriteEndpoint(
    "POST",
    "/floor",
    scope=PUBLIC,
    command=create,
    shape=order_with_message("Order created successfully"),
    status=HTTPStatus.CREATED,
    submits=skip_commit,
)


def serve() -> None:
    listener = listen("127.0.0.1", 0)
    # The service is never started, because no request reaches it.
    service, settings = Service("", processors=()), Settings(data_dir=Path("unused"), auth="open")
    server = uvicorn.Server(uvicorn_config(App(service, settings, routes=[FLOOR.route, PLAIN])))
    print(listener.getsockname()[1], flush=True)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(server.serve(sockets=[listener]))


if __name__ == "__main__":
    serve()
