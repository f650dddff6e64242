"""Base class of stand-ins: records requests, honours idempotency keys, and fails on demand.

Over HTTP each has two more paths: `POST /failures` with `{"next": 2, "how": "500"}`, and
`GET /received`.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any

from msgspec import Meta, Struct, ValidationError, convert
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

KEY_TAKEN = {"error": "The key was used for another request."}

Answer = tuple[int, Any]
Action = Callable[["Received"], Answer]


class How(StrEnum):
    """Kind of failure."""

    ERROR = "500"
    BUSY = "429"
    """With Retry-After."""

    REFUSED = "400"
    TIMEOUT = "timeout"
    """No effect and no response."""

    LOST = "lost"
    """The effect happens, but the connection is cut before the response."""


class Failure(Struct):
    next: Annotated[int, Meta(ge=1, le=1000)]
    """Number of requests that fail."""

    how: How
    path: str = ""
    """Prefix of the paths that fail."""

    retry_after_seconds: int = 1


class Received(Struct, frozen=True, kw_only=True):
    method: str
    path: str
    key: str | None
    correlation: str | None
    parameters: dict[str, str]
    body: Any


class Refusal(Exception):
    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.answer: Answer = (status, {"error": reason})


class Cut(Response):
    """An incomplete response, after which the connection is closed."""

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        headers = [(b"content-length", b"1")]
        await send({"type": "http.response.start", "status": self.status_code, "headers": headers})


class StandIn:
    def __init__(self) -> None:
        self.received: list[Received] = []
        self.failures: list[Failure] = []
        self._answers: dict[str, tuple[Received, Answer]] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    @property
    def routes(self) -> list[Route]:
        return [
            *self.services(),
            Route("/failures", self._fail_next, methods=["POST"]),
            Route("/received", self._list_received),
        ]

    def services(self) -> list[Route]:
        """Returns the routes of the replaced service."""
        raise NotImplementedError

    def fail_next(self, count: int, how: How, **more: Any) -> None:
        self.failures.append(Failure(next=count, how=how, **more))

    def serves(self, method: str, path: str, action: Action) -> Route:
        async def endpoint(request: Request) -> Response:
            return await self._answer(request, action)

        return Route(f"/{path}", endpoint, methods=[method])

    async def _answer(self, request: Request, action: Action) -> Response:
        received = await _received(request)
        self.received.append(received)
        failure = self._next_failure(received.path)
        if failure is not None and failure.how is not How.LOST:
            return await _failed(request, failure)
        status, body = await self._do_once(received, action)
        if failure is not None:
            return await _failed(request, failure)
        if isinstance(body, bytes):
            return Response(body, status, media_type="application/pdf")
        return JSONResponse(body, status)

    def _next_failure(self, path: str) -> Failure | None:
        for failure in self.failures:
            if path.startswith(failure.path):
                failure.next -= 1
                if failure.next == 0:
                    self.failures.remove(failure)
                return failure
        return None

    async def _do_once(self, received: Received, action: Action) -> Answer:
        """Idempotency: the same request gets the same response, another one under a known key is
        refused, and concurrent ones wait for each other."""
        if received.key is None:
            return _done(received, action)
        async with self._locks[received.key]:
            if received.key in self._answers:
                first, answer = self._answers[received.key]
                return answer if received == first else (409, KEY_TAKEN)
            answer = _done(received, action)
            if answer[0] < 400:
                self._answers[received.key] = received, answer
            return answer

    async def _fail_next(self, request: Request) -> Response:
        try:
            failure = convert(await request.json(), Failure)
        except (ValueError, ValidationError) as error:
            return JSONResponse({"error": str(error)}, 400)
        self.failures.append(failure)
        return JSONResponse({"next": failure.next, "how": failure.how})

    async def _list_received(self, _request: Request) -> Response:
        return JSONResponse({"received": [_received_json(one) for one in self.received]})


def _done(received: Received, action: Action) -> Answer:
    try:
        return action(received)
    except Refusal as refusal:
        return refusal.answer


async def _received(request: Request) -> Received:
    return Received(
        method=request.method,
        path="/".join(request.url.path.strip("/").split("/")[1:]),
        key=request.headers.get("Idempotency-Key"),
        correlation=request.headers.get("X-Correlation-Id"),
        parameters={**request.query_params, **request.path_params},
        body=await request.json() if request.method != "GET" else None,
    )


async def _failed(request: Request, failure: Failure) -> Response:
    if failure.how is How.LOST:
        return Cut()
    if failure.how is How.TIMEOUT:
        await _wait_for_disconnect(request)
        return Cut()
    headers = {}
    if failure.how is How.BUSY:
        headers["Retry-After"] = str(failure.retry_after_seconds)
    return JSONResponse({"error": "On demand."}, int(failure.how), headers)


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _received_json(received: Received) -> dict[str, Any]:
    return {name: getattr(received, name) for name in Received.__struct_fields__}
