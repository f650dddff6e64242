"""Runs several ASGI applications in one process while a context is open."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from starlette.types import ASGIApp

HOST = "127.0.0.1"
FINISH_SECONDS_MAX = 1


class Server(uvicorn.Server):
    """uvicorn without signal handlers: the program decides when to stop."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(port: int = 0) -> socket.socket:
    """Port 0 chooses a free one."""
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
        # The program configures logging.
        log_config=None,
        timeout_graceful_shutdown=FINISH_SECONDS_MAX,
    )
