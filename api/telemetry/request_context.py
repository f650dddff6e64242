"""The request that each log line belongs to: its id, route, actor, command and trace."""

from contextvars import ContextVar
from itertools import count
from secrets import token_hex
from typing import Any

from starlette.types import Scope

from daybook.api.telemetry.tracing import trace_of

REQUEST: ContextVar[Scope | None] = ContextVar("REQUEST", default=None)
_PROCESS = f"r{token_hex(6)}"
_NUMBERS = count(1)
# The key of the command's id in the ASGI scope.
COMMAND_ID = "daybook.command_id"


def request_context() -> dict[str, Any]:
    """Empty outside of a request. Built per log line, because few requests write any."""
    scope = REQUEST.get()
    if scope is None:
        return {}
    headers = dict(scope["headers"])
    context = {"requestId": request_id(scope), "route": _route(scope)}
    caller = scope.get("caller")
    if caller is not None:
        context["actor"] = caller.actor
    if (command := scope.get(COMMAND_ID)) is not None:
        context["commandId"] = str(command)
    if (correlation := headers.get(b"daybook-correlation-id")) is not None:
        context["correlationId"] = correlation.decode("latin-1")
    if (trace := trace_of(headers.get(b"traceparent"))) is not None:
        context["traceId"] = trace.hex
    return context


def request_id(scope: Scope) -> str:
    """Unique across processes; the leading letter keeps it from being parsed as a number."""
    found: str | None = scope.get("daybook.request_id")
    if found is None:
        found = scope["daybook.request_id"] = f"{_PROCESS}-{next(_NUMBERS)}"
    return found


def _route(scope: Scope) -> str:
    """The route's pattern, never the requested path, which a client can choose freely."""
    path = getattr(scope.get("endpoint"), "path", None)
    return f"{scope['method']} {path or 'none'}"
