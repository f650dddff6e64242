"""The description of this API as OpenAPI 3.1, made from its routes and the types they name."""

from collections.abc import Iterable
from inspect import getdoc
from typing import Any, get_type_hints

from msgspec.json import schema_components
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from api.commands import Endpoint
from api.problems import JSONAnswer, ProblemJSON
from api.version import version

Schemas = dict[Any, Any]

PATH_ID = {
    "name": "id",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "format": "uuid"},
}
IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "The same key and body get the same answer, and have one effect.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
}
ANSWER_HEADERS = {
    "Daybook-Command-Id": {"schema": {"type": "string", "format": "uuid"}},
    "Daybook-Position": {
        "description": "Where in the log the command's last event stands, if there is one.",
        "schema": {"type": "integer"},
    },
    "Idempotent-Replayed": {"schema": {"const": "true"}},
}


def describe(routes: Iterable[Any]) -> dict[str, Any]:
    ours = [route for route in routes if isinstance(route, Route)]
    writes = [route.endpoint for route in ours if isinstance(route.endpoint, Endpoint)]
    types: set[type] = {ProblemJSON, *(w.takes for w in writes), *(answer_type(w) for w in writes)}
    ordered = sorted(types, key=lambda one: one.__name__)
    references, components = schema_components(ordered, ref_template="#/components/schemas/{name}")
    schemas = dict(zip(ordered, references, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in ours:
        for method in sorted((route.methods or set()) - {"HEAD"}):
            paths.setdefault(route.path, {})[method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Daybook", "version": version()},
        "paths": paths,
        "components": {"schemas": components},
    }


def answer_type(endpoint: Endpoint[Any]) -> type:
    found: type = get_type_hints(endpoint.answers)["return"]
    return found


def _operation(route: Route, schemas: Schemas) -> dict[str, Any]:
    endpoint = route.endpoint
    problem = {"description": "A problem, as RFC 9457 describes it.", **_problem(schemas)}
    common: dict[str, list[Any]] = {"parameters": [PATH_ID] if "{id}" in route.path else []}
    if not isinstance(endpoint, Endpoint):
        summary = (getdoc(endpoint) or "").partition("\n")[0]
        return {
            "summary": summary,
            **common,
            "responses": {"200": {"description": "OK"}, "default": problem},
        }
    common["parameters"] += [_flag(name) for name in endpoint.parameters]
    common["parameters"].append(IDEMPOTENCY_KEY)
    answer = {
        "description": endpoint.status.phrase,
        "headers": ANSWER_HEADERS,
        "content": {"application/json": {"schema": schemas[answer_type(endpoint)]}},
    }
    return {
        "summary": endpoint.summary,
        **common,
        "requestBody": _body(endpoint, schemas),
        "responses": {str(int(endpoint.status)): answer, "default": problem},
    }


def _body(endpoint: Endpoint[Any], schemas: Schemas) -> dict[str, Any]:
    return {
        "required": not endpoint.may_be_empty,
        "content": {"application/json": {"schema": schemas[endpoint.takes]}},
    }


def _flag(name: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": {"type": "boolean", "default": False}}


def _problem(schemas: Schemas) -> dict[str, Any]:
    return {"content": {"application/problem+json": {"schema": schemas[ProblemJSON]}}}


async def openapi(request: Request) -> Response:
    """The description of this API, as OpenAPI 3.1."""
    return JSONAnswer(describe(request.app.routes))


routes = [Route("/openapi.json", openapi)]
