"""Finds the endpoint of a write by dictionary lookup.

Starlette tries each route in turn and wraps each call in two layers of exception handling, which
costs 10 % of the time of a write. Write endpoints handle their own errors and need neither. Other
requests go through Starlette.
"""

import re
from collections.abc import Iterable

from starlette.routing import Route
from starlette.types import Scope

from daybook.api.endpoints.command import WriteEndpoint

_PARAMETER = re.compile(r"\{(\w+)\}")
# Indexes of parameters: /api/orders/{id}/fail, /api/restaurants/{slug}/tickets/{id}/call.
FIRST_SEGMENT, SECOND_SEGMENT = 3, 5

Masked = tuple[str, ...]
"""The segments of a path, with parameters replaced by empty strings."""


class Lookup:
    def __init__(self, routes: Iterable[Route]) -> None:
        self._fixed: dict[tuple[str, str], WriteEndpoint] = {}
        self._named: dict[tuple[str, Masked], tuple[list[str], WriteEndpoint]] = {}
        self._methods: dict[str, set[str]] = {}
        for route in routes:
            if not _PARAMETER.search(route.path):
                self._methods.setdefault(route.path, set()).update(route.methods or ())
            if isinstance(route.endpoint, WriteEndpoint):
                self._add(route.endpoint)

    def _add(self, endpoint: WriteEndpoint) -> None:
        names = _PARAMETER.findall(endpoint.path)
        if not names:
            self._fixed[endpoint.method, endpoint.path] = endpoint
            return
        masked = tuple(_PARAMETER.sub("", endpoint.path).split("/"))
        indexes = [FIRST_SEGMENT, SECOND_SEGMENT][: len(names)]
        # Few and rarely used paths have parameters elsewhere: Starlette finds them.
        if [n for n, segment in enumerate(masked) if n and not segment] == indexes:
            self._named[endpoint.method, masked] = names, endpoint

    def allowed_methods(self, scope: Scope) -> set[str]:
        """The methods of a fixed path that does not support this one; else empty. So GET
        /api/jobs/claim is 405, not a job with an invalid id."""
        methods = self._methods.get(scope["path"], set())
        return set() if scope["method"] in methods else methods

    def find(self, scope: Scope) -> WriteEndpoint | None:
        method, path = scope["method"], scope["path"]
        if endpoint := self._fixed.get((method, path)):
            scope["path_params"] = {}
            return endpoint
        if path in self._methods:
            return None
        segments = path.split("/")
        values: list[str] = []
        for index in (FIRST_SEGMENT, SECOND_SEGMENT):
            if len(segments) <= index or not segments[index]:
                return None
            values.append(segments[index])
            segments[index] = ""
            if found := self._named.get((method, tuple(segments))):
                names, endpoint = found
                scope["path_params"] = dict(zip(names, values, strict=True))
                return endpoint
        return None
