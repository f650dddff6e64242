"""Library mode: the service runs in the caller's process, on the caller's PostgreSQL, without a
server.

`Worker("postgresql://…")` and both clients take the address of a database instead of a service's.
A request then takes the path of HTTP from the endpoint on, so rules, refusals and idempotency keys
are the same. Each process has a committer and waits by LISTEN; one of all processes on the
database, services included, is elected for leases, retries and schedules.
"""

import asyncio
import logging
import random
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlencode
from weakref import WeakKeyDictionary

from daybook.client.request import Request
from daybook.client.responses import Answer
from daybook.client.transport import AsyncRetrying, RetryPolicy
from daybook.errors import BadAddress

# Modules of the service are imported on use, because HTTP clients do not need them.
if TYPE_CHECKING:
    from daybook.api.app import App

T = TypeVar("T")

_log = logging.getLogger("daybook")

# How long a closed client waits for abandoned requests, such as a long poll.
ABANDONED_SECONDS_MAX = 2.0


class InProcessTransport(AsyncRetrying):
    """Starts the service with the first request. Belongs to the event loop of that request."""

    def __init__(self, conninfo: str, policy: RetryPolicy, chance: random.Random) -> None:
        super().__init__(policy, chance)
        self._conninfo = conninfo
        self._service: _SharedService | None = None
        self._abandoned: set[asyncio.Task[None]] = set()

    async def _exchange(self, request: Request[Any], headers: Mapping[str, str]) -> Answer:
        if self._service is None:
            self._service = _services().setdefault(self._conninfo, _SharedService(self._conninfo))
            self._service.users_count += 1
        exchange = _Exchange(request, headers)
        answering = asyncio.create_task(self._answer(await self._service.app(), exchange))
        try:
            await asyncio.shield(answering)
        except asyncio.CancelledError:
            # As if the client had disconnected: a claim that commits all the same is released.
            exchange.disconnected.set()
            self._abandoned.add(answering)
            answering.add_done_callback(self._abandoned.discard)
            raise
        return exchange.answer

    @staticmethod
    async def _answer(app: "App", exchange: "_Exchange") -> None:
        try:
            await app(exchange.scope, exchange.receive, exchange.send)
        except Exception:
            # The response says 500; over HTTP, the server logs the reason.
            _log.exception("%s %s failed", exchange.scope["method"], exchange.scope["path"])

    async def aclose(self) -> None:
        if self._abandoned:
            await asyncio.wait([*self._abandoned], timeout=ABANDONED_SECONDS_MAX)
        service, self._service = self._service, None
        if service is not None:
            service.users_count -= 1
            await service.end_if_unused()


class _SharedService:
    """The service of all clients and workers of one event loop on one database."""

    def __init__(self, conninfo: str) -> None:
        self.users_count = 0
        self._conninfo = conninfo
        self._app: App | None = None
        self._starting = asyncio.Lock()
        self._running = AsyncExitStack()

    async def app(self) -> "App":
        async with self._starting:
            if self._app is None:
                self._app = await self._running.enter_async_context(_started(self._conninfo))
        return self._app

    async def end_if_unused(self) -> None:
        if self.users_count == 0:
            _services().pop(self._conninfo, None)
            await self._running.aclose()


_SERVICES: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _SharedService]] = (
    WeakKeyDictionary()
)


def _services() -> dict[str, _SharedService]:
    """The services of the running event loop, by address."""
    return _SERVICES.setdefault(asyncio.get_running_loop(), {})


@asynccontextmanager
async def _started(conninfo: str) -> AsyncIterator["App"]:
    """The service of this process, and its application."""
    try:
        from daybook.api.app import App
        from daybook.api.runtime.service import Service
        from daybook.api.server.database import check, prepare
        from daybook.api.settings.environment import from_environment
        from daybook.eventlog.errors import SetupError
    except ModuleNotFoundError as error:
        raise BadAddress(
            f"A database as the address needs more packages ({error.name} is missing): "
            "pip install 'daybook-queue[server]'."
        ) from error
    try:
        settings = from_environment({"database_url": conninfo, "auth": "open"})
        await asyncio.to_thread(check, conninfo)
        await asyncio.to_thread(prepare, conninfo)
    except SetupError as error:
        raise BadAddress(str(error)) from error
    async with Service(conninfo) as service:
        yield App(service, settings)


class _Exchange:
    """One request and its response, over ASGI."""

    def __init__(self, request: Request[Any], headers: Mapping[str, str]) -> None:
        self.scope: dict[str, Any] = {
            "type": "http",
            "method": request.method,
            "path": unquote(request.path),
            "raw_path": request.path.encode(),
            "root_path": "",
            "scheme": "http",
            "http_version": "1.1",
            "query_string": urlencode(request.parameters).encode(),
            "headers": [
                (b"host", b"127.0.0.1"),
                *((name.lower().encode(), text.encode()) for name, text in headers.items()),
            ],
            "client": ("127.0.0.1", 0),
            "server": ("127.0.0.1", 0),
        }
        self.disconnected = asyncio.Event()
        self._content = request.content
        self._is_read = False
        self._status = 0
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []

    @property
    def answer(self) -> Answer:
        return Answer(self._status, self._headers, b"".join(self._body))

    async def receive(self) -> dict[str, Any]:
        if self._is_read:
            await self.disconnected.wait()
            return {"type": "http.disconnect"}
        self._is_read = True
        return {"type": "http.request", "body": self._content, "more_body": False}

    async def send(self, message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._headers = {name.decode(): text.decode() for name, text in message["headers"]}
        else:
            self._body.append(message.get("body", b""))


class BlockingInProcessTransport:
    """Runs the transport in an event loop of its own, in a thread."""

    def __init__(self, conninfo: str, policy: RetryPolicy, chance: random.Random) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="daybook", daemon=True)
        self._thread.start()
        self._transport = InProcessTransport(conninfo, policy, chance)

    def send(self, request: Request[T], seconds_max: float | None = None) -> T:
        sending = self._transport.send(request, seconds_max)
        return asyncio.run_coroutine_threadsafe(sending, self._loop).result()

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._transport.aclose(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
