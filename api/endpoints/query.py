"""Endpoints that only read: parameters become a typed value, and an answer of a known type goes
back.

A module of endpoints says for each what it takes and how it answers. What is the same for all of
them stands here: reading the parameters, and what is told when the database cannot be read.
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
from daybook.domain.api_keys.scope import Scope as KeyScope
from daybook.eventlog.errors import UnavailableError
from daybook.projections.snapshot import ListBehindError

NDJSON = "application/x-ndjson"
AWAY = "The database cannot be read at the moment: ask again."


class QueryEndpoint:
    """One request, one answer, and nothing is changed."""

    media_type: ClassVar[str] = JSONAnswer.media_type
    headers: ClassVar[Mapping[str, Any]] = {}
    """Headers of the request that are looked at, with the type of each."""

    may_be_unavailable: ClassVar[bool] = False
    """Whether it may have to answer that the service is unavailable."""

    lines: ClassVar[Any] = None
    """The type of a line, where it also answers as NDJSON."""

    def __init__(
        self,
        path: str,
        answers: Callable[..., Any],
        *,
        scope: KeyScope,
        parameters: type[Parameters] = NoParameters,
    ) -> None:
        """`answers` gets the parameters and the request; its return type is the shape of the
        answer, its docstring the summary."""
        self.path, self.answers, self.parameters = path, answers, parameters
        self.scope = scope
        self.summary = (getdoc(answers) or "").partition("\n")[0]

    @property
    def route(self) -> Route:
        return Route(self.path, self, methods=["GET"])

    @property
    def problems(self) -> list[HTTPStatus]:
        """With what it may answer instead."""
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
        asked = read_parameters(request.scope["query_string"], self.parameters)
        page_max = request.app.settings.page_max
        if (getattr(asked, "limit", None) or 0) > page_max:
            sentence = f"The parameter limit may be {page_max} at most: ask for several pages."
            raise bad_request("bad_parameter", sentence)
        return asked


class DatabaseQueryEndpoint(QueryEndpoint):
    """One that says so when the database cannot be read, or not as far as was asked for."""

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
        if wanted.shown is not None:
            response.headers["Daybook-Position"] = str(wanted.shown)
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
