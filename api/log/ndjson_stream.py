"""Streams the log as NDJSON at the pace of the client."""

import asyncio
from collections.abc import Callable
from http import HTTPStatus

import psycopg
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from daybook.api.endpoints.query import NDJSON
from daybook.api.runtime.service import Service
from daybook.eventlog.transfer.ndjson import LogPager, read_page

NEXT_AFTER = "Daybook-Next-After"
HORIZON = "Daybook-Horizon"

# A client that accepts no data for this long counts as disconnected.
SEND_SECONDS_MAX = 30.0


class LineStream(Response):
    """Holds no database connection while it waits for the client."""

    media_type = NDJSON

    def __init__(
        self,
        service: Service,
        walk: LogPager,
        *,
        limit: int,
        horizon: int,
        is_authorised: Callable[[], bool],
    ) -> None:
        """`is_authorised` is checked before each page: the API key may be revoked meanwhile."""
        # A client that reaches its limit continues from its last line instead.
        reached = max(walk.position, walk.upto)
        headers = {HORIZON: str(horizon), NEXT_AFTER: str(reached), "Vary": "Accept"}
        super().__init__(headers=headers)
        del self.headers["content-length"]
        self._service = service
        self._walk = walk
        self._left_count = limit
        self._is_authorised = is_authorised

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": HTTPStatus.OK}
        await send({**start, "headers": self.raw_headers})
        if scope["method"] != "HEAD":
            disconnect = asyncio.create_task(_disconnected(receive))
            try:
                await self._send_pages(send, disconnect)
            except (psycopg.Error, OSError):
                # Closes without the final chunk, so the client notices the truncation.
                return
            finally:
                disconnect.cancel()
        await send({"type": "http.response.body", "body": b""})

    async def _send_pages(self, send: Send, disconnect: "asyncio.Task[None]") -> None:
        while not (self._walk.is_over or self._left_count == 0 or disconnect.done()):
            if not self._is_authorised():
                raise OSError("The API key is no longer valid.")
            if lines := await self._next_lines():
                body = b"\n".join([*lines, b""])
                async with asyncio.timeout(SEND_SECONDS_MAX):
                    await send({"type": "http.response.body", "body": body, "more_body": True})

    async def _next_lines(self) -> list[bytes]:
        lines = await self._service.read(
            lambda reader: read_page(reader, self._walk, self._left_count)
        )
        self._left_count -= len(lines)
        return lines


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
