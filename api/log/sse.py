"""Changes of orders, bots, jobs, queues, restaurants and tickets as they happen, as server-sent
events.

The id of an event is its position in the log and the epoch of the log, so a browser that reconnects
goes on where it was; and from where the log is still the same, if that is earlier. Ids of older
versions are positions alone.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, ClassVar, TypedDict

from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from daybook.api.endpoints.query import QueryEndpoint
from daybook.api.http.problems import unavailable_response
from daybook.api.http.query_parameters import Parameters, read_text
from daybook.api.http.request_reader import bad_request
from daybook.api.keys.access import AUDITOR, STAFF, caller_of, forbidden
from daybook.api.runtime.change_feed import change_json, sse_block
from daybook.domain.patterns import whole
from daybook.eventlog.errors import UnavailableError
from daybook.eventlog.reading.epochs import LogPosition
from daybook.eventlog.reading.subscription import Subscription, SubscriptionEndedError
from daybook.eventlog.reading.tail import Tail, TooManySubscriptionsError

HEARTBEAT_SECONDS = 15.0
# A client that takes nothing for so long is gone, even if its connection is not.
SEND_SECONDS_MAX = 30.0
LAST_EVENT_ID = "Last-Event-ID"
Position = Annotated[
    int,
    Meta(ge=0, le=2**63 - 1, description="Only changes behind this position of the log."),
]
LastEventId = Annotated[
    str,
    Meta(
        pattern=whole(r"(0|[1-9][0-9]{0,18})(-[0-9a-f]{1,16}\.[0-9A-F]{1,8})?"),
        description="The id of the last event that was received: only changes behind it. Ids that "
        "are positions alone are of older versions.",
    ),
]
Pulse = Annotated[
    int,
    Meta(
        ge=1,
        le=int(HEARTBEAT_SECONDS),
        description="Also tell, whenever nothing happened for so many seconds, up to which "
        "position everything has been told: as an event `pulse`.",
    ),
]
# How long a browser waits before it comes back.
COME_BACK_MS = 1000

HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-store",
    # Proxies that gather answers would hold events back.
    "x-accel-buffering": "no",
}

Shut = Callable[[], Coroutine[Any, Any, None]]


class RewoundJSON(TypedDict):
    """The log differs from the one that the client saw at `asked`: its database has failed over or
    was restored. The stream goes on behind `position`; a client drops all later events it kept."""

    position: int
    asked: int


class EventStream(Response):
    """Sends until the client leaves, falls behind, or the service stops."""

    def __init__(
        self,
        tail: Tail,
        after: LogPosition | None,
        *,
        pulse_seconds: int | None = None,
        shut: Shut | None = None,
    ) -> None:
        """`shut`, if there is one, returns when whoever was let in is let in no longer."""
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]
        self._tail = tail
        self._after = after
        self._shut = shut
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
        if self._shut is not None:
            others.append(asyncio.create_task(self._shut()))
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
        # With an id before the first event, a client that leaves until then misses nothing.
        place = self._tail.log_position(subscription.position)
        await _send(send, b"retry: %d\nid: %b\n\n" % (COME_BACK_MS, str(place).encode()))
        if subscription.requested is not None:
            rewound: RewoundJSON = {"position": place.position, "asked": subscription.requested}
            await _send(send, sse_block(place, "rewound", rewound))
        try:
            while True:
                events = await subscription.next(self._pulse_seconds or HEARTBEAT_SECONDS)
                await _send(
                    send, b"".join([event.data for event in events]) or self._pulse(subscription)
                )
        except SubscriptionEndedError as ended:
            await _send(send, b": %b\n\n" % str(ended).encode(), is_last=True)

    def _pulse(self, subscription: Subscription) -> bytes:
        """For one to whom everything was handed out that the tail has read, or who knew more."""
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
    def place(self) -> LogPosition | None:
        return None if self.after is None else LogPosition(self.after)


class Stream(QueryEndpoint):
    media_type: ClassVar[str] = "text/event-stream"
    headers: ClassVar[Mapping[str, Any]] = {LAST_EVENT_ID: LastEventId}
    may_be_unavailable: ClassVar[bool] = True

    def __init__(self, path: str) -> None:
        super().__init__(path, change_json, scope=STAFF | AUDITOR, parameters=Since)
        self.summary = f"All changes, from now on or from behind {LAST_EVENT_ID}."

    async def respond(self, request: Request) -> Response:
        asked = self.read(request)
        if not caller_of(request).bounds.is_none:
            raise forbidden("it is bound, and the stream tells of everything that happens")
        if request.method == "HEAD":
            return Response(headers=HEADERS)
        # The header is what a browser adds when it comes back to an address it was given before.
        last = request.headers.get(LAST_EVENT_ID)
        after = _read_place(last) if last else asked.place
        service, caller = request.app.service, caller_of(request)
        shut = (
            None
            if service.key_cache is None
            else partial(service.key_cache.wait_until_revoked, caller)
        )
        return EventStream(service.tail, after, pulse_seconds=asked.pulse, shut=shut)


def _read_place(text: str) -> LogPosition:
    digits, _, epoch = text.partition("-")
    position: int | None = read_text(digits, Position)
    if position is None or read_text(text, LastEventId) is None:
        raise bad_request("bad_cursor", "The id of the last event is one that this stream gave.")
    return LogPosition(position, epoch or None)


routes: list[Route] = [Stream("/api/stream").route]
