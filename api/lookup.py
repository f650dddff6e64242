"""Finds the endpoint of a write in one step.

Starlette tries route after route and wraps every call in two layers of exception handling, which
takes a tenth of the time of a write. Endpoints that answer all their errors themselves need
neither; whatever is not found here goes Starlette's way.
"""

from collections.abc import Iterable
from typing import Any

from starlette.routing import Route
from starlette.types import Scope

from api.commands import Endpoint

# The one place for a parameter: /api/orders/{id}, /api/orders/{id}/fail.
ID_SEGMENT = 3


class Lookup:
    def __init__(self, routes: Iterable[Route]) -> None:
        self._fixed: dict[tuple[str, str], Endpoint[Any]] = {}
        self._with_id: dict[tuple[str, str, str], Endpoint[Any]] = {}
        for route in routes:
            if isinstance(route.endpoint, Endpoint):
                self._add(route.endpoint)

    def _add(self, endpoint: Endpoint[Any]) -> None:
        head, parameter, tail = endpoint.path.partition("{id}")
        if not parameter:
            self._fixed[endpoint.method, endpoint.path] = endpoint
            return
        assert head.count("/") == ID_SEGMENT, f"{endpoint.path} has its id elsewhere"
        self._with_id[endpoint.method, head, tail] = endpoint

    def find(self, scope: Scope) -> Endpoint[Any] | None:
        method, path = scope["method"], scope["path"]
        if endpoint := self._fixed.get((method, path)):
            scope["path_params"] = {}
            return endpoint
        parts = path.split("/", ID_SEGMENT)
        if len(parts) <= ID_SEGMENT:
            return None
        identity, slash, rest = parts[ID_SEGMENT].partition("/")
        head = path[: len(path) - len(parts[ID_SEGMENT])]
        endpoint = self._with_id.get((method, head, slash + rest))
        if endpoint is None or not identity:
            return None
        scope["path_params"] = {"id": identity}
        return endpoint
