"""The only module that reads the system clock."""

from datetime import UTC, datetime


def now() -> datetime:
    return datetime.now(UTC)
