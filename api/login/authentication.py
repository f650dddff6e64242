"""The door: every request shows a key here before anything else looks at it.

A key comes as `Authorization: Bearer …`, or in the cookie of a page that was logged in with it; a
request that shows both is judged by the header alone. With a cookie a browser may have been led to
ask by another site, so what changes something must come from a page of ours, and show the token
that stands in it.
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
from daybook.api.login.csrf import no_token, shows_token, token_of
from daybook.api.login.failed_attempts import FailedKeys
from daybook.api.settings.public_hosts import KnownHosts
from daybook.api.telemetry.structured_log import log_event
from daybook.domain.api_keys.key import KEY_PREFIX
from daybook.domain.api_keys.scope import Scope as KeyScope

SAFE_METHODS = frozenset(("GET", "HEAD", "OPTIONS"))
SECRET_NAMES = frozenset(("key", "token", "api_key", "apikey", "access_token", "secret"))
# The prefix binds a cookie to https and to this host, which only a browser with https takes.
COOKIE = "daybook_key"
SECURE_COOKIE = "__Host-daybook_key"
BEARER = b"bearer "
UNKNOWABLE = "Keys cannot be looked at at the moment: ask again."
_ADMIN, _PUBLIC, _SIGNED = ADMIN.value, PUBLIC.value, SIGNED.value


class Authenticator:
    """Without a keyring it stands open, which is for this machine alone."""

    def __init__(
        self, key_cache: ApiKeyCache | None, *, hosts: KnownHosts, is_secure: bool = False
    ) -> None:
        self._key_cache = key_cache
        self._hosts = hosts
        self.cookie = SECURE_COOKIE if is_secure else COOKIE
        self.is_secure = is_secure
        self.failed_keys: FailedKeys | None = None

    def check(self, scope: Scope, needs: int) -> Problem | None:
        """Lets a request in and notes who it is; or says why not. What a route needs is told as a
        number, because flags are slow, and every request comes by here."""
        if scope["query_string"] and _has_secret(scope["query_string"]):
            return secret_in_url()
        if self._key_cache is None:
            return self._allow_open_mode(scope, needs)
        if needs & _PUBLIC and is_for_browsers(scope) and not self._hosts.knows(scope["headers"]):
            return unknown_host()
        shown, objection = self._presented_key(scope)
        caller = None if shown is None else self._key_cache.caller(shown, needs)
        if caller is None or objection is not None or needs == _SIGNED:
            return self._without_key(scope, needs, None if caller is None else objection)
        scope["caller"] = caller
        if needs & _PUBLIC:
            return None
        if self._key_cache.is_stale:
            return unavailable_response(UNKNOWABLE)
        return None if caller.mask & (needs | _ADMIN) else not_for(KeyScope(needs))

    def _allow_open_mode(self, scope: Scope, needs: int) -> Problem | None:
        """Checks a request when DAYBOOK_AUTH is open. Every client on this machine is let in, but
        no page of another site, not even of one whose name resolves to this machine."""
        scope["caller"] = OPEN
        if not self._hosts.knows(scope["headers"]):
            return unknown_host()
        if is_safe(scope) or needs & (_PUBLIC | _SIGNED):
            return None
        return foreign() if self.is_cross_site_browser(scope) else None

    def _without_key(self, scope: Scope, needs: int, objection: Problem | None) -> Problem | None:
        assert self._key_cache is not None
        scope["caller"] = ANONYMOUS
        if needs & (_PUBLIC | _SIGNED):
            return None
        if self._key_cache.is_stale:
            return unavailable_response(UNKNOWABLE)
        return objection or unknown_key().problem

    def _presented_key(self, scope: Scope) -> tuple[bytes | None, Problem | None]:
        """The key, and what speaks against it: a browser may have shown it for another site."""
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        if given:
            text: bytes = given[0]
            is_one = len(given) == 1 and text[: len(BEARER)].lower() == BEARER
            return text[len(BEARER) :] if is_one else b"", None
        key = self._cookie_key(scope)
        if key is not None and not self._hosts.knows(scope["headers"]):
            return key, unknown_host()
        if key is None or is_safe(scope):
            return key, None
        if is_cross_site(scope):
            return key, foreign()
        return key, None if shows_token(scope, key) else no_token()

    def _cookie_key(self, scope: Scope) -> bytes | None:
        """The key in the cookie."""
        cookies = [value for name, value in scope["headers"] if name == b"cookie"]
        return _cookie(cookies, self.cookie.encode()) if cookies else None

    def reject(self, refused: Problem) -> ASGIApp:
        """Answers who was not let in, and writes it down."""

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            told = refused
            is_shown = any(name in (b"authorization", b"cookie") for name, _ in scope["headers"])
            if refused.status_code == HTTPStatus.UNAUTHORIZED and is_shown:
                told = await self.throttle_failed_key(scope, refused)
            log_event("access.denied", status=told.status_code)
            await told(scope, receive, send)

        return answer

    async def throttle_failed_key(self, scope: Scope, refused: Problem) -> Problem:
        """What whoever has shown a key that is no good is told."""
        if self.failed_keys is None:
            return refused
        return await self.failed_keys.judge(scope, refused)

    def is_cross_site_browser(self, scope: Scope) -> bool:
        """Whether a browser may have been made to ask by a page of another site: only browsers
        say where a request comes from, and others cannot be led."""
        is_browser = any(name in (b"sec-fetch-site", b"origin") for name, _ in scope["headers"])
        return is_browser and is_cross_site(scope)

    def form_token(self, scope: Scope) -> bytes:
        """What a page that is asked for with this cookie shows when it changes something."""
        key = self._cookie_key(scope)
        return token_of(key) if key else b""

    def check_logout(self, scope: Scope) -> Problem | None:
        """Who is logged out by a page of ours, or no longer logged in, may be; why not, if not."""
        if self.is_cross_site_browser(scope):
            return foreign()
        shown, objection = self._presented_key(scope)
        is_good = self._key_cache is not None and shown and self._key_cache.caller(shown, _PUBLIC)
        return objection if is_good else None

    def set_cookie(self, key: str, seconds: int) -> tuple[bytes, bytes]:
        """For so many seconds; none forgets it."""
        secure = "; Secure" if self.is_secure else ""
        attributes = f"Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"
        return b"set-cookie", f"{self.cookie}={key}; {attributes}".encode()


class GuardedRoute:
    """Stands before a route that Starlette finds."""

    def __init__(self, app: ASGIApp, authenticator: Authenticator, needs: KeyScope) -> None:
        self._app, self._authenticator, self._needs = app, authenticator, needs.value

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = self._authenticator.check(scope, self._needs)
        answer = self._app if refused is None else self._authenticator.reject(refused)
        await answer(scope, receive, send)


def guard_routes(routes: Sequence[BaseRoute], authenticator: Authenticator) -> list[BaseRoute]:
    """The same routes behind the door. One that does not say for whom it is starts nothing."""
    behind: list[BaseRoute] = []
    for route in routes:
        needs = declared_scope(route)
        assert isinstance(route, Route | Mount), f"{route} cannot be guarded"
        own = copy(route)
        own.app = GuardedRoute(route.app, authenticator, needs)
        behind.append(own)
    return behind


def not_for(needs: KeyScope) -> Problem:
    wanted = " or ".join(scope_names(needs))
    sentence = f"This key may not do that: it takes one with the scope {wanted}."
    return Problem(HTTPStatus.FORBIDDEN, "forbidden", sentence)


def foreign() -> Problem:
    sentence = "This was asked for by a page of another site: do it on a page of this one."
    return Problem(HTTPStatus.FORBIDDEN, "cross_site", sentence)


def unknown_host() -> Problem:
    sentence = (
        "This service does not go by the name in the header Host: add it to DAYBOOK_PUBLIC_HOSTS "
        "if it should, or ask by localhost."
    )
    return Problem(HTTPStatus.MISDIRECTED_REQUEST, "unknown_host", sentence)


def secret_in_url() -> Problem:
    sentence = "A key or a secret is a header, never part of an address: addresses end up in logs."
    return Problem(HTTPStatus.BAD_REQUEST, "secret_in_url", sentence)


def is_safe(scope: Scope) -> bool:
    """Whether nothing is changed by it. To pop a message is to take it, though it is a GET."""
    endpoint = scope.get("endpoint")
    return scope["method"] in SAFE_METHODS and not getattr(endpoint, "changes", False)


def is_for_browsers(scope: Scope) -> bool:
    """Whether the route is a page, a file of one, or gives a browser its cookie."""
    return getattr(scope.get("endpoint"), "is_for_browsers", False)


def is_cross_site(scope: Scope) -> bool:
    """Browsers say where a request comes from; of those too old for it, the origin must be ours.
    Who says nothing of either is taken for foreign."""
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
