"""Whether the process answers, and whether it can do its work."""

from typing import Literal, TypedDict

from starlette.requests import Request
from starlette.routing import Route

from daybook.api.endpoints.query import DatabaseQueryEndpoint, QueryEndpoint
from daybook.api.http.query_parameters import NoParameters
from daybook.api.keys.access import PUBLIC
from daybook.api.runtime.service import Service
from daybook.eventlog.errors import UnavailableError


class LiveJSON(TypedDict):
    status: Literal["ok"]


class ReadyJSON(TypedDict):
    status: Literal["ready"]
    position: int


async def live(_: NoParameters, _request: Request) -> LiveJSON:
    """The process answers. It says nothing of the database, whose trouble no restart cures."""
    return {"status": "ok"}


async def ready(_: NoParameters, request: Request) -> ReadyJSON:
    """The service can do its work, and where its log ends."""
    service: Service = request.app.service
    readiness = await service.readiness()
    if readiness.trouble is not None:
        raise UnavailableError(readiness.trouble)
    return {"status": "ready", "position": readiness.position}


routes: list[Route] = [
    QueryEndpoint("/health/live", live, scope=PUBLIC).route,
    DatabaseQueryEndpoint("/health/ready", ready, scope=PUBLIC).route,
]
