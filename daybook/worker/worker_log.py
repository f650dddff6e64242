"""What a worker says about itself, through the standard library's logging.

The message is the name of the event, and what belongs to it are extra fields of the record.
Programs that set up logging themselves get them as they are; for all others `run` writes one line
of JSON for each.
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

# What every record has; the rest is what somebody wanted to say.
_USUAL = {*logging.makeLogRecord({}).__dict__, "message", "asctime", "taskName"}


class JSONLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "event": record.getMessage(),
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
        }
        line |= {name: value for name, value in vars(record).items() if name not in _USUAL}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return printable_json(encode(line, enc_hook=repr).decode(errors="replace"))


@contextmanager
def logged() -> Iterator[None]:
    """Events go to stderr for as long as this lasts, unless the program has seen to it."""
    ours = logging.getLogger("daybook")
    if ours.hasHandlers():
        yield
        return
    handler = logging.StreamHandler()
    handler.setFormatter(JSONLines())
    level = ours.level
    ours.addHandler(handler)
    ours.setLevel(level or logging.INFO)
    try:
        yield
    finally:
        ours.setLevel(level)
        ours.removeHandler(handler)


class JobLog:
    """The events of jobs. `subject_name` is what their subject is called in them, "bookingId"
    for instance."""

    def __init__(self, subject_name: str) -> None:
        self._subject_name = subject_name

    def processing(self, job: ClaimedJob) -> None:
        self._say("job:processing", job, attempts=job.attempts)

    def completed(self, job: ClaimedJob, seconds: float) -> None:
        self._say("job:completed", job, durationMs=round(seconds * 1000))

    def failed(
        self,
        job: ClaimedJob,
        error: str | None,
        *,
        status: JobStatus | None,
        cause: BaseException | None,
    ) -> None:
        """`status` tells whether it is tried again; `cause` is what nobody had expected."""
        level = logging.WARNING if status is JobStatus.PENDING else logging.ERROR
        fields = {"error": error, "attempts": job.attempts, "status": status}
        self._say("job:failed", job, level=level, cause=cause, **fields)

    def snoozed(self, job: ClaimedJob, until: datetime | None) -> None:
        self._say("job:snoozed", job, until=until)

    def released(self, job: ClaimedJob) -> None:
        self._say("job:released", job)

    def lost(self, job: ClaimedJob, reason: str) -> None:
        """Somebody else has it, or will; what came of it here does not count."""
        self._say("job:lost", job, level=logging.WARNING, error=reason)

    def _say(
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
