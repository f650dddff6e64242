"""Types and bounds of all values that commands carry.

The log keeps events for ever, so an invalid value would stay for ever. Every entry point (HTTP,
push, `daybook.enqueue`, schedules, follow-ups, upstreams, import, command line) uses these types.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any

from msgspec import DecodeError, Meta, Raw, ValidationError, convert, json

from daybook.domain.errors import BadValueError
from daybook.domain.patterns import whole

# One year of margin at both ends of the calendar: an instant within these bounds has a local time
# in every time zone and survives every lease, backoff and grace period added to it.
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
"""Of a queue, job type, schedule or upstream."""

ActorName = Annotated[
    str,
    Meta(min_length=1, max_length=NAME_CHARACTERS_MAX, pattern=whole("[A-Za-z0-9._@-]{1,100}")),
]
"""Of a program that enqueues. No colon: in the log, a colon separates scope and key name."""

Text = Annotated[str, Meta(min_length=1, max_length=KEY_CHARACTERS_MAX)]
"""A subject, unique key, partition or worker id."""

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
"""The type checks only the time zone: a struct with an Instant must call `check_instant` in
`__post_init__`."""


def check_instant(at: datetime | None) -> None:
    if at is None:
        return
    if at.tzinfo is None:
        raise BadValueError("An instant needs a time zone, such as 2026-03-01T12:00:00Z")
    if not INSTANT_FIRST <= at <= INSTANT_LAST:
        raise BadValueError(f"An instant lies in the years {YEAR_FIRST} to {YEAR_LAST}, in UTC")


def check_text(text: str | None) -> None:
    """Raises BadValueError for text that PostgreSQL or UTF-8 cannot store."""
    if text is None:
        return
    if "\0" in text:
        raise BadValueError("No text may hold the character NUL")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadValueError("No text may hold half a character (a lone surrogate)") from None


def read_instant(text: str) -> datetime:
    instant: datetime = checked(text, Instant)
    check_instant(instant)
    return instant


def check_payload(payload: Raw) -> None:
    """For payloads from outside a request body, which the request reader checks. Raises
    BadValueError if the payload is too large, not JSON, nested too deeply, or not storable."""
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
    """Converts the value to the type; raises BadValueError if it is out of bounds."""
    try:
        return convert(value, kind, from_attributes=True)
    except ValidationError as error:
        raise BadValueError(str(error).removesuffix(".")) from None


def texts_in(content: Any) -> Iterator[str]:
    """Every string in decoded JSON, member names included."""
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
