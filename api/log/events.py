"""The whole log: page by page, or as NDJSON line by line as `daybook export` writes it.

Only what is settled is told, so that nothing is added later to a part that somebody has read.
"""

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any, ClassVar, TypedDict
from uuid import UUID

import psycopg
from msgspec import DecodeError, Meta, field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from daybook.api.endpoints.query import AWAY, NDJSON, DatabaseQueryEndpoint
from daybook.api.http.event_json import EventJSON, event_json
from daybook.api.http.problems import unavailable_response
from daybook.api.http.query_parameters import Parameters
from daybook.api.http.request_reader import Id, bad_request, unprocessable
from daybook.api.keys.access import AUDITOR, is_key_valid
from daybook.api.log.ndjson_stream import LineStream
from daybook.api.runtime.service import Service
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

PAGE_USUAL = 1000
PAGE_MAX = 10_000
ANSWER_BYTES_MAX = 4 * PAGE_BYTES
# What has no index is looked for among so many positions, which takes a fraction of a second.
SCANNED_MAX = 500_000
TEXT_CHARACTERS_MAX = 200
TOPIC_CHARACTERS_MAX = 1000
# Others have their turn after so many events.
SHAPED_MAX = 200

_MAPPER = EventMapper(DECIDERS)

Text = Annotated[str, Meta(min_length=1, max_length=TEXT_CHARACTERS_MAX)]
Instant = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=40,
        description="An instant: ISO 8601, with its zone.",
        examples=["2026-03-01T12:00:00Z"],
        extra_json_schema={"format": "date-time"},
    ),
]


class LogEventJSON(EventJSON):
    """`data` is the event in its rendered form: its members in camelCase, with their defaults.
    Lines of NDJSON have the stored form."""

    aggregate: UUID


class EventPageAnswer(TypedDict):
    """`nextAfter` asks for the next page, which may be empty before there is none; at the end it is
    null, and what comes later stands behind `horizon`."""

    events: list[LogEventJSON]
    nextAfter: int | None
    horizon: int


class LineJSON(TypedDict):
    """As `daybook export` writes it: `data` is the event in its stored form, byte for byte, with
    members in snake_case."""

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
        int, Meta(ge=0, le=POSITION_MAX, description="Only events behind this position.")
    ] = 0
    limit: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=PAGE_MAX,
                description=f"How many events at most: {PAGE_USUAL} unless told, all as NDJSON.",
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
                description="Only topics that begin so; several are separated by commas.",
                examples=["order.", "order.created,bot.created"],
            ),
        ]
        | None
    ) = None
    aggregate: Annotated[Id, Meta(description="Only of this order, bot, job …")] | None = None
    actor: Annotated[Text, Meta(description="Only what this one did.")] | None = None
    correlation: Annotated[Id, Meta(description="Only of this correlation.")] | None = None
    since: Instant | None = field(default=None, name="from")
    until: Instant | None = field(default=None, name="to")


async def list_events(asked: EventListing, request: Request) -> EventPageAnswer:
    """The log in the order of its positions, as far as it is settled."""
    wanted, limit = _wanted(asked), asked.limit or PAGE_USUAL

    async def ask(reader: Any) -> tuple[Span, LogPager, list[bytes]]:
        span = await find_span(reader, wanted, asked.after)
        walk = _walk(wanted, span, SCANNED_MAX)
        lines, size = list[bytes](), 0
        while not walk.is_over and len(lines) < limit and size < ANSWER_BYTES_MAX:
            page = await read_page(reader, walk, limit - len(lines))
            lines += page
            size += sum(map(len, page))
        return span, walk, lines

    span, walk, lines = await _service(request).read(ask)
    return {
        "events": await _shaped(lines),
        "nextAfter": walk.position if walk.position < span.upto else None,
        "horizon": span.horizon,
    }


def _walk(wanted: EventFilter, span: Span, positions_max: int) -> LogPager:
    """No further than so many positions, unless an index leads straight to what is wanted."""
    is_cross_site_browser = wanted.aggregate is not None
    upto = span.upto if is_cross_site_browser else min(span.upto, span.after + positions_max)
    return LogPager(wanted, after=span.after, upto=upto)


async def _shaped(lines: list[bytes]) -> list[LogEventJSON]:
    shaped: list[LogEventJSON] = []
    for first in range(0, len(lines), SHAPED_MAX):
        shaped += [_event_json(_line_of(line)) for line in lines[first : first + SHAPED_MAX]]
        await asyncio.sleep(0)
    return shaped


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


class EventsRead(DatabaseQueryEndpoint):
    """The answer says up to where it goes: whoever waits for a position asks again."""

    headers: ClassVar[Mapping[str, Any]] = {}
    lines: ClassVar[Any] = LineJSON

    @property
    def problems(self) -> list[HTTPStatus]:
        return [*super().problems, HTTPStatus.UNPROCESSABLE_ENTITY]

    async def respond(self, request: Request) -> Response:
        if not _wants_lines(request.headers.get("accept", "")):
            response = await super().respond(request)
            response.headers["Vary"] = "Accept"
            return response
        asked = self.read(request)
        wanted, service = _wanted(asked), _service(request)
        try:
            span = await service.read(lambda reader: find_span(reader, wanted, asked.after))
        except (psycopg.OperationalError, OSError):
            return unavailable_response(AWAY)
        bound = request.app.settings.events_stream_max
        walk = _walk(wanted, span, bound)
        return LineStream(
            service,
            walk,
            limit=asked.limit or bound,
            horizon=span.horizon,
            goes_on=lambda: is_key_valid(request),
        )


def _wants_lines(accept: str) -> bool:
    """Of the forms there are, the one that is named first."""
    kinds = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    ours = [kind for kind in kinds if kind in (NDJSON, EventsRead.media_type)]
    return ours[:1] == [NDJSON]


def _wanted(asked: EventListing) -> EventFilter:
    try:
        return wanted_of(
            topic=asked.topic,
            aggregate=None if asked.aggregate is None else UUID(asked.aggregate),
            actor=asked.actor,
            correlation=None if asked.correlation is None else UUID(asked.correlation),
            since=asked.since,
            until=asked.until,
        )
    except BadRangeError as error:
        raise unprocessable("bad_range", str(error)) from None
    except BadSearchError as error:
        raise bad_request("bad_parameter", str(error)) from None


def _service(request: Request) -> Service:
    service: Service = request.app.service
    return service


routes: list[Route] = [
    EventsRead("/api/events", list_events, scope=AUDITOR, parameters=EventListing).route
]
