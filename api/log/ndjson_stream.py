"""The log as NDJSON: read as fast as the client takes it."""

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

# A client that takes nothing for so long is gone, even if its connection is not.
SEND_SECONDS_MAX = 30.0


class LineStream(Response):
    """Holds no connection to the database while it waits for the client."""

    media_type = NDJSON

    def __init__(
        self,
        service: Service,
        walk: LogPager,
        *,
        limit: int,
        horizon: int,
        goes_on: Callable[[], bool],
    ) -> None:
        """`goes_on` is asked before every page whether its reader may still read."""
        # Who gets as many as he asked for knows from the last of them where to go on.
        reached = max(walk.position, walk.upto)
        headers = {HORIZON: str(horizon), NEXT_AFTER: str(reached), "Vary": "Accept"}
        super().__init__(headers=headers)
        del self.headers["content-length"]
        self._service = service
        self._walk = walk
        self._left_count = limit
        self._goes_on = goes_on

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": HTTPStatus.OK}
        await send({**start, "headers": self.raw_headers})
        if scope["method"] != "HEAD":
            leaving = asyncio.create_task(_disconnected(receive))
            try:
                await self._send_pages(send, leaving)
            except (psycopg.Error, OSError):
                # The connection just ends, so the client sees that it has not got everything.
                return
            finally:
                leaving.cancel()
        await send({"type": "http.response.body", "body": b""})

    async def _send_pages(self, send: Send, leaving: "asyncio.Task[None]") -> None:
        while not (self._walk.is_over or self._left_count == 0 or leaving.done()):
            if not self._goes_on():
                raise OSError("The key of this reader is good no longer.")
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
