"""Logging in: a browser keeps a key in a cookie that no script can read and no other site can use.

The cookie holds the key itself, and so ends with it: what is revoked is logged out everywhere.
Who logs in has no page with a token yet. What keeps another site from logging somebody in is that
browsers say where a request comes from, and that JSON from elsewhere is asked about first.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any, ClassVar, TypedDict

import orjson
from msgspec import Meta
from starlette.requests import Request
from starlette.routing import Route

from daybook.api.endpoints.command import (
    Body,
    EmptyBody,
    RawHeaders,
    RequestContext,
    WriteEndpoint,
    stored_problem,
)
from daybook.api.endpoints.query import QueryEndpoint
from daybook.api.http.query_parameters import NoParameters
from daybook.api.keys.access import ANY_KEY, OPEN, PUBLIC, Caller, caller_of, unknown_key
from daybook.api.login.authentication import foreign
from daybook.api.settings.limits import KILOBYTE
from daybook.api.telemetry.structured_log import log_event
from daybook.domain.api_keys.scope import names_of
from daybook.eventlog.origin import StoredResponse

SESSION_SECONDS = 12 * 3600


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


class LogIn(WriteEndpoint[Credentials]):
    is_for_browsers = True
    summary = "Keep a key in the cookie of this browser."
    answers = staticmethod(me_json)
    headers: ClassVar[Mapping[str, Any]] = {}
    problems = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)

    async def answer(
        self, context: RequestContext, body: bytes
    ) -> tuple[StoredResponse, RawHeaders]:
        key_cache, authenticator = context.service.key_cache, context.scope["app"].authenticator
        if authenticator.is_cross_site_browser(context.scope):
            return stored_problem(foreign()), []
        key = self.read(context, body).key
        if key_cache is None:
            return StoredResponse(self.status, orjson.dumps(me_json(OPEN))), []
        caller = key_cache.caller(key.encode("utf-8", "replace"), ANY_KEY.value)
        if caller is None:
            refused = unknown_key()
            refused.problem = await authenticator.throttle_failed_key(
                context.scope, refused.problem
            )
            log_event("access.denied", status=refused.problem.status_code)
            raise refused
        context.scope["caller"] = caller
        log_event("access.login")
        cookie = authenticator.set_cookie(key, SESSION_SECONDS)
        return StoredResponse(self.status, orjson.dumps(me_json(caller))), [cookie, NO_STORE]


class LoggedOut(TypedDict):
    message: str


def logged_out() -> LoggedOut:
    return {"message": "Logged out."}


class LogOut(WriteEndpoint[EmptyBody]):
    is_for_browsers = True
    summary = "Forget the key in the cookie of this browser. The key itself stays good."
    answers = staticmethod(logged_out)
    headers: ClassVar[Mapping[str, Any]] = {}
    problems = (HTTPStatus.FORBIDDEN,)

    async def answer(
        self, context: RequestContext, body: bytes
    ) -> tuple[StoredResponse, RawHeaders]:
        self.read(context, body)
        authenticator = context.scope["app"].authenticator
        refused = authenticator.check_logout(context.scope)
        if refused is not None:
            return stored_problem(refused), []
        told = StoredResponse(self.status, orjson.dumps(logged_out()))
        return told, [authenticator.set_cookie("", 0), CLEAR]


NO_STORE = (b"cache-control", b"no-store")
# Whoever uses the browser next finds nothing that a page of ours kept in it.
CLEAR = (b"clear-site-data", b'"storage"')


routes: list[Route] = [
    LogIn("POST", "/login", takes=Credentials, scope=PUBLIC, body_bytes_max=KILOBYTE).route,
    LogOut("POST", "/logout", takes=EmptyBody, scope=PUBLIC, body_bytes_max=KILOBYTE).route,
    QueryEndpoint("/api/me", me, scope=ANY_KEY).route,
]
