"""The only look at the clock of this machine."""

from datetime import UTC, datetime


def now() -> datetime:
    return datetime.now(UTC)
