"""The HTTP application: which path leads to which endpoint."""

from http import HTTPStatus

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from api.problems import JSONAnswer, Problem, internal_error, method_not_allowed, not_found
from api.service import Service

RETRY_AFTER = {"Retry-After": "1"}


def create_app(service: Service) -> Starlette:
    app = Starlette(
        routes=[
            Route("/health/live", live),
            Route("/health/ready", ready),
        ],
        exception_handlers={
            HTTPStatus.NOT_FOUND: not_found,
            HTTPStatus.METHOD_NOT_ALLOWED: method_not_allowed,
            Exception: internal_error,
        },
    )
    # One thing, one address: a path with a slash too many is unknown like any other.
    app.router.redirect_slashes = False
    app.state.service = service
    return app


async def live(_request: Request) -> Response:
    """The process answers. It says nothing of the database, whose trouble no restart cures."""
    return JSONAnswer({"status": "ok"})


async def ready(request: Request) -> Response:
    service: Service = request.app.state.service
    readiness = await service.readiness()
    if readiness.trouble is not None:
        return Problem(HTTPStatus.SERVICE_UNAVAILABLE, readiness.trouble, headers=RETRY_AFTER)
    return JSONAnswer({"status": "ready", "position": readiness.position})
