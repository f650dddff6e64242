"""Login and logout: the browser keeps the API key in an HttpOnly, SameSite=Strict cookie.

The cookie contains the key itself, so a revoked key is logged out everywhere. A login has no CSRF
token yet; Sec-Fetch-Site and the preflight that browsers send for JSON protect it.
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
    Reply,
    RequestContext,
    WriteEndpoint,
    stored_problem,
)
from daybook.api.endpoints.query import QueryEndpoint
from daybook.api.http.query_parameters import NoParameters
from daybook.api.keys.access import ANY_KEY, OPEN, PUBLIC, Caller, caller_of, unknown_key
from daybook.api.login.authentication import cross_site_response
from daybook.api.settings.limits import KILOBYTE
from daybook.api.telemetry.structured_log import log_event
from daybook.domain.api_keys.scope import names_of
from daybook.eventlog.origin import StoredResponse

SESSION_SECONDS = 12 * 3600


class Credentials(Body, frozen=True):
    key: Annotated[str, Meta(min_length=1, max_length=200)]


class MeAnswer(TypedDict):
    """The caller's API key and its scopes; `owner` restricts the orders that it can see."""

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
    """The caller of this request."""
    return me_json(caller_of(request))


class LogIn(WriteEndpoint[Credentials]):
    is_for_browsers = True
    summary = "Log in: store an API key in a cookie of this browser."
    answers = staticmethod(me_json)
    headers: ClassVar[Mapping[str, Any]] = {}
    problems = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)

    async def answer(self, context: RequestContext, body: bytes) -> Reply:
        key_cache, authenticator = context.service.key_cache, context.scope["app"].authenticator
        if authenticator.is_cross_site_browser(context.scope):
            return stored_problem(cross_site_response()), []
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


def logged_out_json() -> LoggedOut:
    return {"message": "Logged out."}


class LogOut(WriteEndpoint[EmptyBody]):
    is_for_browsers = True
    summary = "Log out: delete the cookie of this browser. The API key stays valid."
    answers = staticmethod(logged_out_json)
    headers: ClassVar[Mapping[str, Any]] = {}
    problems = (HTTPStatus.FORBIDDEN,)

    async def answer(self, context: RequestContext, body: bytes) -> Reply:
        self.read(context, body)
        authenticator = context.scope["app"].authenticator
        refused = authenticator.check_logout(context.scope)
        if refused is not None:
            return stored_problem(refused), []
        response = StoredResponse(self.status, orjson.dumps(logged_out_json()))
        return response, [authenticator.set_cookie("", 0), CLEAR_STORAGE]


NO_STORE = (b"cache-control", b"no-store")
# Deletes everything that our pages stored in the browser.
CLEAR_STORAGE = (b"clear-site-data", b'"storage"')


routes: list[Route] = [
    LogIn("POST", "/login", takes=Credentials, scope=PUBLIC, body_bytes_max=KILOBYTE).route,
    LogOut("POST", "/logout", takes=EmptyBody, scope=PUBLIC, body_bytes_max=KILOBYTE).route,
    QueryEndpoint("/api/me", me, scope=ANY_KEY).route,
]
