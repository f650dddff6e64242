"""What is looked for in the log, as people and programs ask for it, and where it can be."""

from datetime import datetime, timedelta
from uuid import UUID

from msgspec import Struct

from daybook.domain.deciders import DECIDERS
from daybook.domain.errors import BadValueError
from daybook.domain.values import INSTANT_FIRST, INSTANT_LAST, Instant, checked
from daybook.eventlog.codec import EventMapper
from daybook.eventlog.postgres.pipeline import Connection
from daybook.eventlog.reading.settled_position import settled_position
from daybook.eventlog.transfer.ndjson import EventFilter, LogPager
from daybook.projections.time_travel.state_as_of import position_of

# Writers at the same moment draw positions and look at the clock in no fixed order.
MARGIN = timedelta(seconds=1)

TOPICS = sorted(EventMapper(DECIDERS).known_topics)


class BadSearchError(Exception):
    """str(error) says what cannot be looked for."""


class BadRangeError(BadSearchError):
    """Of two instants, the one that ends the range is the earlier one."""


class Span(Struct, frozen=True):
    """Between which positions: behind the one, up to the other, and up to where all is settled."""

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
            f"The range ends before it begins: {since} is later than {until}. Exchange the two."
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


def walk_along(wanted: EventFilter, span: Span) -> LogPager:
    return LogPager(wanted, after=span.after, upto=span.upto)


def _topics(text: str) -> list[str]:
    """Of every topic that begins with one of these."""
    found: list[str] = []
    for beginning in text.split(","):
        fitting = [topic for topic in TOPICS if beginning and topic.startswith(beginning)]
        if not fitting:
            raise BadSearchError(
                f"No topic begins with {beginning!r}: there are {', '.join(TOPICS)}."
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
    # Nothing was recorded outside of these, and with a margin they are still within the calendar.
    return min(max(instant, INSTANT_FIRST), INSTANT_LAST)
