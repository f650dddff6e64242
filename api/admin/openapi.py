"""`GET /openapi.json`: OpenAPI 3.1, generated from the routes and their types."""

import re
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from inspect import getdoc
from types import UnionType
from typing import Any, TypeGuard, Union, get_args, get_origin, get_type_hints

from msgspec import NODEFAULT
from msgspec.json import schema_components
from msgspec.structs import fields
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from daybook.api.endpoints.command import Reply, WriteEndpoint
from daybook.api.endpoints.query import NDJSON, QueryEndpoint
from daybook.api.http.problems import RETRY_AFTER, JSONAnswer, Problem, ProblemJSON
from daybook.api.http.query_parameters import NoParameters
from daybook.api.http.request_reader import Id, IfMatch, Reason
from daybook.api.keys.access import PUBLIC, declared_scope, scope_names
from daybook.api.keys.key_format import KEY_PATTERN
from daybook.api.tickets.restaurants import Slug
from daybook.api.version import version
from daybook.domain.patterns import in_ecma
from daybook.domain.values import Name, Text

Described = WriteEndpoint | QueryEndpoint
Description = dict[str, Any]
Schemas = dict[Any, Description]

ANSWER_HEADERS = {
    "Daybook-Command-Id": {"schema": {"type": "string", "format": "uuid"}},
    "Daybook-Position": {
        "description": "The log position of the command's last event, if any.",
        "schema": {"type": "integer"},
    },
    "Idempotent-Replayed": {"schema": {"const": "true"}},
}
# Path parameters.
PATH_PARAMETERS: dict[str, Any] = {
    "id": Id,
    "leaseId": Id,
    "name": Name,
    "queue": Name,
    "partition": Text,
    "slug": Slug,
}
RETRY_HEADERS = {name: {"schema": {"type": "integer"}} for name in RETRY_AFTER}


KEY_SCHEME = {
    "type": "http",
    "scheme": "bearer",
    "bearerFormat": KEY_PATTERN,
    "description": "An API key with one of the scopes that the operation lists.",
}


def describe(routes: Iterable[Any]) -> Description:
    ours = [route for route in routes if isinstance(route, Route) and route.include_in_schema]
    types = dict.fromkeys(
        [
            ProblemJSON,
            *PATH_PARAMETERS.values(),
            *(kind for route in ours for kind in _types(route)),
        ]
    )
    described = schema_components(types, ref_template="#/components/schemas/{name}")
    references, components = _in_dialect([*described])
    schemas = dict(zip(types, references, strict=True))
    paths: dict[str, Description] = {}
    for route in ours:
        for method in sorted((route.methods or set()) - {"HEAD"}):
            paths.setdefault(route.path, {})[method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Daybook", "version": version()},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"key": KEY_SCHEME}},
    }


def _in_dialect(schema: Any) -> Any:
    """Converts patterns to ECMAScript, whose anchors differ from Python's."""
    if isinstance(schema, dict):
        return {
            name: in_ecma(value)
            if name == "pattern" and isinstance(value, str)
            else _in_dialect(value)
            for name, value in schema.items()
        }
    return [*map(_in_dialect, schema)] if isinstance(schema, list | tuple) else schema


def _types(route: Route) -> Iterator[Any]:
    endpoint = route.endpoint
    if isinstance(endpoint, WriteEndpoint | QueryEndpoint):
        yield from answer_types(endpoint)
        yield from (field.type for field in fields(endpoint.parameters))
        yield from _headers(endpoint).values()
    if isinstance(endpoint, QueryEndpoint) and endpoint.lines is not None:
        yield endpoint.lines
    if isinstance(endpoint, WriteEndpoint):
        yield endpoint.takes


def answer_types(endpoint: Described) -> tuple[Any, ...]:
    """The response type, or the members of a union, which msgspec cannot describe as one. Replies
    and responses are rendered JSON of another member."""
    answer = get_type_hints(endpoint.answers, include_extras=True)["return"]
    kinds = get_args(answer) if get_origin(answer) in (Union, UnionType) else (answer,)
    return tuple(kind for kind in kinds if kind not in (Reply, Response))


def _operation(route: Route, schemas: Schemas) -> Description:
    endpoint = route.endpoint
    if not isinstance(endpoint, WriteEndpoint | QueryEndpoint):
        summary = (getdoc(endpoint) or "").partition("\n")[0]
        responses = {"200": {"description": "OK"}, "default": _any_problem(schemas)}
        return {"summary": summary, "responses": responses, **_needs(route)}
    body = {"requestBody": _body(endpoint, schemas)} if _has_body(endpoint) else {}
    return {
        "summary": endpoint.summary,
        "parameters": [*_parameters(endpoint, schemas)],
        **body,
        "responses": _responses(endpoint, schemas),
        **_needs(route),
    }


def _needs(route: Route) -> Description:
    """The required scopes; empty for public routes."""
    scopes = scope_names(declared_scope(route))
    return {"security": [{"key": scopes}]} if scopes else {}


def _has_body(endpoint: Described) -> TypeGuard[WriteEndpoint]:
    return isinstance(endpoint, WriteEndpoint) and endpoint.method != "GET"


def _parameters(endpoint: Described, schemas: Schemas) -> Iterator[Description]:
    for name in re.findall(r"\{(\w+)\}", endpoint.path):
        yield {**_parameter("path", name, schemas[PATH_PARAMETERS[name]]), "required": True}
    for field in fields(endpoint.parameters):
        default = None if field.default is NODEFAULT else field.default
        yield _parameter("query", field.encode_name, schemas[field.type], default)
    for name, kind in _headers(endpoint).items():
        yield _parameter("header", name, schemas[kind])


def _headers(endpoint: Described) -> Mapping[str, Any]:
    headers = dict(endpoint.headers)
    if isinstance(endpoint, WriteEndpoint) and endpoint.takes_reason:
        headers["Daybook-Reason"] = Reason
    if isinstance(endpoint, WriteEndpoint) and endpoint.is_about_one:
        headers["If-Match"] = IfMatch
    return headers


def _parameter(where: str, name: str, schema: Description, default: Any = None) -> Description:
    # Parameters are optional by omission: null is not documented.
    given, *_ = schema.get("anyOf", [schema])
    if default is not None:
        given = {**given, "default": default}
    return {"name": name, "in": where, "schema": given}


def _body(endpoint: WriteEndpoint, schemas: Schemas) -> Description:
    return {
        "required": not endpoint.may_be_empty,
        "content": {JSONAnswer.media_type: {"schema": schemas[endpoint.takes]}},
    }


def _responses(endpoint: Described, schemas: Schemas) -> Description:
    problem = {Problem.media_type: {"schema": schemas[ProblemJSON]}}
    answers = [schemas[answer] for answer in answer_types(endpoint)]
    return {
        **_answer(endpoint, answers[0] if len(answers) == 1 else {"anyOf": answers}, schemas),
        **{str(int(status)): _problem(status, problem) for status in endpoint.problems},
        "default": _any_problem(schemas),
    }


def _any_problem(schemas: Schemas) -> Description:
    content = {Problem.media_type: {"schema": schemas[ProblemJSON]}}
    return {"description": "A problem as of RFC 9457.", "content": content}


def _answer(endpoint: Described, schema: Description, schemas: Schemas) -> Description:
    if isinstance(endpoint, WriteEndpoint):
        return {
            str(int(status)): _written(status, schema)
            for status in (endpoint.status, *endpoint.also)
        }
    content = {endpoint.media_type: {"schema": _within(endpoint.media_type, schema)}}
    if endpoint.lines is not None:
        content[NDJSON] = {"schema": _within(NDJSON, schemas[endpoint.lines])}
    return {"200": {"description": HTTPStatus.OK.phrase, "content": content}}


def _written(status: HTTPStatus, schema: Description) -> Description:
    described = {"description": status.phrase, "headers": ANSWER_HEADERS}
    if status is HTTPStatus.NO_CONTENT:
        return described
    return {**described, "content": {JSONAnswer.media_type: {"schema": schema}}}


def _within(media_type: str, schema: Description) -> Description:
    """Streams contain JSON text: the schema describes an event's data or a line."""
    if media_type == JSONAnswer.media_type:
        return schema
    return {
        "type": "string",
        "contentMediaType": JSONAnswer.media_type,
        "contentSchema": schema,
    }


def _problem(status: HTTPStatus, content: Description) -> Description:
    headers = {"headers": RETRY_HEADERS} if status is HTTPStatus.SERVICE_UNAVAILABLE else {}
    return {"description": status.phrase, **headers, "content": content}


async def openapi(_: NoParameters, request: Request) -> Description:
    """This API as OpenAPI 3.1."""
    return describe(request.app.routes)


routes: list[Route] = [
    QueryEndpoint("/openapi.json", openapi, scope=PUBLIC, reads_database=False).route
]
