"""What happened to one order, bot, job, ticket or restaurant, event by event."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypedDict

from msgspec import Meta
from starlette.requests import Request
from starlette.routing import Route

from daybook.api.endpoints.query import DatabaseQueryEndpoint
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
    """With which `after` the next page is asked for; null when there is none."""


class HistoryPage(Parameters, frozen=True):
    after: Annotated[
        int, Meta(ge=0, le=2**63 - 1, description="Only events behind this version.")
    ] = 0
    limit: Annotated[
        int, Meta(ge=1, le=PAGE_MAX, description="How many events a page has at most.")
    ] = PAGE_MAX


def history_of(
    decider: Decider[Any],
) -> Callable[[HistoryPage, Request], Awaitable[HistoryAnswer]]:
    async def history(asked: HistoryPage, request: Request) -> HistoryAnswer:
        """What happened to it, event by event."""
        wanted, limit = read_id(request.path_params["id"]), asked.limit
        # One more than asked for shows whether there is another page.
        events = await request.app.service.read(
            lambda reader: read_history_page(
                reader, decider, wanted, after=asked.after, limit=limit + 1
            )
        )
        if events is None:
            raise NotFoundError(decider.name, wanted)
        return {
            "events": [event_json(event) for event in events[:limit]],
            "nextAfter": events[limit - 1].originator_version if len(events) > limit else None,
        }

    return history


routes: list[Route] = [
    DatabaseQueryEndpoint(
        f"/api/{decider.name}s/{{id}}/history",
        history_of(decider),
        scope=AUDITOR,
        parameters=HistoryPage,
    ).route
    for decider in (ORDER, BOT, JOB, TICKET, RESTAURANT)
]
