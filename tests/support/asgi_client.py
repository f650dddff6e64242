"""Asks the application over ASGI, with no network in between."""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.types import Message

from daybook.api.app import App
from daybook.api.runtime.guest_master_key import ServiceKey
from daybook.api.runtime.service import Service
from daybook.api.settings.settings import Settings

JSON = {"Content-Type": "application/json"}
GUEST_KEY = ServiceKey.of(b"a key that no restaurant may use")


class Answer:
    """A response of the application."""

    def __init__(self, messages: list[Message]) -> None:
        self.status = HTTPStatus(messages[0]["status"])
        self.headers = {name.decode(): value.decode() for name, value in messages[0]["headers"]}
        self.body = b"".join(part.get("body", b"") for part in messages[1:])

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)

    @property
    def problem(self) -> tuple[int, str]:
        """Status and kind of the problem, after a look at its shape."""
        body = self.json
        assert self.headers["content-type"] == "application/problem+json", body
        assert body["type"] == "urn:daybook:problem:" + body["code"].replace("_", "-")
        assert body["error"] == body["detail"]
        assert body["status"] == self.status
        return int(self.status), body["type"].rpartition(":")[2]


class Api:
    def __init__(self, app: Starlette, service: Service | None = None) -> None:
        self.app = app
        self._service = service

    @property
    def service(self) -> Service:
        assert self._service is not None
        return self._service

    async def get(self, path: str) -> Answer:
        return await self.send("GET", path)

    async def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        return await self.ask("POST", path, body, **headers)

    async def patch(self, path: str, body: Any = None, **headers: str) -> Answer:
        return await self.ask("PATCH", path, body, **headers)

    async def delete(self, path: str, **headers: str) -> Answer:
        return await self.ask("DELETE", path, **headers)

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Headers are written as Python names: idempotency_key for Idempotency-Key."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is None:
            return await self.send(method, path, headers=named)
        return await self.send(method, path, [orjson.dumps(body)], {**JSON, **named})

    async def send(
        self,
        method: str,
        path: str,
        parts: Iterable[bytes] = (),
        headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    ) -> Answer:
        """As raw as it gets: the body in parts, and a header as often as one likes."""
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in pairs],
            "server": ("127.0.0.1", 8000),
            "scheme": "http",
        }
        sent: list[Message] = []
        left = iter(parts)

        async def receive() -> Message:
            part = next(left, b"")
            return {"type": "http.request", "body": part, "more_body": bool(part)}

        async def send(message: Message) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        return Answer(sent)

    async def order(self, kind: str = "NORMAL") -> dict[str, Any]:
        return await self._made("/api/orders", {"type": kind}, "order")

    async def bot(self, **body: Any) -> dict[str, Any]:
        return await self._made("/api/bots", body, "bot")

    async def cooking(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """An order, and the bot that has claimed it."""
        await self.order()
        bot = await self.bot()
        claimed = await self.post(f"/api/bots/{bot['id']}/claim")
        assert claimed.status == 200
        return claimed.json["order"], claimed.json["bot"]

    async def _made(self, path: str, body: Any, name: str) -> dict[str, Any]:
        answer = await self.post(path, body)
        assert answer.status == 201, answer.body
        made: dict[str, Any] = answer.json[name]
        return made


def some_settings(**values: Any) -> Settings:
    """API keys are off, unless a test sets them."""
    return Settings(**{"data_dir": Path("unused"), "auth": "open", **values})


def api_of(service: Service) -> Api:
    return Api(App(service, some_settings()), service)


@asynccontextmanager
async def open_api(conninfo: str, **settings: Any) -> AsyncIterator[Api]:
    """A service in which nothing happens that was not asked for, and nothing is read."""
    chosen = some_settings(**settings)
    with_keys = chosen.auth == "keys"
    async with Service(
        conninfo, guest_key=GUEST_KEY, read_models=(), processors=(), with_keys=with_keys
    ) as service:
        yield Api(App(service, chosen), service)
