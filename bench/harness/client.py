"""A minimal HTTP client, cheap enough to keep 64 connections busy."""

import asyncio
from typing import Any, cast

import orjson


def request(method: str, path: str, body: Any = None, *, headers: str = "") -> bytes:
    content = b"" if body is None else orjson.dumps(body)
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"{headers}Content-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


class HTTPConnection(asyncio.Protocol):
    """A keep-alive connection with one request at a time."""

    def __init__(self) -> None:
        self._buffer = b""
        self._answered: asyncio.Future[tuple[int, bytes]] | None = None
        self._transport: asyncio.Transport

    @classmethod
    async def open(cls, host: str, port: int) -> "HTTPConnection":
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(cls, host, port)
        return connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, separator, rest = self._buffer.partition(b"\r\n\r\n")
        if not separator:
            return
        # A response without content has no Content-Length.
        _, _, after = head.lower().partition(b"content-length:")
        length = int(after.split(b"\r\n", 1)[0] or 0)
        if len(rest) >= length and self._answered is not None:
            self._buffer = rest[length:]
            self._answered.set_result((int(head[9:12]), rest[:length]))

    def connection_lost(self, error: Exception | None) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(error or ConnectionError("the server closed"))

    async def send(self, method: str, path: str, body: Any = None, *, headers: str = "") -> Any:
        """Returns the decoded response; fails on any status but success."""
        status, answer = await self.ask(method, path, body, headers=headers)
        assert status < 300, (status, answer)
        return answer

    async def ask(
        self, method: str, path: str, body: Any = None, *, headers: str = ""
    ) -> tuple[int, Any]:
        """Returns status and decoded response. `headers` are whole lines, each with CRLF."""
        status, answer = await self.exchange(request(method, path, body, headers=headers))
        return status, orjson.loads(answer) if answer else None

    async def exchange(self, encoded: bytes) -> tuple[int, bytes]:
        """Sends an encoded `request`; returns status and raw response."""
        self._answered = asyncio.get_running_loop().create_future()
        self._transport.write(encoded)
        return await self._answered

    @property
    def is_closed(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._transport.close()
