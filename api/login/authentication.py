"""Authenticates each request before its endpoint runs.

A key comes as `Authorization: Bearer …` or in the login cookie; the header wins. Another site can
make a browser send the cookie, so a request with a cookie that changes anything must be same-origin
and carry the CSRF token of the page.
"""

from collections.abc import Sequence
from copy import copy
from http import HTTPStatus
from urllib.parse import parse_qsl

from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from daybook.api.http.problems import Problem, unavailable_response
from daybook.api.keys.access import (
    ADMIN,
    ANONYMOUS,
    OPEN,
    PUBLIC,
    SIGNED,
    declared_scope,
    scope_names,
    unknown_key,
)
from daybook.api.keys.key_cache import ApiKeyCache
from daybook.api.login.csrf import csrf_token, has_csrf_token, missing_csrf_token_response
from daybook.api.login.failed_attempts import FailedKeys
from daybook.api.settings.public_hosts import KnownHosts
from daybook.api.telemetry.structured_log import log_event
from daybook.domain.api_keys.key import KEY_PREFIX
from daybook.domain.api_keys.scope import Scope as KeyScope

SAFE_METHODS = frozenset(("GET", "HEAD", "OPTIONS"))
SECRET_NAMES = frozenset(("key", "token", "api_key", "apikey", "access_token", "secret"))
# Browsers accept the prefix __Host- only over https; it binds the cookie to this host.
COOKIE = "daybook_key"
SECURE_COOKIE = "__Host-daybook_key"
BEARER = b"bearer "
KEYS_UNAVAILABLE = "API keys cannot be read from the database at the moment: retry."
_ADMIN, _PUBLIC, _SIGNED = ADMIN.value, PUBLIC.value, SIGNED.value


class Authenticator:
    """Without a key cache (DAYBOOK_AUTH=open) every client on this machine is allowed."""

    def __init__(
        self, key_cache: ApiKeyCache | None, *, hosts: KnownHosts, is_secure: bool = False
    ) -> None:
        self._key_cache = key_cache
        self._hosts = hosts
        self.cookie = SECURE_COOKIE if is_secure else COOKIE
        self.is_secure = is_secure
        self.failed_keys: FailedKeys | None = None

    def check(self, scope: Scope, needs: int) -> Problem | None:
        """Sets the request's caller, or returns the problem that rejects it. `needs` is the
        required scope as an int: enum flags are slow, and this runs per request."""
        if scope["query_string"] and _has_secret(scope["query_string"]):
            return secret_in_url_response()
        if self._key_cache is None:
            return self._allow_open_mode(scope, needs)
        if needs & _PUBLIC and is_for_browsers(scope) and not self._hosts.knows(scope["headers"]):
            return unknown_host_response()
        presented, objection = self._presented_key(scope)
        caller = None if presented is None else self._key_cache.caller(presented, needs)
        if caller is None or objection is not None or needs == _SIGNED:
            return self._without_key(scope, needs, None if caller is None else objection)
        scope["caller"] = caller
        if needs & _PUBLIC:
            return None
        if self._key_cache.is_stale:
            return unavailable_response(KEYS_UNAVAILABLE)
        return None if caller.mask & (needs | _ADMIN) else missing_scope_response(KeyScope(needs))

    def _allow_open_mode(self, scope: Scope, needs: int) -> Problem | None:
        """Checks a request with DAYBOOK_AUTH=open: allows every client on this machine, but no page
        of another site, even if its name resolves to this machine."""
        scope["caller"] = OPEN
        if not self._hosts.knows(scope["headers"]):
            return unknown_host_response()
        if is_safe(scope) or needs & (_PUBLIC | _SIGNED):
            return None
        return cross_site_response() if self.is_cross_site_browser(scope) else None

    def _without_key(self, scope: Scope, needs: int, objection: Problem | None) -> Problem | None:
        assert self._key_cache is not None
        scope["caller"] = ANONYMOUS
        if needs & (_PUBLIC | _SIGNED):
            return None
        if self._key_cache.is_stale:
            return unavailable_response(KEYS_UNAVAILABLE)
        return objection or unknown_key().problem

    def _presented_key(self, scope: Scope) -> tuple[bytes | None, Problem | None]:
        """The presented key, and the problem that forbids its use: a browser may have sent it for
        another site."""
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        if given:
            text: bytes = given[0]
            is_one = len(given) == 1 and text[: len(BEARER)].lower() == BEARER
            return text[len(BEARER) :] if is_one else b"", None
        key = self._cookie_key(scope)
        if key is not None and not self._hosts.knows(scope["headers"]):
            return key, unknown_host_response()
        if key is None or is_safe(scope):
            return key, None
        if is_cross_site(scope):
            return key, cross_site_response()
        return key, None if has_csrf_token(scope, key) else missing_csrf_token_response()

    def _cookie_key(self, scope: Scope) -> bytes | None:
        cookies = [value for name, value in scope["headers"] if name == b"cookie"]
        return _cookie(cookies, self.cookie.encode()) if cookies else None

    def reject(self, refused: Problem) -> ASGIApp:
        """An application that sends the problem and logs the denial."""

        async def respond(scope: Scope, receive: Receive, send: Send) -> None:
            response = refused
            has_key = any(name in (b"authorization", b"cookie") for name, _ in scope["headers"])
            if refused.status_code == HTTPStatus.UNAUTHORIZED and has_key:
                response = await self.throttle_failed_key(scope, refused)
            log_event("access.denied", status=response.status_code)
            await response(scope, receive, send)

        return respond

    async def throttle_failed_key(self, scope: Scope, refused: Problem) -> Problem:
        """The response for an invalid key: 401, or 429 after too many failures."""
        if self.failed_keys is None:
            return refused
        return await self.failed_keys.check(scope, refused)

    def is_cross_site_browser(self, scope: Scope) -> bool:
        """Whether a page of another site may have caused the request. Only browsers send these
        headers, and only browsers can be tricked by a page."""
        for name, _ in scope["headers"]:
            if name in (b"sec-fetch-site", b"origin"):
                return is_cross_site(scope)
        return False

    def form_token(self, scope: Scope) -> bytes:
        """The CSRF token for pages loaded with this cookie."""
        key = self._cookie_key(scope)
        return csrf_token(key) if key else b""

    def check_logout(self, scope: Scope) -> Problem | None:
        """Returns the problem that forbids logout, or None if it is allowed."""
        if self.is_cross_site_browser(scope):
            return cross_site_response()
        presented, objection = self._presented_key(scope)
        is_valid = (
            self._key_cache is not None and presented and self._key_cache.caller(presented, _PUBLIC)
        )
        return objection if is_valid else None

    def set_cookie(self, key: str, seconds: int) -> tuple[bytes, bytes]:
        """The Set-Cookie header; 0 seconds deletes the cookie."""
        secure = "; Secure" if self.is_secure else ""
        attributes = f"Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"
        return b"set-cookie", f"{self.cookie}={key}; {attributes}".encode()


class GuardedRoute:
    """Authenticates requests to a route that Starlette dispatches."""

    def __init__(self, app: ASGIApp, authenticator: Authenticator, needs: KeyScope) -> None:
        self._app, self._authenticator, self._needs = app, authenticator, needs.value

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = self._authenticator.check(scope, self._needs)
        answer = self._app if refused is None else self._authenticator.reject(refused)
        await answer(scope, receive, send)


def guard_routes(routes: Sequence[BaseRoute], authenticator: Authenticator) -> list[BaseRoute]:
    """Copies of the routes with authentication; raises SetupError for one without a scope."""
    guarded: list[BaseRoute] = []
    for route in routes:
        needs = declared_scope(route)
        assert isinstance(route, Route | Mount), f"{route} cannot be guarded"
        own = copy(route)
        own.app = GuardedRoute(route.app, authenticator, needs)
        guarded.append(own)
    return guarded


def missing_scope_response(needs: KeyScope) -> Problem:
    wanted = " or ".join(scope_names(needs))
    sentence = f"This API key is not allowed to do that: it needs the scope {wanted}."
    return Problem(HTTPStatus.FORBIDDEN, "forbidden", sentence)


def cross_site_response() -> Problem:
    sentence = "The request came from a page of another site: use a page of this one."
    return Problem(HTTPStatus.FORBIDDEN, "cross_site", sentence)


def unknown_host_response() -> Problem:
    sentence = (
        "The host name in the Host header is not accepted: add it to DAYBOOK_PUBLIC_HOSTS, or use "
        "localhost."
    )
    return Problem(HTTPStatus.MISDIRECTED_REQUEST, "unknown_host", sentence)


def secret_in_url_response() -> Problem:
    sentence = "Send keys and secrets in headers, never in the URL: URLs end up in logs."
    return Problem(HTTPStatus.BAD_REQUEST, "secret_in_url", sentence)


def is_safe(scope: Scope) -> bool:
    """Whether the request changes nothing. Popping a message is a GET that does."""
    endpoint = scope.get("endpoint")
    return scope["method"] in SAFE_METHODS and not getattr(endpoint, "changes", False)


def is_for_browsers(scope: Scope) -> bool:
    """Whether the route serves a page or its files, or sets the login cookie."""
    return getattr(scope.get("endpoint"), "is_for_browsers", False)


def is_cross_site(scope: Scope) -> bool:
    """Judges by Sec-Fetch-Site, or by Origin in browsers that lack it. A request with neither
    counts as cross-site."""
    given: dict[bytes, list[bytes]] = {}
    for name, value in scope["headers"]:
        given.setdefault(name, []).append(value)
    site = given.get(b"sec-fetch-site")
    if site is not None:
        return site not in ([b"same-origin"], [b"none"])
    origin, host = given.get(b"origin", []), given.get(b"host", [])
    return not (len(origin) == len(host) == 1 and origin[0].partition(b"://")[2] == host[0])


def _cookie(headers: Sequence[bytes], name: bytes) -> bytes | None:
    for header in headers:
        for pair in header.split(b";"):
            given, _, value = pair.strip().partition(b"=")
            if given == name:
                return value
    return None


def _has_secret(query: bytes) -> bool:
    if KEY_PREFIX.encode() in query:
        return True
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    return any(name.lower() in SECRET_NAMES for name, _ in pairs)
