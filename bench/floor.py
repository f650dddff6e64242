"""An endpoint that only parses and answers, on the server and the framework of the service: no
service can be faster than this. Run as a program, it prints the port it listens on."""

import asyncio

import uvicorn
import uvloop
from msgspec import Struct
from msgspec.json import Decoder
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from api.listening import listen
from api.problems import JSONAnswer
from api.serving import uvicorn_config


class NewOrder(Struct):
    type: str
    userId: str | None = None  # noqa: N815 (as it is spelt on the wire)


_decoder = Decoder(NewOrder)


async def answer(request: Request) -> Response:
    order = _decoder.decode(await request.body())
    return JSONAnswer({"order": {"type": order.type, "userId": order.userId}}, status_code=201)


def serve() -> None:
    listener = listen("127.0.0.1", 0)
    app = Starlette(routes=[Route("/floor", answer, methods=["POST"])])
    print(listener.getsockname()[1], flush=True)
    server = uvicorn.Server(uvicorn_config(app))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(server.serve(sockets=[listener]))


if __name__ == "__main__":
    serve()
