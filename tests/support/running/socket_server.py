"""The application behind a real socket, and a client that sends raw bytes."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import orjson
from msgspec import Struct
from starlette.types import ASGIApp

from daybook.api.app import App
from daybook.api.server.listener import listen
from daybook.api.server.run import Server, uvicorn_config
from tests.support.api_tickets import open_counter_api
from tests.support.asgi_client import Api

PATIENCE_SECONDS = 20.0


class Heard(Struct):
    """A response over a connection, and whether the connection was closed."""

    status: int
    headers: dict[str, str]
    body: bytes
    is_closed: bool
    seconds: float

    @property
    def kind(self) -> str | None:
        """The type of a problem, without the common prefix."""
        if self.headers.get("content-type") != "application/problem+json":
            return None
        return str(orjson.loads(self.body)["type"]).removeprefix("urn:daybook:problem:")


class Live:
    def __init__(self, api: Api, port: int) -> None:
        self.api = api
        self.port = port

    async def connect(
        self, address: str = "127.0.0.1"
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, local_addr=(address, 0))

    async def exchange(self, sent: bytes, *, patience: float = PATIENCE_SECONDS) -> Heard:
        """Sends it over a connection of its own, and hears the first answer."""
        reader, writer = await self.connect()
        began = time.monotonic()
        sending = asyncio.create_task(_send(writer, sent))
        try:
            async with asyncio.timeout(patience):
                return await hear(reader, began)
        finally:
            sending.cancel()
            with suppress(asyncio.CancelledError):
                await sending
            writer.close()


async def _send(writer: asyncio.StreamWriter, sent: bytes) -> None:
    # A refused client may be closed before it has sent everything.
    with suppress(OSError):
        writer.write(sent)
        await writer.drain()


async def hear(reader: asyncio.StreamReader, began: float) -> Heard:
    """Status 0 if the connection was closed without a response."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return Heard(0, {}, b"", True, time.monotonic() - began)
    headers = {
        name.lower(): value.strip()
        for name, _, value in (line.partition(":") for line in head[1:] if line)
    }
    length = int(headers.get("content-length", 0))
    body = await reader.readexactly(length)
    seconds = time.monotonic() - began
    is_closed = headers.get("connection") == "close" or await _ends(reader)
    return Heard(int(head[0].split()[1]), headers, body, is_closed, seconds)


async def _ends(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(0.05):
            return not await reader.read(1)
    except TimeoutError:
        return False
    except ConnectionError:
        return True


@asynccontextmanager
async def open_live(
    conninfo: str, *, entrance: Callable[[ASGIApp], ASGIApp] | None = None, **settings: Any
) -> AsyncIterator[Live]:
    """`entrance`, if there is one, wraps the application and sees every request first."""
    with listen("127.0.0.1", 0) as listener:
        async with (
            open_counter_api(conninfo, **settings) as api,
            listening(api, listener, entrance=entrance),
        ):
            yield Live(api, listener.getsockname()[1])


@asynccontextmanager
async def listening(
    api: Api, listener: Any, *, entrance: Callable[[ASGIApp], ASGIApp] | None = None
) -> AsyncIterator[None]:
    started = asyncio.Event()
    assert isinstance(api.app, App)
    first = None if entrance is None else entrance(api.app)
    server = Server(uvicorn_config(api.app, first), started.set)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    await started.wait()
    try:
        yield
    finally:
        server.stop()
        server.stop()
        await task


def request(
    method: str,
    target: str,
    headers: Sequence[tuple[str, str]] = (),
    body: bytes | None = None,
) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "Host: localhost"]
    lines += [f"{name}: {value}" for name, value in headers]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")
