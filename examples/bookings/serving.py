"""Applications that listen for as long as a context lasts, several of them in one process."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from starlette.types import ASGIApp

HOST = "127.0.0.1"
FINISH_SECONDS_MAX = 1


class Server(uvicorn.Server):
    """uvicorn without signals of its own: when to stop is for the program to say."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def listening(app: ASGIApp, port: int = 0) -> AsyncIterator[str]:
    """Gives the address; port 0 is any that is free."""
    config = uvicorn.Config(
        app,
        lifespan="off",
        ws="none",
        access_log=False,
        log_config=None,
        timeout_graceful_shutdown=FINISH_SECONDS_MAX,
    )
    server = Server(config)
    with socket.create_server((HOST, port)) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield f"http://{HOST}:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving
