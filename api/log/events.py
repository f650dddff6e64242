"""`GET /api/events`: the log in pages, or as NDJSON in the format of `daybook export`.

Reads stop at the horizon, so no event can appear later before one that a client has read.
"""

import asyncio
from http import HTTPStatus
from typing import Annotated, Any, TypedDict
from uuid import UUID

from msgspec import DecodeError, Meta, field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from daybook.api.endpoints.query import NDJSON, QueryEndpoint, service_of
from daybook.api.http.event_json import EventJSON, event_json
from daybook.api.http.problems import JSONAnswer
from daybook.api.http.query_parameters import Parameters
from daybook.api.http.request_reader import Id, bad_request, unprocessable
from daybook.api.keys.access import AUDITOR, is_key_valid
from daybook.api.log.ndjson_stream import LineStream
from daybook.domain.deciders import DECIDERS
from daybook.eventlog.codec import EventMapper, RecordedEvent
from daybook.eventlog.transfer.ndjson import (
    PAGE_BYTES,
    POSITION_MAX,
    EventFilter,
    Line,
    LogPager,
    read_head,
    read_line,
    read_page,
)
from daybook.projections.time_travel.log_search import (
    BadRangeError,
    BadSearchError,
    Span,
    find_span,
    wanted_of,
)

PAGE_DEFAULT = 1000
PAGE_MAX = 10_000
ANSWER_BYTES_MAX = 4 * PAGE_BYTES
# A search without an index scans at most this many positions, in less than a second.
SCANNED_MAX = 500_000
TEXT_CHARACTERS_MAX = 200
TOPIC_CHARACTERS_MAX = 1000
# Yields to the event loop after this many events.
RENDERED_AT_ONCE_MAX = 200

_MAPPER = EventMapper(DECIDERS)

Text = Annotated[str, Meta(min_length=1, max_length=TEXT_CHARACTERS_MAX)]
Instant = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=40,
        description="An instant: ISO 8601 with time zone.",
        examples=["2026-03-01T12:00:00Z"],
        extra_json_schema={"format": "date-time"},
    ),
]


class LogEventJSON(EventJSON):
    """`data` is rendered: camelCase members, defaults included. NDJSON lines have the stored
    form."""

    aggregate: UUID


class EventPageAnswer(TypedDict):
    """`nextAfter` is the `after` of the next page, which may be empty; null at the end. Later
    events follow after `horizon`."""

    events: list[LogEventJSON]
    nextAfter: int | None
    horizon: int


class LineJSON(TypedDict):
    """The format of `daybook export`: `data` is the stored form, byte for byte, in snake_case."""

    position: int
    aggregate: UUID
    version: int
    topic: str
    recordedAt: str
    actor: str
    commandId: UUID
    correlationId: UUID
    causationId: int | None
    data: dict[str, Any]


class EventListing(Parameters, frozen=True):
    after: Annotated[
        int, Meta(ge=0, le=POSITION_MAX, description="Only events after this position.")
    ] = 0
    limit: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=PAGE_MAX,
                description=f"Events at most; by default {PAGE_DEFAULT}, and all as NDJSON.",
            ),
        ]
        | None
    ) = None
    topic: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=TOPIC_CHARACTERS_MAX,
                description="Only topics with this prefix; several are separated by commas.",
                examples=["order.", "order.created,bot.created"],
            ),
        ]
        | None
    ) = None
    aggregate: Annotated[Id, Meta(description="Only events of this order, bot, job …")] | None = (
        None
    )
    actor: Annotated[Text, Meta(description="Only events of this actor.")] | None = None
    correlation: Annotated[Id, Meta(description="Only events of this correlation.")] | None = None
    since: Instant | None = field(default=None, name="from")
    until: Instant | None = field(default=None, name="to")


async def list_events(query: EventListing, request: Request) -> EventPageAnswer | Response:
    """The log by position, up to the horizon."""
    search = _read_filter(query)
    if _prefers_ndjson(request.headers.get("accept", "")):
        return await _stream(query, search, request)
    return JSONAnswer(await _page(query, search, request), headers={"Vary": "Accept"})


async def _stream(query: EventListing, search: EventFilter, request: Request) -> Response:
    service, positions_max = service_of(request), request.app.settings.events_stream_max
    span = await service.read(lambda reader: find_span(reader, search, query.after))
    return LineStream(
        service,
        _walk(search, span, positions_max),
        limit=query.limit or positions_max,
        horizon=span.horizon,
        is_authorised=lambda: is_key_valid(request),
    )


async def _page(query: EventListing, search: EventFilter, request: Request) -> EventPageAnswer:
    limit = query.limit or PAGE_DEFAULT

    async def read_events(reader: Any) -> tuple[Span, LogPager, list[bytes]]:
        span = await find_span(reader, search, query.after)
        walk = _walk(search, span, SCANNED_MAX)
        lines, size = list[bytes](), 0
        while not walk.is_over and len(lines) < limit and size < ANSWER_BYTES_MAX:
            page = await read_page(reader, walk, limit - len(lines))
            lines += page
            size += sum(map(len, page))
        return span, walk, lines

    span, walk, lines = await service_of(request).read(read_events)
    return {
        "events": await _render(lines),
        "nextAfter": walk.position if walk.position < span.upto else None,
        "horizon": span.horizon,
    }


def _walk(search: EventFilter, span: Span, positions_max: int) -> LogPager:
    """Limits the scan to `positions_max`, unless the aggregate index serves the search."""
    is_indexed = search.aggregate is not None
    upto = span.upto if is_indexed else min(span.upto, span.after + positions_max)
    return LogPager(search, after=span.after, upto=upto)


async def _render(lines: list[bytes]) -> list[LogEventJSON]:
    rendered: list[LogEventJSON] = []
    for first in range(0, len(lines), RENDERED_AT_ONCE_MAX):
        rendered += [
            _event_json(_line_of(line)) for line in lines[first : first + RENDERED_AT_ONCE_MAX]
        ]
        await asyncio.sleep(0)
    return rendered


def _line_of(text: bytes) -> Line:
    try:
        return read_line(text)
    except (DecodeError, UnicodeDecodeError):
        return read_head(text)


def _event_json(line: Line) -> LogEventJSON:
    recorded = RecordedEvent(
        position=line.position,
        originator_id=line.aggregate,
        originator_version=line.version,
        topic=line.topic,
        event=_MAPPER.decode_for_history(line.topic, bytes(line.data), line.recorded_at),
        recorded_at=line.recorded_at,
        actor=line.actor,
        command_id=line.command_id,
        correlation_id=line.correlation_id,
        causation_id=line.causation_id,
    )
    return {**event_json(recorded), "aggregate": line.aggregate}


def _prefers_ndjson(accept: str) -> bool:
    """The first supported media type wins."""
    kinds = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    ours = [kind for kind in kinds if kind in (NDJSON, JSONAnswer.media_type)]
    return ours[:1] == [NDJSON]


def _read_filter(query: EventListing) -> EventFilter:
    try:
        return wanted_of(
            topic=query.topic,
            aggregate=None if query.aggregate is None else UUID(query.aggregate),
            actor=query.actor,
            correlation=None if query.correlation is None else UUID(query.correlation),
            since=query.since,
            until=query.until,
        )
    except BadRangeError as error:
        raise unprocessable("bad_range", str(error)) from None
    except BadSearchError as error:
        raise bad_request("bad_parameter", str(error)) from None


EVENTS = QueryEndpoint(
    "/api/events",
    list_events,
    scope=AUDITOR,
    parameters=EventListing,
    # No If-Position-At-Least: the response contains its horizon, so clients poll.
    headers={},
    problems=(HTTPStatus.UNPROCESSABLE_ENTITY,),
    lines=LineJSON,
)

routes: list[Route] = [EVENTS.route]
