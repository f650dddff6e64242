"""Event histories of single orders, bots, jobs, tickets and restaurants."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypedDict

from msgspec import Meta
from starlette.requests import Request
from starlette.routing import Route

from daybook.api.endpoints.query import QueryEndpoint, service_of
from daybook.api.http.event_json import EventJSON, event_json
from daybook.api.http.query_parameters import Parameters
from daybook.api.http.request_reader import read_id
from daybook.api.keys.access import AUDITOR
from daybook.domain.errors import NotFoundError
from daybook.domain.event import Decider
from daybook.domain.jobs.job import JOB
from daybook.domain.orders.bot import BOT
from daybook.domain.orders.order import ORDER
from daybook.domain.tickets.restaurant import RESTAURANT
from daybook.domain.tickets.ticket import TICKET
from daybook.projections.history import read_history_page

PAGE_MAX = 1000


class HistoryAnswer(TypedDict):
    events: list[EventJSON]
    nextAfter: int | None
    """The `after` of the next page; null at the end."""


class HistoryPage(Parameters, frozen=True):
    after: Annotated[
        int, Meta(ge=0, le=2**63 - 1, description="Only events after this version.")
    ] = 0
    limit: Annotated[int, Meta(ge=1, le=PAGE_MAX, description="Events per page at most.")] = (
        PAGE_MAX
    )


def history_of(
    decider: Decider[Any],
) -> Callable[[HistoryPage, Request], Awaitable[HistoryAnswer]]:
    async def history(query: HistoryPage, request: Request) -> HistoryAnswer:
        """The events of one aggregate, oldest first."""
        aggregate_id, limit = read_id(request.path_params["id"]), query.limit
        # One more than the limit shows whether there is another page.
        events = await service_of(request).read(
            lambda reader: read_history_page(
                reader, decider, aggregate_id, after=query.after, limit=limit + 1
            )
        )
        if events is None:
            raise NotFoundError(decider.name, aggregate_id)
        return {
            "events": [event_json(event) for event in events[:limit]],
            "nextAfter": events[limit - 1].originator_version if len(events) > limit else None,
        }

    return history


routes: list[Route] = [
    QueryEndpoint(
        f"/api/{decider.name}s/{{id}}/history",
        history_of(decider),
        scope=AUDITOR,
        parameters=HistoryPage,
    ).route
    for decider in (ORDER, BOT, JOB, TICKET, RESTAURANT)
]
