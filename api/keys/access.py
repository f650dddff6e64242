"""The scope that each route requires, and the caller of each request.

Every route declares its scope, or the application does not start: `WriteEndpoint(…, scope=STAFF)`,
`QueryEndpoint(…, scope=CLIENT | STAFF)`; ADMIN is always allowed. `scope=PUBLIC` needs no key, but
a valid one still identifies the caller. Mounts use `declare(Mount(…), PUBLIC)`.

Visibility of single orders, bots and jobs is not checked by route: an invisible one is not found.
`RequestContext.submit` restricts commands; reads call `can_see(request, state)`.
"""

from datetime import datetime
from http import HTTPStatus
from typing import Any, TypeVar

from msgspec import Struct
from starlette.requests import Request
from starlette.routing import BaseRoute

from daybook.api.http.problems import BadInputError
from daybook.domain.api_keys.scope import EVERY_KEY, NAMES, NO_SCOPE, Scope, names_of
from daybook.domain.visibility import UNRESTRICTED, Visibility
from daybook.eventlog.errors import SetupError

CLIENT, VIP, BOT, WORKER = Scope.CLIENT, Scope.VIP, Scope.BOT, Scope.WORKER
STAFF, AUDITOR, ADMIN, CRON = Scope.STAFF, Scope.AUDITOR, Scope.ADMIN, Scope.CRON
PUBLIC, SIGNED = Scope.PUBLIC, Scope.SIGNED
ANY_KEY = EVERY_KEY

R = TypeVar("R", bound=BaseRoute)


class Caller(Struct, frozen=True, kw_only=True, gc=False):
    """The authenticated client of a request."""

    id: str
    """The principal: the name of the API key. Idempotency keys belong to it."""

    actor: str
    """Recorded in the log: the scope that the request used, and the API key's name."""

    scope: Scope
    mask: int
    """`scope` as an int, which is faster to test."""

    bounds: Visibility = UNRESTRICTED
    owner: str | None = None
    holder: str = ""
    digest: bytes = b""
    """Of the presented secret."""

    until: datetime | None = None
    """When the presented secret expires."""

    def must_have(self, scope: Scope) -> None:
        if not self.scope & (scope | ADMIN):
            raise forbidden(f"it needs the scope {NAMES[scope]}")

    def must_reach(self, queue: str) -> None:
        if not self.bounds.can_use_queue(queue):
            raise forbidden(f"it has no access to the queue {queue}")


# Every client with DAYBOOK_AUTH=open.
OPEN = Caller(id="open", actor="open", scope=ADMIN, mask=ADMIN.value)
# A client without a valid key on a public route.
ANONYMOUS = Caller(id="public", actor="public", scope=NO_SCOPE, mask=0)


def unknown_key() -> BadInputError:
    """The same response for a missing, unknown or revoked key, so that clients cannot probe."""
    return BadInputError(
        HTTPStatus.UNAUTHORIZED,
        "unauthorized",
        "Send a valid API key as the header 'Authorization: Bearer dbk_…': 'daybook keys create' "
        "creates one.",
        headers={"WWW-Authenticate": "Bearer"},
    )


def forbidden(reason: str) -> BadInputError:
    sentence = f"This API key is not allowed to do that: {reason}."
    return BadInputError(HTTPStatus.FORBIDDEN, "forbidden", sentence)


def caller_of(request: Request) -> Caller:
    caller: Caller = request.scope["caller"]
    return caller


def can_see(request: Request, state: object) -> bool:
    return state is not None and caller_of(request).bounds.can_see(state)


def is_key_valid(request: Request) -> bool:
    """Whether the caller's key is still valid: it may be revoked while a response streams."""
    key_cache = request.app.service.key_cache
    return key_cache is None or bool(key_cache.is_still_valid(caller_of(request)))


def declare(route: R, scope: Scope) -> R:
    """Sets the scope of a route without an endpoint class."""
    vars(route)["needs"] = scope
    return route


def declared_scope(route: BaseRoute) -> Scope:
    given: Any = vars(route).get("needs")
    if given is None:
        given = getattr(getattr(route, "endpoint", None), "scope", None)
    if not isinstance(given, Scope) or given == NO_SCOPE:
        raise SetupError(
            f"{route} declares no scope: set one, or PUBLIC, as api/keys/access.py describes."
        )
    return given


def scope_names(scope: Scope) -> list[str]:
    """The names of the scopes that open a route; empty for a public one."""
    return [] if PUBLIC in scope else [*names_of(scope | ADMIN)]
