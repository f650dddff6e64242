"""Whose request it is, for every line that is written while it is answered."""

from contextvars import ContextVar
from itertools import count
from secrets import token_hex
from typing import Any

from starlette.types import Scope

from daybook.api.telemetry.tracing import trace_of

REQUEST: ContextVar[Scope | None] = ContextVar("REQUEST", default=None)
_PROCESS = f"r{token_hex(6)}"
_NUMBERS = count(1)
# Where a request remembers which command came of it.
COMMAND_ID = "daybook.command_id"


def request_context() -> dict[str, Any]:
    """Nothing outside of a request. It is put together when somebody writes a line, which few
    requests do."""
    scope = REQUEST.get()
    if scope is None:
        return {}
    headers = dict(scope["headers"])
    told = {"requestId": request_id(scope), "route": _route(scope)}
    caller = scope.get("caller")
    if caller is not None:
        told["actor"] = caller.actor
    if (command := scope.get(COMMAND_ID)) is not None:
        told["commandId"] = str(command)
    if (correlation := headers.get(b"daybook-correlation-id")) is not None:
        told["correlationId"] = correlation.decode("latin-1")
    if (trace := trace_of(headers.get(b"traceparent"))) is not None:
        told["traceId"] = trace.hex
    return told


def request_id(scope: Scope) -> str:
    """One for each request of every process; with a letter in front, so that it is no number."""
    found: str | None = scope.get("daybook.request_id")
    if found is None:
        found = scope["daybook.request_id"] = f"{_PROCESS}-{next(_NUMBERS)}"
    return found


def _route(scope: Scope) -> str:
    """Never the address itself: anybody can write anything into one."""
    path = getattr(scope.get("endpoint"), "path", None)
    return f"{scope['method']} {path or 'none'}"
