"""Daily figures of a restaurant."""

from datetime import date
from typing import Annotated, TypedDict

from msgspec import Meta
from starlette.requests import Request
from starlette.routing import Route

from daybook.api.endpoints.query import QueryEndpoint, service_of
from daybook.api.http.query_parameters import Parameters
from daybook.api.http.request_reader import bad_request
from daybook.api.keys.access import AUDITOR, STAFF, can_see
from daybook.api.tickets.restaurants import read_slug
from daybook.domain.errors import NotFoundError
from daybook.domain.patterns import whole
from daybook.domain.tickets.ticket import TicketStatus
from daybook.projections.tickets.ticket_stats import Figures, read_figures

DAY_PATTERN = whole("20[0-9]{2}-[0-9]{2}-[0-9]{2}")
DAY_CHARACTERS = 10


class HourJSON(TypedDict):
    hour: int
    joined: int


class FiguresJSON(TypedDict):
    day: date
    timeZone: str
    joined: int
    byStatus: dict[str, int]
    byHour: list[HourJSON]
    """Hours of the restaurant's local time with at least one join."""
    called: int
    averageWaitMinutes: float | None
    """From joining to the last call; null without calls."""
    longestWaitMinutes: float | None


class FiguresAnswer(TypedDict):
    figures: FiguresJSON


class FiguresWanted(Parameters, frozen=True):
    day: (
        Annotated[
            str,
            Meta(
                min_length=DAY_CHARACTERS,
                max_length=DAY_CHARACTERS,
                pattern=DAY_PATTERN,
                description="A local day of the restaurant; by default today.",
                extra_json_schema={"format": "date"},
            ),
        ]
        | None
    ) = None


async def get_figures(query: FiguresWanted, request: Request) -> FiguresAnswer:
    """Joins, outcomes and waiting times of one day."""
    slug = read_slug(request.path_params["slug"])
    day = None if query.day is None else _read_day(query.day)
    found = await service_of(request).read(lambda reader: read_figures(reader, slug, day))
    if found is None or not can_see(request, found[0]):
        raise NotFoundError("restaurant", slug)
    return {"figures": figures_json(found[1])}


def _read_day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        sentence = f"The parameter day must be a valid date, not {text}."
        raise bad_request("bad_parameter", sentence) from None


def figures_json(figures: Figures) -> FiguresJSON:
    was_called = figures.called_count > 0
    return {
        "day": figures.day,
        "timeZone": figures.time_zone,
        "joined": figures.by_hour.total(),
        "byStatus": {status.value: figures.by_status[status] for status in TicketStatus},
        "byHour": [{"hour": hour, "joined": n} for hour, n in sorted(figures.by_hour.items())],
        "called": figures.called_count,
        "averageWaitMinutes": (
            _minutes(figures.waited_seconds / figures.called_count) if was_called else None
        ),
        "longestWaitMinutes": _minutes(figures.longest_seconds) if was_called else None,
    }


def _minutes(seconds: float) -> float:
    return round(seconds / 60, 1)


routes: list[Route] = [
    QueryEndpoint(
        "/api/restaurants/{slug}/figures",
        get_figures,
        scope=STAFF | AUDITOR,
        parameters=FiguresWanted,
    ).route
]
