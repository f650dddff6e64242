"""`GET /api/stream`: changes as server-sent events.

An event's id is its log position and the epoch of the log, so a browser resumes where it was; after
a failover it resumes from the last position both logs share. Older ids are positions alone.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, TypedDict

from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from daybook.api.endpoints.query import QueryEndpoint, service_of
from daybook.api.http.problems import unavailable_response
from daybook.api.http.query_parameters import Parameters, read_text
from daybook.api.http.request_reader import bad_request
from daybook.api.keys.access import AUDITOR, STAFF, caller_of, forbidden
from daybook.api.runtime.change_feed import ChangeJSON, sse_block
from daybook.domain.patterns import whole
from daybook.eventlog.errors import UnavailableError
from daybook.eventlog.reading.epochs import LogPosition
from daybook.eventlog.reading.subscription import Subscription, SubscriptionEndedError
from daybook.eventlog.reading.tail import Tail, TooManySubscriptionsError

HEARTBEAT_SECONDS = 15.0
# A client that accepts no data for this long counts as disconnected.
SEND_SECONDS_MAX = 30.0
LAST_EVENT_ID = "Last-Event-ID"
Position = Annotated[
    int,
    Meta(ge=0, le=2**63 - 1, description="Only changes after this log position."),
]
LastEventId = Annotated[
    str,
    Meta(
        pattern=whole(r"(0|[1-9][0-9]{0,18})(-[0-9a-f]{1,16}\.[0-9A-F]{1,8})?"),
        description="The id of the last received event: only changes after it.",
    ),
]
Pulse = Annotated[
    int,
    Meta(
        ge=1,
        le=int(HEARTBEAT_SECONDS),
        description="After this many seconds without changes, send an event `pulse` with the "
        "position up to which all changes were sent.",
    ),
]
# Reconnection delay of browsers.
RECONNECT_MS = 1000

HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-store",
    # Keeps proxies from buffering events.
    "x-accel-buffering": "no",
}

WaitUntilRevoked = Callable[[], Coroutine[Any, Any, None]]


class RewoundJSON(TypedDict):
    """The log changed since the client read `asked`: the database failed over or was restored. The
    stream resumes after `position`; the client must drop all later events."""

    position: int
    asked: int


class EventStream(Response):
    """Sends until the client disconnects, falls behind, or the service stops."""

    def __init__(
        self,
        tail: Tail,
        after: LogPosition | None,
        *,
        pulse_seconds: int | None = None,
        wait_until_revoked: WaitUntilRevoked | None = None,
    ) -> None:
        """The stream ends when `wait_until_revoked` returns: the API key is no longer valid."""
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]
        self._tail = tail
        self._after = after
        self._wait_until_revoked = wait_until_revoked
        self._pulse_seconds = pulse_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with self._tail.subscription(self._after) as subscription:
                await self._serve(subscription, receive, send)
        except (UnavailableError, TooManySubscriptionsError) as error:
            await unavailable_response(str(error))(scope, receive, send)

    async def _serve(self, subscription: Subscription, receive: Receive, send: Send) -> None:
        sending = asyncio.create_task(self._send_all(subscription, send))
        others = [asyncio.create_task(_disconnected(receive))]
        if self._wait_until_revoked is not None:
            others.append(asyncio.create_task(self._wait_until_revoked()))
        try:
            await asyncio.wait({sending, *others}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            is_sent = sending.done()
            for task in (sending, *others):
                task.cancel()
            await asyncio.gather(sending, *others, return_exceptions=True)
        if is_sent:
            with suppress(TimeoutError):
                sending.result()

    async def _send_all(self, subscription: Subscription, send: Send) -> None:
        start = {"type": "http.response.start", "status": HTTPStatus.OK}
        await send({**start, "headers": self.raw_headers})
        # An id before the first event lets a client that disconnects before it resume here.
        start_at = self._tail.log_position(subscription.position)
        await _send(send, b"retry: %d\nid: %b\n\n" % (RECONNECT_MS, str(start_at).encode()))
        if subscription.requested is not None:
            rewound: RewoundJSON = {"position": start_at.position, "asked": subscription.requested}
            await _send(send, sse_block(start_at, "rewound", rewound))
        try:
            while True:
                events = await subscription.next(self._pulse_seconds or HEARTBEAT_SECONDS)
                await _send(
                    send, b"".join([event.data for event in events]) or self._pulse(subscription)
                )
        except SubscriptionEndedError as ended:
            await _send(send, b": %b\n\n" % str(ended).encode(), is_last=True)

    def _pulse(self, subscription: Subscription) -> bytes:
        """All events that the tail has read were sent."""
        if self._pulse_seconds is None:
            return b":\n\n"
        position = max(self._tail.position, subscription.position)
        return sse_block(self._tail.log_position(position), "pulse", {"position": position})


async def _send(send: Send, body: bytes, *, is_last: bool = False) -> None:
    async with asyncio.timeout(SEND_SECONDS_MAX):
        await send({"type": "http.response.body", "body": body, "more_body": not is_last})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class Since(Parameters, frozen=True):
    after: Position | None = None
    pulse: Pulse | None = None

    @property
    def log_position(self) -> LogPosition | None:
        return None if self.after is None else LogPosition(self.after)


async def stream(query: Since, request: Request) -> ChangeJSON | Response:
    """All changes from now on, or after Last-Event-ID."""
    if not caller_of(request).bounds.is_unrestricted:
        raise forbidden("it is restricted, and the stream contains all changes")
    if request.method == "HEAD":
        return Response(headers=HEADERS)
    # Reconnecting browsers add the header to the original URL, so it overrides `after`.
    last = request.headers.get(LAST_EVENT_ID)
    after = _read_event_id(last) if last else query.log_position
    service = service_of(request)
    keys = service.key_cache
    wait = None if keys is None else partial(keys.wait_until_revoked, caller_of(request))
    return EventStream(service.tail, after, pulse_seconds=query.pulse, wait_until_revoked=wait)


def _read_event_id(text: str) -> LogPosition:
    digits, _, epoch = text.partition("-")
    position: int | None = read_text(digits, Position)
    if position is None or read_text(text, LastEventId) is None:
        raise bad_request("bad_cursor", "The last event id must be one that this stream sent.")
    return LogPosition(position, epoch or None)


STREAM = QueryEndpoint(
    "/api/stream",
    stream,
    scope=STAFF | AUDITOR,
    parameters=Since,
    headers={LAST_EVENT_ID: LastEventId},
    media_type="text/event-stream",
)

routes: list[Route] = [STREAM.route]
