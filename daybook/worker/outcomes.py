"""Exceptions by which a handler chooses the outcome of its job.

A returned value completes the job. Any other exception means the same as `Retry`.
"""

from datetime import datetime

DAY_SECONDS = 86_400
AFTER_SECONDS_MAX = 30 * DAY_SECONDS
SNOOZE_SECONDS_MAX = 366 * DAY_SECONDS


class Retry(Exception):
    """Retry the job after `after` seconds, or after the usual backoff."""

    def __init__(
        self, reason: str = "The job asked to be tried again.", *, after: float | None = None
    ) -> None:
        if after is not None and not 0 <= after <= AFTER_SECONDS_MAX:
            raise ValueError(f"Retry takes 0 to {AFTER_SECONDS_MAX} seconds, not {after}.")
        super().__init__(reason)
        self.after_seconds = after


class Fail(Exception):
    """Move the job to the dead letters at once, because a retry would not help."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)


class Snooze(Exception):
    """Postpone the job. The attempt does not count."""

    def __init__(self, *, until: datetime | None = None, seconds: float | None = None) -> None:
        if (until is None) == (seconds is None):
            raise ValueError("Snooze takes either until or seconds.")
        if until is not None and until.tzinfo is None:
            raise ValueError("Snooze takes a datetime with a time zone.")
        if seconds is not None and not 0 <= seconds <= SNOOZE_SECONDS_MAX:
            raise ValueError(f"Snooze takes 0 to {SNOOZE_SECONDS_MAX} seconds, not {seconds}.")
        super().__init__("The job is not due yet.")
        self.until = until
        self.seconds = seconds
