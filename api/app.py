"""The HTTP application: which path leads to which endpoint."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from api import (
    bots,
    claims,
    completion,
    config,
    cron,
    dlq,
    events,
    explain,
    health,
    histories,
    job_claims,
    job_reads,
    jobs,
    messages,
    openapi,
    operations,
    orders,
    pop,
    queue_reads,
    queues,
    reads,
    redrive,
    schedules,
    stream,
    upstreams,
)
from api.lookup import Lookup
from api.problems import (
    KNOWN_ERRORS,
    BadInputError,
    bad_input,
    internal_error,
    known_error,
    method_not_allowed,
    not_found,
)
from api.service import Service
from api.settings import Settings

# Routes are tried in this order, so the busy ones come first.
ROUTES: list[Route] = [
    *jobs.routes,
    *job_claims.routes,
    *messages.routes,
    *pop.routes,
    *operations.routes,
    *bots.routes,
    *completion.routes,
    *orders.routes,
    *claims.routes,
    *queues.routes,
    *redrive.routes,
    *job_reads.routes,
    *dlq.routes,
    *queue_reads.routes,
    *histories.routes,
    *events.routes,
    *reads.routes,
    *schedules.routes,
    *upstreams.routes,
    *cron.routes,
    *explain.routes,
    *stream.routes,
    *config.routes,
    *openapi.routes,
    *health.routes,
]

EXCEPTION_HANDLERS: Mapping[Any, Any] = {
    HTTPStatus.NOT_FOUND: not_found,
    HTTPStatus.METHOD_NOT_ALLOWED: method_not_allowed,
    BadInputError: bad_input,
    **dict.fromkeys(KNOWN_ERRORS, known_error),
    Exception: internal_error,
}


class App(Starlette):
    def __init__(
        self, service: Service, settings: Settings, *, routes: Sequence[Route] = ROUTES
    ) -> None:
        super().__init__(routes=routes, exception_handlers=EXCEPTION_HANDLERS)
        # One thing, one address: a path with a slash too many is unknown like any other.
        self.router.redirect_slashes = False
        self.service = service
        self.settings = settings
        self.callback_keys = completion.callback_keys(settings)
        self.cron_access = cron.cron_access(settings)
        self._lookup = Lookup(routes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._lookup.find(scope) if scope["type"] == "http" else None
        if endpoint is None:
            await super().__call__(scope, receive, send)
        else:
            scope["app"] = self
            await endpoint(scope, receive, send)
