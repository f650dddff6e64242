"""A small proxy between the service and PostgreSQL that cuts the connection where a test says.

It stands on a TCP port of its own and forwards to the server's socket, TCP or Unix. Armed, it
acts on the first request that carries events, which is the one with COMMIT behind it.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from enum import Enum, auto

from psycopg.conninfo import conninfo_to_dict, make_conninfo

MARKS = (b"order.", b"bot.")
SYNC = b"S\x00\x00\x00\x04"
READY = b"Z\x00\x00\x00\x05I"


class Cut(Enum):
    BEFORE_REQUEST = auto()
    """The request never reaches the server."""

    AFTER_REQUEST = auto()
    """The server gets all of it; its answer is lost."""

    WITHOUT_COMMIT = auto()
    """The server gets the appended events but not the COMMIT; it is left waiting."""

    HANG = auto()
    """The server gets all of it; the answer never arrives, and the connection stays open."""


class Proxy:
    def __init__(self, upstream: str) -> None:
        self._upstream = conninfo_to_dict(upstream)
        self._server: asyncio.Server
        self._links: set[asyncio.StreamWriter] = set()
        self.cut: Cut | None = None
        self.refusing = False
        self.delay_seconds = 0.0
        """Delay of every request: a slow server."""

        self.cuts_count = 0

    @property
    def conninfo(self) -> str:
        port = self._server.sockets[0].getsockname()[1]
        given = {key: value for key, value in self._upstream.items() if value is not None}
        return make_conninfo("", **{**given, "host": "127.0.0.1", "port": port})

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)

    def drop_all(self) -> None:
        """Cuts every connection there is; new ones are let through."""
        for link in self._links:
            link.close()
        self._links.clear()

    async def stop(self) -> None:
        self._server.close()
        self.drop_all()
        await asyncio.sleep(0)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = str(self._upstream["host"]), self._upstream.get("port") or 5432
        if host.startswith("/"):
            return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        return await asyncio.open_connection(host, int(str(port)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            writer.close()
            return
        server_reader, server_writer = await self._connect()
        self._links |= {writer, server_writer}
        answers = asyncio.create_task(_pump(server_reader, writer))
        with suppress(OSError):
            while chunk := await reader.read(1 << 20):
                if self.cut is not None and any(mark in chunk for mark in MARKS):
                    answers.cancel()
                    await asyncio.gather(answers, return_exceptions=True)
                    while not chunk.endswith(SYNC):
                        chunk += await reader.read(1 << 20)
                    await self._act(chunk, writer, server_reader, server_writer)
                    return
                if self.delay_seconds:
                    await asyncio.sleep(self.delay_seconds)
                server_writer.write(chunk)
                await server_writer.drain()
        answers.cancel()
        server_writer.close()

    async def _act(
        self,
        chunk: bytes,
        client: asyncio.StreamWriter,
        answers: asyncio.StreamReader,
        server: asyncio.StreamWriter,
    ) -> None:
        cut, self.cut = self.cut, None
        self.cuts_count += 1
        if cut is Cut.WITHOUT_COMMIT:
            server.write(_without_last_statement(chunk))
        elif cut is not Cut.BEFORE_REQUEST:
            server.write(chunk)
        await server.drain()
        if cut is Cut.HANG:
            return
        if cut is Cut.AFTER_REQUEST:
            # A server that cannot send its results gives up before it comes to the COMMIT.
            await answers.readuntil(READY)
        client.close()
        if cut is not Cut.WITHOUT_COMMIT:
            server.close()


def _without_last_statement(chunk: bytes) -> bytes:
    """Ends the request with the append: COMMIT is the last Bind (and all that follows it)."""
    messages: list[bytes] = []
    while chunk:
        length = 1 + int.from_bytes(chunk[1:5], "big")
        messages.append(chunk[:length])
        chunk = chunk[length:]
    binds = [index for index, message in enumerate(messages) if message[:1] == b"B"]
    commit = binds[-1]
    if messages[commit - 1][:1] == b"P":
        commit -= 1
    # A Flush makes the server execute the statements so far; a Sync would end the transaction.
    return b"".join(messages[:commit]) + b"H\x00\x00\x00\x04"


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(1 << 20):
            writer.write(chunk)
            await writer.drain()
        writer.close()


@asynccontextmanager
async def proxy_to(upstream: str) -> AsyncIterator[Proxy]:
    proxy = Proxy(upstream)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.stop()
