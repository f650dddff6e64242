"""Outgoing requests of a service under test: to servers on this machine, by a setting."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from daybook.processors.outbound.http import Outbound
from daybook.processors.outbound.ssrf_guard import read_private

THIS_MACHINE = "127.0.0.1, ::1"
NEARBY = Outbound(read_private(THIS_MACHINE))

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(serve: Serve, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A server on this machine; yields its port. At the end open connections are dropped."""
    tasks = set[asyncio.Future[None]]()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.ensure_future(serve(reader, writer)))

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()
