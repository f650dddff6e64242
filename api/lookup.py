"""Finds the endpoint of a write in one step.

Starlette tries route after route and wraps every call in two layers of exception handling, which
takes a tenth of the time of a write. Endpoints that answer all their errors themselves need
neither; whatever is not found here goes Starlette's way.
"""

import re
from collections.abc import Iterable
from typing import Any

from starlette.routing import Route
from starlette.types import Scope

from api.commands import Endpoint

_PARAMETER = re.compile(r"\{(\w+)\}")
# The usual place for a parameter: /api/orders/{id}, /api/orders/{id}/fail.
PARAMETER_SEGMENT = 3


class Lookup:
    def __init__(self, routes: Iterable[Route]) -> None:
        self._fixed: dict[tuple[str, str], Endpoint[Any]] = {}
        self._named: dict[tuple[str, str, str], tuple[str, Endpoint[Any]]] = {}
        for route in routes:
            if isinstance(route.endpoint, Endpoint):
                self._add(route.endpoint)

    def _add(self, endpoint: Endpoint[Any]) -> None:
        head, *rest = _PARAMETER.split(endpoint.path)
        if not rest:
            self._fixed[endpoint.method, endpoint.path] = endpoint
            return
        # Those with parameters elsewhere are few, and not called often.
        if len(rest) == 2 and head.count("/") == PARAMETER_SEGMENT:
            name, tail = rest
            self._named[endpoint.method, head, tail] = name, endpoint

    def find(self, scope: Scope) -> Endpoint[Any] | None:
        method, path = scope["method"], scope["path"]
        if endpoint := self._fixed.get((method, path)):
            scope["path_params"] = {}
            return endpoint
        parts = path.split("/", PARAMETER_SEGMENT)
        if len(parts) <= PARAMETER_SEGMENT:
            return None
        value, slash, rest = parts[PARAMETER_SEGMENT].partition("/")
        head = path[: len(path) - len(parts[PARAMETER_SEGMENT])]
        found = self._named.get((method, head, slash + rest))
        if found is None or not value:
            return None
        name, endpoint = found
        scope["path_params"] = {name: value}
        return endpoint
