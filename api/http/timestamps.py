"""Timestamps as JSON: UTC with milliseconds."""

from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated

from msgspec import Meta

Moment = Annotated[
    str,
    Meta(
        description="ISO 8601 in UTC, with milliseconds.",
        examples=["2026-03-01T12:00:00.000Z"],
        extra_json_schema={"format": "date-time"},
    ),
]


# Orders of one batch share a timestamp, and are rendered repeatedly.
@lru_cache(maxsize=4096)
def moment(at: datetime) -> str:
    if at.tzinfo is not UTC:
        try:
            at = at.astimezone(UTC)
        except OverflowError:
            # Older versions accepted instants outside the range of UTC; they keep their offset.
            return at.isoformat(timespec="milliseconds")
    return at.isoformat(timespec="milliseconds")[:-6] + "Z"
