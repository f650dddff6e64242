"""Base classes of endpoints that read: typed parameters in, a response of a declared type out.

They also read If-Position-At-Least, and answer 503 when the database cannot be read.
"""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from inspect import getdoc
from typing import Any, ClassVar

import psycopg
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from daybook.api.http.problems import RETRY_AFTER, JSONAnswer, Problem, unavailable_response
from daybook.api.http.query_parameters import NoParameters, Parameters, read_parameters
from daybook.api.http.read_position import AT_LEAST, PositionNotReachedError, read_at_least
from daybook.api.http.request_reader import Position, bad_request
from daybook.api.keys.access import caller_of
from daybook.api.runtime.service import Service
from daybook.domain.api_keys.scope import Scope as KeyScope
from daybook.eventlog.errors import UnavailableError
from daybook.projections.snapshot import ListBehindError

NDJSON = "application/x-ndjson"
AWAY = "The database cannot be read at the moment: retry."


class QueryEndpoint:
    media_type: ClassVar[str] = JSONAnswer.media_type
    headers: ClassVar[Mapping[str, Any]] = {}
    """Supported request headers with their types."""

    may_be_unavailable: ClassVar[bool] = False
    """Whether it can answer 503."""

    lines: ClassVar[Any] = None
    """The type of a line, if it also answers as NDJSON."""

    def __init__(
        self,
        path: str,
        answers: Callable[..., Any],
        *,
        scope: KeyScope,
        parameters: type[Parameters] = NoParameters,
    ) -> None:
        """`answers` gets the parameters and the request. Its return type and docstring describe the
        endpoint in OpenAPI."""
        self.path, self.answers, self.parameters = path, answers, parameters
        self.scope = scope
        self.summary = (getdoc(answers) or "").partition("\n")[0]

    @property
    def route(self) -> Route:
        return Route(self.path, self, methods=["GET"])

    @property
    def problems(self) -> list[HTTPStatus]:
        others = {
            HTTPStatus.NOT_FOUND: "{" in self.path,
            HTTPStatus.SERVICE_UNAVAILABLE: self.may_be_unavailable,
        }
        return [HTTPStatus.BAD_REQUEST, *(status for status, may_be in others.items() if may_be)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self.respond(Request(scope))
        await response(scope, receive, send)

    async def respond(self, request: Request) -> Response:
        return JSONAnswer(await self.answers(self.read(request), request))

    def read(self, request: Request) -> Any:
        parameters = read_parameters(request.scope["query_string"], self.parameters)
        page_max = request.app.settings.page_max
        if (getattr(parameters, "limit", None) or 0) > page_max:
            sentence = f"The parameter limit may be {page_max} at most: read several pages."
            raise bad_request("bad_parameter", sentence)
        return parameters


class DatabaseQueryEndpoint(QueryEndpoint):
    """A query that reads the database, and answers 503 if it is unreachable or behind."""

    headers: ClassVar[Mapping[str, Any]] = {"If-Position-At-Least": Position}
    may_be_unavailable: ClassVar[bool] = True

    async def respond(self, request: Request) -> Response:
        wanted = read_at_least(dict(request.scope["headers"])) if self.headers else None
        if wanted is None:
            return await self._respond(request)
        wanted.may_wait = bool(caller_of(request).mask)
        token = AT_LEAST.set(wanted)
        try:
            response = await self._respond(request)
        finally:
            AT_LEAST.reset(token)
        if wanted.visible_position is not None:
            response.headers["Daybook-Position"] = str(wanted.visible_position)
        return response

    async def _respond(self, request: Request) -> Response:
        try:
            return await super().respond(request)
        except PositionNotReachedError as error:
            return Problem(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "position_not_reached",
                str(error),
                headers=RETRY_AFTER,
            )
        except (ListBehindError, UnavailableError) as error:
            return unavailable_response(str(error))
        except (psycopg.OperationalError, OSError):
            return unavailable_response(AWAY)


def service_of(request: Request) -> Service:
    service: Service = request.app.service
    return service
