"""Login and logout: the browser keeps the API key in an HttpOnly, SameSite=Strict cookie.

The cookie contains the key itself, so a revoked key is logged out everywhere. A login has no CSRF
token yet; Sec-Fetch-Site and the preflight that browsers send for JSON protect it.
"""

from http import HTTPStatus
from typing import Annotated, TypedDict

from msgspec import Meta
from starlette.requests import Request
from starlette.routing import Route

from daybook.api.endpoints.command import (
    Body,
    EmptyBody,
    Reply,
    RequestContext,
    WriteEndpoint,
    problem_reply,
)
from daybook.api.endpoints.query import QueryEndpoint
from daybook.api.http.problems import Problem
from daybook.api.http.query_parameters import NoParameters
from daybook.api.keys.access import ANY_KEY, OPEN, PUBLIC, Caller, caller_of, unknown_key
from daybook.api.login.authentication import cross_site_response
from daybook.api.settings.limits import KILOBYTE
from daybook.api.telemetry.structured_log import log_event
from daybook.domain.api_keys.scope import names_of

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


def check_site(context: RequestContext) -> Problem | None:
    is_cross_site = context.scope["app"].authenticator.is_cross_site_browser(context.scope)
    return cross_site_response() if is_cross_site else None


async def log_in(body: Credentials, context: RequestContext) -> MeAnswer:
    """Log in: store an API key in a cookie of this browser."""
    key_cache, authenticator = context.service.key_cache, context.scope["app"].authenticator
    if key_cache is None:
        return me_json(OPEN)
    caller = key_cache.caller(body.key.encode("utf-8", "replace"), ANY_KEY.value)
    if caller is None:
        refused = unknown_key()
        refused.problem = await authenticator.throttle_failed_key(context.scope, refused.problem)
        log_event("access.denied", status=refused.problem.status_code)
        raise refused
    context.scope["caller"] = caller
    log_event("access.login")
    context.reply_headers += [authenticator.set_cookie(body.key, SESSION_SECONDS), NO_STORE]
    return me_json(caller)


class LoggedOut(TypedDict):
    message: str


async def log_out(_: EmptyBody, context: RequestContext) -> LoggedOut | Reply:
    """Log out: delete the cookie of this browser. The API key stays valid."""
    authenticator = context.scope["app"].authenticator
    refused = authenticator.check_logout(context.scope)
    if refused is not None:
        return problem_reply(refused)
    context.reply_headers += [authenticator.set_cookie("", 0), CLEAR_STORAGE]
    return {"message": "Logged out."}


NO_STORE = (b"cache-control", b"no-store")
# Deletes everything that our pages stored in the browser.
CLEAR_STORAGE = (b"clear-site-data", b'"storage"')

LOG_IN = WriteEndpoint(
    "POST",
    "/login",
    scope=PUBLIC,
    answer=log_in,
    headers={},
    problems=(HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN),
    body_bytes_max=KILOBYTE,
    authorizes=check_site,
    is_for_browsers=True,
)
LOG_OUT = WriteEndpoint(
    "POST",
    "/logout",
    scope=PUBLIC,
    answer=log_out,
    headers={},
    problems=(HTTPStatus.FORBIDDEN,),
    body_bytes_max=KILOBYTE,
    is_for_browsers=True,
)

routes: list[Route] = [
    LOG_IN.route,
    LOG_OUT.route,
    QueryEndpoint("/api/me", me, scope=ANY_KEY, reads_database=False).route,
]
