"""Counts and times responses by route, and adds the headers that every response has."""

from collections import Counter
from collections.abc import Awaitable, Sequence
from http import HTTPStatus
from time import perf_counter
from typing import Any

from starlette.types import Message, Scope, Send

from daybook.api.telemetry.request_context import request_id
from daybook.eventlog.writing.histogram import Histogram

SECONDS_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
# One label for all unknown paths, so that clients cannot create metric labels.
NO_ROUTE = "none"
ALWAYS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)
# An int, because every status is compared with it.
PROBLEMS_FROM = int(HTTPStatus.BAD_REQUEST)
ALWAYS_NAMES = frozenset(name for name, _ in ALWAYS)


class RequestMetrics:
    def __init__(self) -> None:
        self.answers: Counter[tuple[str, int]] = Counter()
        self.seconds: dict[str, Histogram] = {}
        self._routes: dict[tuple[str, int], str] = {}

    def observe(self, method: str, endpoint: Any, status: int, seconds: float) -> None:
        route_key = method, id(endpoint)
        route = self._routes.get(route_key)
        if route is None:
            path = getattr(endpoint, "path", None)
            route = self._routes[route_key] = NO_ROUTE if path is None else f"{method} {path}"
            self.seconds.setdefault(route, Histogram(SECONDS_BOUNDS))
        self.answers[route, status] += 1
        self.seconds[route].observe(seconds)


class TimedSend:
    """Wraps `send`: adds the standard headers, and keeps the status and the start time."""

    __slots__ = ("_scope", "_send", "began_at", "status")

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope, self._send = scope, send
        self.began_at = perf_counter()
        self.status = 0

    def __call__(self, message: Message) -> Awaitable[None]:
        if not self.status:
            self.status = message["status"]
            message["headers"] = self._headers(message.get("headers", ()))
        return self._send(message)

    def _headers(self, given: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """Headers that the response sets itself override the standard ones."""
        headers = [*given, *ALWAYS]
        overridden = [name for name, _ in given if name in ALWAYS_NAMES]
        if overridden:
            headers = [*given, *(pair for pair in ALWAYS if pair[0] not in overridden)]
        if self.status >= PROBLEMS_FROM:
            # Finds the log lines of this request.
            headers.append((b"daybook-request-id", request_id(self._scope).encode()))
        return headers

    @property
    def seconds(self) -> float:
        return perf_counter() - self.began_at
