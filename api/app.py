"""The HTTP application: which path leads to which endpoint."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from daybook.api import (
    board,
    bots,
    claims,
    completion,
    config,
    cron,
    dlq,
    doctor,
    events,
    explain,
    exposition,
    health,
    held,
    histories,
    job_bulk,
    job_claims,
    job_reads,
    jobs,
    login,
    messages,
    openapi,
    operation_stats,
    operations,
    orders,
    pages,
    pop,
    quarantine,
    queue_rates,
    queue_reads,
    queues,
    reads,
    rebuilds,
    redrive,
    restaurants,
    schedules,
    stream,
    subjects,
    ticket_figures,
    ticket_join,
    ticket_reads,
    ticket_search,
    tickets,
    upstreams,
)
from daybook.api.door import Door, guarded
from daybook.api.failed_keys import FailedKeys
from daybook.api.gauges import Gauges
from daybook.api.hosts import KnownHosts
from daybook.api.lookup import Lookup
from daybook.api.problems import (
    KNOWN_ERRORS,
    BadInputError,
    bad_input,
    internal_error,
    known_error,
    method_not_allowed,
    not_found,
    not_taken,
)
from daybook.api.queue_room import QueueRoom
from daybook.api.rate_limits import RateLimits
from daybook.api.request_context import REQUEST
from daybook.api.service import Service
from daybook.api.settings import Settings
from daybook.api.traffic import Noted, Traffic

# Routes are tried in this order, so the busy ones come first.
ROUTES: list[Route] = [
    *jobs.routes,
    *job_claims.routes,
    *messages.routes,
    *pop.routes,
    # Before that of one operation, whose id could be anything.
    *operation_stats.routes,
    *operations.routes,
    *bots.routes,
    *completion.routes,
    *orders.routes,
    *claims.routes,
    *ticket_join.routes,
    *ticket_figures.routes,
    *ticket_search.routes,
    *ticket_reads.routes,
    *tickets.routes,
    *restaurants.routes,
    *queues.routes,
    *redrive.routes,
    *job_bulk.routes,
    *job_reads.routes,
    *dlq.routes,
    *queue_reads.routes,
    *queue_rates.routes,
    *held.routes,
    *histories.routes,
    *events.routes,
    *reads.routes,
    *board.routes,
    *schedules.routes,
    *upstreams.routes,
    *subjects.routes,
    *cron.routes,
    *explain.routes,
    *rebuilds.routes,
    *quarantine.routes,
    *doctor.routes,
    *stream.routes,
    *config.routes,
    *login.routes,
    *openapi.routes,
    *health.routes,
    *exposition.routes,
    *pages.routes,
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
        assert (settings.auth == "open") is (service.keyring is None), "keys are looked after"
        self.door = Door(service.keyring, hosts=KnownHosts(settings), is_secure=settings.is_https)
        behind = guarded(routes, self.door)
        super().__init__(routes=behind, exception_handlers=EXCEPTION_HANDLERS)
        # One thing, one address: a path with a slash too many is unknown like any other.
        self.router.redirect_slashes = False
        self.service = service
        self.settings = settings
        self.callback_keys = completion.callback_keys(settings)
        self.cron_access = cron.cron_access(settings)
        self.queue_room = QueueRoom(service.read, settings.queue_depth_max)
        self.rate_limits = RateLimits(settings, service.guests, service.note)
        self.door.failed_keys = FailedKeys(settings, self.rate_limits, service.note)
        self.traffic = Traffic()
        self.gauges = Gauges(service, self.traffic)
        self._lookup = Lookup(routes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        REQUEST.set(scope)
        noted = Noted(scope, send)
        try:
            await self._answer(scope, receive, noted)
        finally:
            endpoint = scope.get("endpoint")
            self.traffic.note(scope["method"], endpoint, noted.status, noted.seconds)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._lookup.find(scope)
        if endpoint is None:
            methods = self._lookup.methods_instead(scope)
            answer = not_taken(scope["method"], scope["path"], methods) if methods else None
            await (answer or super().__call__)(scope, receive, send)
        else:
            scope["app"], scope["endpoint"] = self, endpoint
            # What the door does not let in, it answers itself.
            answer = self.door.check(scope, endpoint.needs)
            await (endpoint if answer is None else self.door.turn_away(answer))(
                scope, receive, send
            )
