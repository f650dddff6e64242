"""Liveness and readiness probes."""

from typing import Literal, TypedDict

from starlette.requests import Request
from starlette.routing import Route

from daybook.api.endpoints.query import QueryEndpoint, service_of
from daybook.api.http.query_parameters import NoParameters
from daybook.api.keys.access import PUBLIC
from daybook.eventlog.errors import UnavailableError


class LiveJSON(TypedDict):
    status: Literal["ok"]


class ReadyJSON(TypedDict):
    status: Literal["ready"]
    position: int


async def live(_: NoParameters, _request: Request) -> LiveJSON:
    """Liveness: the process responds. Ignores the database, which a restart cannot repair."""
    return {"status": "ok"}


async def ready(_: NoParameters, request: Request) -> ReadyJSON:
    """Readiness: the service can read and write; returns the last log position."""
    readiness = await service_of(request).readiness()
    if readiness.trouble is not None:
        raise UnavailableError(readiness.trouble)
    return {"status": "ready", "position": readiness.position}


routes: list[Route] = [
    QueryEndpoint("/health/live", live, scope=PUBLIC, reads_database=False).route,
    QueryEndpoint("/health/ready", ready, scope=PUBLIC).route,
]
