"""Logging in: a browser keeps a key in a cookie that no script can read and no other site can use.

The cookie holds the key itself, and so ends with it: what is revoked is logged out everywhere.
"""

from collections.abc import Mapping
from http import HTTPStatus
from importlib.resources import files
from typing import Annotated, Any, ClassVar, TypedDict

import orjson
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from api.access import ANY_KEY, OPEN, PUBLIC, Caller, caller_of, declare, unknown_key
from api.commands import Body, Call, Endpoint, Nothing, RawHeaders, stored
from api.door import foreign
from api.happenings import happened
from api.limit_settings import KILOBYTE
from api.parameters import NoParameters
from api.queries import Read
from domain.scope import names_of
from eventlog.origin import StoredAnswer

SESSION_SECONDS = 12 * 3600
PAGE_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; frame-ancestors 'none'; form-action 'self'; base-uri 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
FILES = {"/login": "text/html", "/login.js": "text/javascript", "/login.css": "text/css"}


class Credentials(Body, frozen=True):
    key: Annotated[str, Meta(min_length=1, max_length=200)]


class MeAnswer(TypedDict):
    """Whose key was shown, and what it is good for; `owner` is whose orders it sees, if not all."""

    id: str
    holder: str
    scopes: list[str]
    owner: str | None


def me_json(caller: Caller) -> MeAnswer:
    return {
        "id": caller.id,
        "holder": caller.holder or caller.id,
        "scopes": [*names_of(caller.scope)],
        "owner": caller.owner,
    }


async def me(_: NoParameters, request: Request) -> MeAnswer:
    """Who is asking."""
    return me_json(caller_of(request))


class LogIn(Endpoint[Credentials]):
    summary = "Keep a key in the cookie of this browser."
    answers = staticmethod(me_json)
    headers: ClassVar[Mapping[str, Any]] = {}
    problems = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)

    async def answer(self, call: Call, body: bytes) -> tuple[StoredAnswer, RawHeaders]:
        keyring, door = call.service.keyring, call.scope["app"].door
        if door.is_led(call.scope):
            return stored(foreign()), []
        key = self.read(call, body).key
        if keyring is None:
            return StoredAnswer(self.status, orjson.dumps(me_json(OPEN))), []
        caller = keyring.caller(key.encode("utf-8", "replace"), ANY_KEY.value)
        if caller is None:
            refused = unknown_key()
            refused.problem = await door.judge(call.scope, refused.problem)
            happened("access.denied", status=refused.problem.status_code)
            raise refused
        call.scope["caller"] = caller
        happened("access.login")
        cookie = door.set_cookie(key, SESSION_SECONDS)
        return StoredAnswer(self.status, orjson.dumps(me_json(caller))), [cookie, NO_STORE]


class LoggedOut(TypedDict):
    message: str


def logged_out() -> LoggedOut:
    return {"message": "Logged out."}


class LogOut(Endpoint[Nothing]):
    summary = "Forget the key in the cookie of this browser. The key itself stays good."
    answers = staticmethod(logged_out)
    headers: ClassVar[Mapping[str, Any]] = {}
    problems = (HTTPStatus.FORBIDDEN,)

    async def answer(self, call: Call, body: bytes) -> tuple[StoredAnswer, RawHeaders]:
        self.read(call, body)
        door = call.scope["app"].door
        if door.is_led(call.scope):
            return stored(foreign()), []
        return StoredAnswer(self.status, orjson.dumps(logged_out())), [door.set_cookie("", 0)]


NO_STORE = (b"cache-control", b"no-store")


def page(path: str, media_type: str) -> Route:
    name = path.removeprefix("/") if "." in path else f"{path.removeprefix('/')}.html"
    content = files("api").joinpath("web", name).read_bytes()

    async def show(_request: Request) -> Response:
        """A part of the page on which one logs in."""
        return Response(content, media_type=media_type, headers=PAGE_HEADERS)

    return declare(Route(path, show, methods=["GET"]), PUBLIC)


routes: list[Route] = [
    LogIn("POST", "/login", takes=Credentials, scope=PUBLIC, body_bytes_max=KILOBYTE).route,
    LogOut("POST", "/logout", takes=Nothing, scope=PUBLIC, body_bytes_max=KILOBYTE).route,
    Read("/api/me", me, scope=ANY_KEY).route,
    *(page(path, media_type) for path, media_type in FILES.items()),
]
