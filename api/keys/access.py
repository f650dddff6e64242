"""Whom a route is for, and who is asking.

Every route says for whom it is, or the application does not start. An endpoint says it with one
word: `Write(…, scope=STAFF)`, `Read(…, scope=CLIENT | STAFF)`; an admin may do everything anyway.
What is for everybody, such as a page or a guest's way into a queue, says `scope=PUBLIC`: nobody
needs a key then, and who comes with a good one is known all the same (`call.caller`). A route of
another kind, such as a mount of static files, says it by `declare(Mount(…), PUBLIC)`.

What a key is bound to is not the route's business: another's order, bot or job is simply not
there. Commands are decided within bounds by `Call.submit`; a read asks `can_see(request, state)`.
"""

from datetime import datetime
from http import HTTPStatus
from typing import Any, TypeVar

from msgspec import Struct
from starlette.requests import Request
from starlette.routing import BaseRoute

from daybook.api.http.problems import BadInputError
from daybook.domain.api_keys.scope import EVERY_KEY, NAMES, NOBODY, Scope, names_of
from daybook.domain.visibility import UNBOUND, Visibility
from daybook.eventlog.errors import SetupError

CLIENT, VIP, BOT, WORKER = Scope.CLIENT, Scope.VIP, Scope.BOT, Scope.WORKER
STAFF, AUDITOR, ADMIN, CRON = Scope.STAFF, Scope.AUDITOR, Scope.ADMIN, Scope.CRON
PUBLIC, SIGNED = Scope.PUBLIC, Scope.SIGNED
ANY_KEY = EVERY_KEY

R = TypeVar("R", bound=BaseRoute)


class Caller(Struct, frozen=True, kw_only=True, gc=False):
    """Who is asking, as everything behind the door knows it."""

    id: str
    """The principal: the name of the key. Idempotency keys belong to it."""

    actor: str
    """What the log calls it: the scope that let it in, and the key's name."""

    scope: Scope
    mask: int
    """The same as a number."""

    bounds: Visibility = UNBOUND
    owner: str | None = None
    holder: str = ""
    digest: bytes = b""
    """Of the secret that was shown."""

    until: datetime | None = None
    """When that ends to be good, if nobody ends it before."""

    def must_have(self, scope: Scope) -> None:
        if not self.scope & (scope | ADMIN):
            raise forbidden(f"it takes one with the scope {NAMES[scope]}")

    def must_reach(self, queue: str) -> None:
        if not self.bounds.can_use_queue(queue):
            raise forbidden(f"it is not for the queue {queue}")


# Everybody, as long as the house is open.
OPEN = Caller(id="open", actor="open", scope=ADMIN, mask=ADMIN.value)
# Whoever comes without a key, where none is needed.
ANONYMOUS = Caller(id="public", actor="public", scope=NOBODY, mask=0)


def unknown_key() -> BadInputError:
    """The same for no key, an unknown one, a revoked one: nobody learns which it was."""
    return BadInputError(
        HTTPStatus.UNAUTHORIZED,
        "unauthorized",
        "Send a good key as the header 'Authorization: Bearer dbk_…': 'daybook keys create' makes "
        "one.",
        headers={"WWW-Authenticate": "Bearer"},
    )


def forbidden(reason: str) -> BadInputError:
    sentence = f"This key may not do that: {reason}."
    return BadInputError(HTTPStatus.FORBIDDEN, "forbidden", sentence)


def caller_of(request: Request) -> Caller:
    caller: Caller = request.scope["caller"]
    return caller


def can_see(request: Request, state: object) -> bool:
    return state is not None and caller_of(request).bounds.can_see(state)


def is_key_valid(request: Request) -> bool:
    """Whether what was let in still would be: a key may be revoked while an answer is sent."""
    key_cache = request.app.service.key_cache
    return key_cache is None or bool(key_cache.is_still_valid(caller_of(request)))


def declare(route: R, scope: Scope) -> R:
    """For routes that are no endpoints of ours."""
    vars(route)["needs"] = scope
    return route


def declared_scope(route: BaseRoute) -> Scope:
    given: Any = vars(route).get("needs")
    if given is None:
        given = getattr(getattr(route, "endpoint", None), "scope", None)
    if not isinstance(given, Scope) or given == NOBODY:
        raise SetupError(
            f"{route} declares no scope: give it one, or PUBLIC, as api/keys/access.py describes."
        )
    return given


def scope_names(scope: Scope) -> list[str]:
    """The scopes that lead to a route, for its description."""
    return [] if PUBLIC in scope else [*names_of(scope | ADMIN)]
