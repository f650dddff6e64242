"""Log records of a worker: the message is the event's name, its data are extra fields.

A program that configures logging gets the records as they are; otherwise `Worker.run` writes one
line of JSON for each to stderr.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from msgspec.json import encode

from daybook.client.jobs import ClaimedJob, JobStatus
from daybook.printable import printable_json

logger = logging.getLogger("daybook.worker")

# Attributes of every record; all others are extra fields.
_STANDARD = {*logging.makeLogRecord({}).__dict__, "message", "asctime", "taskName"}


class JSONLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "event": record.getMessage(),
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
        }
        line |= {name: value for name, value in vars(record).items() if name not in _STANDARD}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return printable_json(encode(line, enc_hook=repr).decode(errors="replace"))


@contextmanager
def logged() -> Iterator[None]:
    """Writes records to stderr while it is open, unless the program has configured logging."""
    package = logging.getLogger("daybook")
    if package.hasHandlers():
        yield
        return
    handler = logging.StreamHandler()
    handler.setFormatter(JSONLines())
    level = package.level
    package.addHandler(handler)
    package.setLevel(level or logging.INFO)
    try:
        yield
    finally:
        package.setLevel(level)
        package.removeHandler(handler)


class JobLog:
    """Logs the events of jobs. `subject_name` is the field of their subject, such as
    "bookingId"."""

    def __init__(self, subject_name: str) -> None:
        self._subject_name = subject_name

    def processing(self, job: ClaimedJob) -> None:
        self._emit("job:processing", job, attempts=job.attempts)

    def completed(self, job: ClaimedJob, seconds: float) -> None:
        self._emit("job:completed", job, durationMs=round(seconds * 1000))

    def failed(
        self,
        job: ClaimedJob,
        error: str | None,
        *,
        status: JobStatus | None,
        cause: BaseException | None,
    ) -> None:
        """Logs a warning if the job is retried (`status` PENDING), else an error."""
        level = logging.WARNING if status is JobStatus.PENDING else logging.ERROR
        fields = {"error": error, "attempts": job.attempts, "status": status}
        self._emit("job:failed", job, level=level, cause=cause, **fields)

    def snoozed(self, job: ClaimedJob, until: datetime | None) -> None:
        self._emit("job:snoozed", job, until=until)

    def released(self, job: ClaimedJob) -> None:
        self._emit("job:released", job)

    def lost(self, job: ClaimedJob, reason: str) -> None:
        self._emit("job:lost", job, level=logging.WARNING, error=reason)

    def _emit(
        self,
        event: str,
        job: ClaimedJob,
        *,
        level: int = logging.INFO,
        cause: BaseException | None = None,
        **fields: Any,
    ) -> None:
        if logger.isEnabledFor(level):
            about = {"jobId": str(job.id), self._subject_name: job.subject, "type": job.type}
            logger.log(level, event, extra={**about, **fields}, exc_info=cause)
