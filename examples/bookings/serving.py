"""Applications that answer for as long as a context lasts, several of them in one process."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
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


def listen(port: int = 0) -> socket.socket:
    """Port 0 is any that is free."""
    return socket.create_server((HOST, port))


def url_of(listener: socket.socket) -> str:
    return f"http://{HOST}:{listener.getsockname()[1]}"


@asynccontextmanager
async def answering(apps: Mapping[socket.socket, ASGIApp]) -> AsyncIterator[None]:
    servers = {listener: Server(_config(app)) for listener, app in apps.items()}
    tasks = [asyncio.create_task(server.serve([one])) for one, server in servers.items()]
    try:
        yield
    finally:
        for server in servers.values():
            server.should_exit = True
        await asyncio.gather(*tasks)


def _config(app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        lifespan="off",
        ws="none",
        access_log=False,
        # What is logged, and how, is for the program to say too.
        log_config=None,
        timeout_graceful_shutdown=FINISH_SECONDS_MAX,
    )
