"""Search of the log: checks the filters and finds the range of positions."""

from datetime import datetime, timedelta
from uuid import UUID

from msgspec import Struct

from daybook.domain.deciders import DECIDERS
from daybook.domain.errors import BadValueError
from daybook.domain.values import INSTANT_FIRST, INSTANT_LAST, Instant, checked
from daybook.eventlog.codec import EventMapper
from daybook.eventlog.postgres.pipeline import Connection
from daybook.eventlog.reading.settled_position import settled_position
from daybook.eventlog.transfer.ndjson import EventFilter
from daybook.projections.time_travel.state_as_of import position_of

# Concurrent writers take positions and read the clock in no fixed order.
MARGIN = timedelta(seconds=1)

TOPICS = sorted(EventMapper(DECIDERS).known_topics)


class BadSearchError(Exception):
    """str(error) names the invalid filter."""


class BadRangeError(BadSearchError):
    """The range of instants ends before it begins."""


class Span(Struct, frozen=True):
    """Positions after `after` up to `upto`, and the settled horizon."""

    after: int
    upto: int
    horizon: int


def wanted_of(
    *,
    topic: str | None,
    aggregate: UUID | None,
    actor: str | None,
    correlation: UUID | None,
    since: str | None,
    until: str | None,
) -> EventFilter:
    begin, end = (None if one is None else _instant(one) for one in (since, until))
    if begin is not None and end is not None and begin > end:
        raise BadRangeError(
            f"The range ends before it begins: {since} is later than {until}. Swap the two."
        )
    return EventFilter(
        topics=None if topic is None else _topics(topic),
        aggregate=aggregate,
        actor=actor,
        correlation=correlation,
        since=begin,
        until=end,
    )


async def find_span(connection: Connection, wanted: EventFilter, after: int) -> Span:
    horizon = upto = await settled_position(connection)
    if wanted.since is not None:
        after = max(after, await position_of(connection, wanted.since - MARGIN))
    if wanted.until is not None:
        upto = min(upto, await position_of(connection, wanted.until + MARGIN))
    return Span(after, upto, horizon)


def _topics(text: str) -> list[str]:
    """Returns every topic that begins with one of these prefixes."""
    found: list[str] = []
    for beginning in text.split(","):
        fitting = [topic for topic in TOPICS if beginning and topic.startswith(beginning)]
        if not fitting:
            raise BadSearchError(
                f"No topic begins with {beginning!r}; the topics are {', '.join(TOPICS)}."
            )
        found += fitting
    return found


def _instant(text: str) -> datetime:
    try:
        instant: datetime = checked(text, Instant)
    except BadValueError:
        raise BadSearchError(
            f"{text!r} is no instant: write it with its zone, like 2026-03-01T12:00:00Z."
        ) from None
    # No event lies outside these, and MARGIN cannot overflow the calendar.
    return min(max(instant, INSTANT_FIRST), INSTANT_LAST)
