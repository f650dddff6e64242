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

from daybook.api.endpoints.command import WriteEndpoint

_PARAMETER = re.compile(r"\{(\w+)\}")
# The places for parameters: /api/orders/{id}/fail, /api/restaurants/{slug}/tickets/{id}/call.
FIRST_SEGMENT, SECOND_SEGMENT = 3, 5

Masked = tuple[str, ...]
"""The segments of a path, with nothing where its parameters are."""


class Lookup:
    def __init__(self, routes: Iterable[Route]) -> None:
        self._fixed: dict[tuple[str, str], WriteEndpoint[Any]] = {}
        self._named: dict[tuple[str, Masked], tuple[list[str], WriteEndpoint[Any]]] = {}
        self._methods: dict[str, set[str]] = {}
        for route in routes:
            if not _PARAMETER.search(route.path):
                self._methods.setdefault(route.path, set()).update(route.methods or ())
            if isinstance(route.endpoint, WriteEndpoint):
                self._add(route.endpoint)

    def _add(self, endpoint: WriteEndpoint[Any]) -> None:
        names = _PARAMETER.findall(endpoint.path)
        if not names:
            self._fixed[endpoint.method, endpoint.path] = endpoint
            return
        masked = tuple(_PARAMETER.sub("", endpoint.path).split("/"))
        places = [FIRST_SEGMENT, SECOND_SEGMENT][: len(names)]
        # Those with parameters elsewhere are few, and not called often: Starlette finds them.
        if [n for n, segment in enumerate(masked) if n and not segment] == places:
            self._named[endpoint.method, masked] = names, endpoint

    def allowed_methods(self, scope: Scope) -> set[str]:
        """What a path of its own takes, if not this: /api/jobs/claim is no job with a bad id."""
        methods = self._methods.get(scope["path"], set())
        return set() if scope["method"] in methods else methods

    def find(self, scope: Scope) -> WriteEndpoint[Any] | None:
        method, path = scope["method"], scope["path"]
        if endpoint := self._fixed.get((method, path)):
            scope["path_params"] = {}
            return endpoint
        if path in self._methods:
            return None
        segments = path.split("/")
        values: list[str] = []
        for place in (FIRST_SEGMENT, SECOND_SEGMENT):
            if len(segments) <= place or not segments[place]:
                return None
            values.append(segments[place])
            segments[place] = ""
            if found := self._named.get((method, tuple(segments))):
                names, endpoint = found
                scope["path_params"] = dict(zip(names, values, strict=True))
                return endpoint
        return None
