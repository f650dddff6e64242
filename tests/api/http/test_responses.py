"""Headers that every response has, and internals that none reveals."""

import ast
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any

import pytest
from starlette.types import Message
from uuid_utils.compat import uuid7

from daybook.api.app import ROUTES
from tests.support.api_tickets import party
from tests.support.asgi_client import Answer, Api
from tests.support.running.processes import ROOT
from tests.support.running.socket_server import Live, open_live, request

pytestmark = pytest.mark.anyio

INSIDE = "the password of /etc/daybook"
STREAM = "/api/stream"
SECRET = re.compile(r"secret|digest|signature|password|kiosk_key|key_text")


class Broken:
    """A service in which every call fails with a secret message."""

    def __getattr__(self, name: str) -> Any:
        if name == "key_cache":
            return None
        raise RuntimeError(INSIDE)


@pytest.fixture
async def live(database: str) -> AsyncIterator[Live]:
    async with open_live(database) as opened:
        yield opened


def cells() -> Iterator[tuple[str, str]]:
    for route in ROUTES:
        path = route.path.replace("{id}", str(uuid7())).replace("{name}", "n")
        for method in sorted((route.methods or set()) - {"HEAD"}):
            yield method, path.replace("{slug}", "s")


async def answered(api: Api, method: str, path: str) -> Answer:
    """The response; the exception raised after it is for the server's log."""
    sent: list[Message] = []
    body = b"" if method == "GET" else b'{"type": "NORMAL"}'
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"content-type", b"application/json"), (b"host", b"localhost")],
        "server": ("127.0.0.1", 8000),
        "scheme": "http",
    }

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    with suppress(RuntimeError):
        await api.app(scope, receive, send)
    return Answer(sent)


async def test_an_internal_error_reveals_no_internals(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:  # SEC-17
    monkeypatch.setattr(api.app, "service", Broken())
    defects = 0
    for method, path in cells():
        answer = await answered(api, method, path)
        text = answer.body.decode()
        assert INSIDE not in text, path
        assert "Traceback" not in text, path
        if answer.status >= 500:
            assert answer.problem == (500, "internal-error"), path
            assert answer.headers["daybook-request-id"], path
            defects += 1
    assert defects > 20


async def test_every_response_forbids_caching_and_sniffing(api: Api) -> None:  # SEC-18
    for method, path in cells():
        if path != STREAM:
            answer = await answered(api, method, path)
            assert answer.headers["x-content-type-options"] == "nosniff", path
            assert answer.headers["referrer-policy"] == "no-referrer", path
            assert answer.headers["cache-control"], path
            if path.startswith("/api/"):
                assert answer.headers["cache-control"] == "no-store", path


async def test_no_response_names_the_server_software(live: Live) -> None:  # SEC-18
    for sent in (request("GET", "/health/live"), request("GET", "/nowhere"), b"nonsense\r\n\r\n"):
        heard = await live.exchange(sent)
        assert heard.status in (200, 400, 404)
        assert "server" not in heard.headers
        assert "uvicorn" not in str(heard.headers).lower()


@pytest.mark.parametrize("field", ["status", "id", "number", "owner", "botId", "completedAt"])
async def test_server_owned_fields_are_not_accepted_from_clients(
    api: Api, field: str
) -> None:  # SEC-04
    answer = await api.post("/api/orders", {"type": "NORMAL", field: "x"})
    assert answer.problem == (422, "unknown-field")


async def test_a_script_in_a_name_is_a_text_like_any_other(api: Api) -> None:  # SEC-20
    await api.post("/api/restaurants", {"slug": "s", "name": "<script>alert(1)</script>"})
    await api.post("/api/restaurants/s/tickets", party(name='<img src=x onerror="x">'))
    board = await api.get("/api/restaurants/s/board")
    assert board.headers["content-type"] == "application/json"
    assert board.headers["x-content-type-options"] == "nosniff"
    assert "onerror" not in board.body.decode()


def comparisons(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and any(
            isinstance(one, ast.Eq | ast.NotEq) for one in node.ops
        ):
            yield ast.unparse(node)


def test_no_secret_is_compared_in_a_way_that_takes_longer_the_closer_it_is() -> None:  # SEC-02
    found = [
        f"{path.name}: {one}"
        for path in (ROOT / "api").rglob("*.py")
        for one in comparisons(ast.parse(path.read_text(encoding="utf-8")))
        if SECRET.search(one) and not re.search(r"_(count|characters|bytes)|len\(|SECRET", one)
    ]
    assert found == []
