"""Endpoints that read. Each is one `QueryEndpoint`: typed parameters in, a response of a declared
type out.

They also read If-Position-At-Least, and answer 503 when the database cannot be read.
"""

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from inspect import getdoc
from typing import Any

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
CANNOT_READ = "The database cannot be read at the moment: retry."
POSITION_HEADER: Mapping[str, Any] = {"If-Position-At-Least": Position}


class QueryEndpoint:
    def __init__(
        self,
        path: str,
        answers: Callable[[Any, Request], Awaitable[Any]],
        *,
        scope: KeyScope,
        parameters: type[Parameters] = NoParameters,
        reads_database: bool = True,
        headers: Mapping[str, Any] = POSITION_HEADER,
        problems: tuple[HTTPStatus, ...] = (),
        media_type: str = JSONAnswer.media_type,
        lines: Any = None,
    ) -> None:
        """`answers` gets the parameters and the request; it returns JSON, or a response. Its return
        type and docstring describe the endpoint in OpenAPI. Policies:

        - `reads_database`: whether it can answer 503, and supports If-Position-At-Least.
        - `headers`: supported request headers with their types.
        - `problems`: further documented problem statuses.
        - `lines`: the type of a line, if it also answers as NDJSON.
        """
        self.path, self.answers, self.parameters = path, answers, parameters
        self.scope = scope
        self.summary = (getdoc(answers) or "").partition("\n")[0]
        self.media_type, self.lines = media_type, lines
        self.headers = headers if reads_database else {}
        others = {
            HTTPStatus.NOT_FOUND: "{" in path,
            HTTPStatus.SERVICE_UNAVAILABLE: reads_database,
        }
        documented = [status for status, may_be in others.items() if may_be]
        self.problems = [HTTPStatus.BAD_REQUEST, *documented, *problems]
        self._has_position = self.headers is POSITION_HEADER

    @property
    def route(self) -> Route:
        return Route(self.path, self, methods=["GET"])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        wanted = read_at_least(dict(scope["headers"])) if self._has_position else None
        if wanted is None:
            response = await self._respond(request)
        else:
            wanted.may_wait = bool(caller_of(request).mask)
            token = AT_LEAST.set(wanted)
            try:
                response = await self._respond(request)
            finally:
                AT_LEAST.reset(token)
            if wanted.visible_position is not None:
                response.headers["Daybook-Position"] = str(wanted.visible_position)
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        try:
            answer = await self.answers(self._read(request), request)
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
            return unavailable_response(CANNOT_READ)
        return answer if isinstance(answer, Response) else JSONAnswer(answer)

    def _read(self, request: Request) -> Any:
        parameters = read_parameters(request.scope["query_string"], self.parameters)
        page_max = request.app.settings.page_max
        if (getattr(parameters, "limit", None) or 0) > page_max:
            sentence = f"The parameter limit may be {page_max} at most: read several pages."
            raise bad_request("bad_parameter", sentence)
        return parameters


def service_of(request: Request) -> Service:
    service: Service = request.app.service
    return service
