"""The HTTP application: routes, exception handlers and the authentication before them."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from daybook.api.admin import (
    doctor,
    explain,
    health,
    metrics,
    openapi,
    public_config,
    quarantine,
    rebuilds,
)
from daybook.api.admin.gauges import Gauges
from daybook.api.endpoints.router import Lookup
from daybook.api.http.problems import (
    KNOWN_ERRORS,
    BadInputError,
    bad_input,
    internal_error,
    known_error,
    method_not_allowed,
    method_not_allowed_response,
    not_found,
)
from daybook.api.jobs import (
    bulk as job_bulk,
)
from daybook.api.jobs import (
    claim as job_claims,
)
from daybook.api.jobs import (
    commands as job_commands,
)
from daybook.api.jobs import (
    cron_trigger,
    dead_letters,
    queue_queries,
    queue_rates,
    queues,
    redrive,
)
from daybook.api.jobs import (
    leases as job_leases,
)
from daybook.api.jobs import (
    queries as job_queries,
)
from daybook.api.limits.queue_depth import QueueDepthLimit
from daybook.api.limits.rate_limits import RateLimits
from daybook.api.log import events, histories, sse
from daybook.api.login import login
from daybook.api.login.authentication import Authenticator, guard_routes
from daybook.api.login.failed_attempts import FailedKeys
from daybook.api.messages import operation_stats, operations, pop, push_and_ack
from daybook.api.orders import board, bots, bulk_claim, completion_callback
from daybook.api.orders import commands as order_commands
from daybook.api.orders import queries as order_queries
from daybook.api.runtime.service import Service
from daybook.api.schedules import endpoints as schedules
from daybook.api.settings.public_hosts import KnownHosts
from daybook.api.settings.settings import Settings
from daybook.api.telemetry.request_context import REQUEST
from daybook.api.telemetry.request_metrics import RequestMetrics, TimedSend
from daybook.api.tickets import erasure, join, restaurants, search, staff_commands, stats
from daybook.api.tickets import queries as ticket_queries
from daybook.api.upstreams import endpoints as upstreams
from daybook.api.web import pages

# Routes are tried in this order, so the busy ones come first.
ROUTES: list[Route] = [
    *job_commands.routes,
    *job_claims.routes,
    *push_and_ack.routes,
    *pop.routes,
    # Before the route of one operation, whose id would match this path.
    *operation_stats.routes,
    *operations.routes,
    *bots.routes,
    *completion_callback.routes,
    *order_commands.routes,
    *bulk_claim.routes,
    *join.routes,
    *stats.routes,
    *search.routes,
    *ticket_queries.routes,
    *staff_commands.routes,
    *restaurants.routes,
    *queues.routes,
    *redrive.routes,
    *job_bulk.routes,
    *job_queries.routes,
    *dead_letters.routes,
    *queue_queries.routes,
    *queue_rates.routes,
    *job_leases.routes,
    *histories.routes,
    *events.routes,
    *order_queries.routes,
    *board.routes,
    *schedules.routes,
    *upstreams.routes,
    *erasure.routes,
    *cron_trigger.routes,
    *explain.routes,
    *rebuilds.routes,
    *quarantine.routes,
    *doctor.routes,
    *sse.routes,
    *public_config.routes,
    *login.routes,
    *openapi.routes,
    *health.routes,
    *metrics.routes,
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
        assert (settings.auth == "open") is (service.key_cache is None), "auth needs a key cache"
        self.authenticator = Authenticator(
            service.key_cache, hosts=KnownHosts(settings), is_secure=settings.is_https
        )
        guarded = guard_routes(routes, self.authenticator)
        super().__init__(routes=guarded, exception_handlers=EXCEPTION_HANDLERS)
        # Each resource has one URL: a path with a trailing slash is not found.
        self.router.redirect_slashes = False
        self.service = service
        self.settings = settings
        self.callback_keys = completion_callback.callback_keys(settings)
        self.cron_access = cron_trigger.cron_access(settings)
        self.queue_depth_limit = QueueDepthLimit(service.read, settings.queue_depth_max)
        self.rate_limits = RateLimits(settings, service.guests, service.run_on_relaxed_connection)
        self.authenticator.failed_keys = FailedKeys(
            settings, self.rate_limits, service.run_on_relaxed_connection
        )
        self.traffic = RequestMetrics()
        self.gauges = Gauges(service, self.traffic)
        self._lookup = Lookup(routes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        REQUEST.set(scope)
        timed_send = TimedSend(scope, send)
        try:
            await self._handler(scope)(scope, receive, timed_send)
        finally:
            endpoint = scope.get("endpoint")
            self.traffic.observe(scope["method"], endpoint, timed_send.status, timed_send.seconds)

    def _handler(self, scope: Scope) -> ASGIApp:
        """The endpoint of a write, or the response that rejects the request. Starlette handles
        everything else."""
        endpoint = self._lookup.find(scope)
        if endpoint is None:
            methods = self._lookup.allowed_methods(scope)
            if methods:
                return method_not_allowed_response(scope["method"], scope["path"], methods)
            return super().__call__
        scope["app"], scope["endpoint"] = self, endpoint
        refused = self.authenticator.check(scope, endpoint.needs)
        return endpoint if refused is None else self.authenticator.reject(refused)
