"""The values that a command may carry: their types, their bounds, and the one error beyond them.

The log keeps every event for ever, so a value that cannot be read, computed with or shown again
would stay there for ever too. Every way in (HTTP, push, `daybook.enqueue`, schedules, follow-ups,
upstreams, import and the command line) takes these types and no others.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any

from msgspec import DecodeError, Meta, Raw, ValidationError, convert, json

from daybook.domain.errors import BadValueError
from daybook.domain.patterns import whole

# A year of room at both ends of the calendar: an instant within these bounds has a wall clock in
# every time zone, and survives every lease, backoff and grace period that is added to it.
YEAR_FIRST, YEAR_LAST = 1970, 9998
INSTANT_FIRST = datetime(YEAR_FIRST, 1, 1, tzinfo=UTC)
INSTANT_LAST = datetime(YEAR_LAST, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)

NAME_CHARACTERS_MAX = 100
KEY_CHARACTERS_MAX = 200
ERROR_CHARACTERS_MAX = 2000
REASON_CHARACTERS_MAX = 500
SLUG_CHARACTERS_MAX = 60
PRIORITY_LOWEST = 10
ATTEMPTS_MOST = 1000
FAILURES_MOST = 1000
LEASE_SECONDS_MAX = 24 * 3600
REST_SECONDS_MAX = 30 * 24 * 3600
COUNT_MAX = 1_000_000
PAYLOAD_BYTES_MAX = 64 * 1024
PAYLOAD_DEPTH_MAX = 512

NAME_PATTERN = whole(f"[A-Za-z0-9._:@-]{{1,{NAME_CHARACTERS_MAX}}}")

Name = Annotated[str, Meta(min_length=1, max_length=NAME_CHARACTERS_MAX, pattern=NAME_PATTERN)]
"""Of a queue, a type of job, a schedule or an upstream."""

ActorName = Annotated[
    str,
    Meta(min_length=1, max_length=NAME_CHARACTERS_MAX, pattern=whole("[A-Za-z0-9._@-]{1,100}")),
]
"""Of a program that enqueues. The log writes the scope of a key before a colon, so it has none."""

Text = Annotated[str, Meta(min_length=1, max_length=KEY_CHARACTERS_MAX)]
"""A subject, a unique key, a partition, the id of a worker."""

Error = Annotated[str, Meta(max_length=ERROR_CHARACTERS_MAX)]
Priority = Annotated[int, Meta(ge=1, le=PRIORITY_LOWEST)]
Attempts = Annotated[int, Meta(ge=1, le=ATTEMPTS_MOST)]
FailuresMax = Annotated[
    int,
    Meta(
        ge=0,
        le=FAILURES_MOST,
        description="After how many failed or expired claims in a row the bot is taken out of "
        "service; 0 for never.",
    ),
]
LeaseSeconds = Annotated[float, Meta(gt=0, le=LEASE_SECONDS_MAX)]
RestSeconds = Annotated[float, Meta(ge=0, le=REST_SECONDS_MAX)]
Count = Annotated[int, Meta(ge=1, le=COUNT_MAX)]
Instant = Annotated[
    datetime,
    Meta(tz=True, description=f"In the years {YEAR_FIRST} to {YEAR_LAST}, in UTC."),
]
"""A struct that has one calls `check_instant` for it in `__post_init__`: the type alone says only
that it has a time zone."""


def check_instant(at: datetime | None) -> None:
    if at is None:
        return
    if at.tzinfo is None:
        raise BadValueError("An instant has a time zone, such as 2026-03-01T12:00:00Z")
    if not INSTANT_FIRST <= at <= INSTANT_LAST:
        raise BadValueError(f"An instant lies in the years {YEAR_FIRST} to {YEAR_LAST}, in UTC")


def check_text(text: str | None) -> None:
    """Raises BadValueError for a text that PostgreSQL or UTF-8 cannot hold."""
    if text is None:
        return
    if "\0" in text:
        raise BadValueError("No text may hold the character NUL")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadValueError("No text may hold half a character (a lone surrogate)") from None


def read_instant(text: str) -> datetime:
    """Raises BadValueError."""
    instant: datetime = checked(text, Instant)
    check_instant(instant)
    return instant


def check_payload(payload: Raw) -> None:
    """For payloads that do not come in a request's body, which is checked when it is read. Raises
    BadValueError for content that is too large, is not JSON, or cannot be stored or read again."""
    size = memoryview(payload).nbytes
    if size > PAYLOAD_BYTES_MAX:
        raise BadValueError(
            f"A payload has {PAYLOAD_BYTES_MAX // 1024} KB at most, not {size:,} bytes: "
            "store it elsewhere and send a reference"
        )
    try:
        content = json.decode(payload)
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadValueError(f"A payload is JSON: {error}") from None
    _check_content(content)


def checked(value: Any, kind: Any) -> Any:
    """The value as that type, if it is within its bounds. Raises BadValueError."""
    try:
        return convert(value, kind)
    except ValidationError as error:
        raise BadValueError(str(error).removesuffix(".")) from None


def texts_in(content: Any) -> Iterator[str]:
    """Every text in decoded JSON, the names of members too."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, dict):
        yield from content
    for item in _items(content):
        yield from texts_in(item)


def _check_content(content: Any) -> None:
    level = [content]
    for _ in range(PAYLOAD_DEPTH_MAX + 1):
        for text in _texts(level):
            check_text(text)
        level = [item for value in level for item in _items(value)]
        if not level:
            return
    raise BadValueError(f"A payload is nested {PAYLOAD_DEPTH_MAX} times at most")


def _texts(values: list[Any]) -> list[str]:
    names = [name for value in values if isinstance(value, dict) for name in value]
    return names + [value for value in values if isinstance(value, str)]


def _items(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [*value.values()]
    return value if isinstance(value, list) else []
