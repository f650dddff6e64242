"""Structured logs: one line of JSON for each event, `{timestamp, level, event, context}`.

Lines go through the standard library's logging. A program that configures logging gets the records;
the service prints them with `json_logging`. Each line names its request. Names, phone numbers and
keys are redacted.
"""

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from traceback import format_exception
from typing import Any

from msgspec.json import encode
from prometheus_client import Counter
from structlog.processors import JSONRenderer
from structlog.stdlib import ProcessorFormatter
from structlog.typing import EventDict

from daybook.api.telemetry import counters
from daybook.api.telemetry.log_flood_limit import LineLimit
from daybook.api.telemetry.request_context import REQUEST, request_context
from daybook.domain.api_keys.key import KEY_PREFIX
from daybook.domain.ids import CANONICAL_UUID
from daybook.printable import printable_json

logger = logging.getLogger("daybook.happenings")

LEVELS = {"rate_limit.hit": logging.WARNING, "access.denied": logging.WARNING}
COUNTERS: Mapping[str, Counter] = {
    "queue.created": counters.JOINS,
    "queue.called": counters.CALLS,
    "queue.idempotency_reuse": counters.IDEMPOTENCY_REUSES,
}

MASKED = "…"
KEY = re.compile(rf"{KEY_PREFIX}[\w-]+")
# Values of fields with these names are always redacted.
PERSONAL = re.compile(r"name|mobile|phone|guest|sealed|address", re.IGNORECASE)
# A phone number as people write it, and not part of an id or a timestamp.
NUMBER = re.compile(r"(?<![\w.:-])\+?\(?\d(?:[ ()./-]{0,2}\d){6,}(?![\w:-])")


def log_event(event: str, **context: object) -> None:
    """Counts and logs an event: `log_event("queue.created", restaurantId=…, tokenNumber=…)`."""
    if counter := COUNTERS.get(event):
        counter.inc()
    level = LEVELS.get(event, logging.INFO)
    if logger.isEnabledFor(level) and (event not in LIMITS or LIMITS[event].allow()):
        logger.log(level, event, extra={"context": redact(context)})


def report_left_out(event: str, count: int) -> None:
    # The count belongs to no single request, even if one is being handled.
    token = REQUEST.set(None)
    try:
        logger.log(LEVELS[event], event, extra={"context": {"linesLeftOut": count}})
    finally:
        REQUEST.reset(token)


# Events that clients without a key can cause.
LIMITS = {event: LineLimit(event, report_left_out) for event in LEVELS}


def redact(value: Any) -> Any:
    """Masks values of personal fields, and texts that may be a key or a phone number."""
    if isinstance(value, Mapping):
        return {
            key: MASKED if PERSONAL.search(str(key)) else redact(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple | set):
        return [redact(item) for item in value]
    if isinstance(value, str) and not CANONICAL_UUID.fullmatch(value):
        return NUMBER.sub(MASKED, KEY.sub(MASKED, value))
    return value


def _line(_logger: object, _name: str, event_dict: EventDict) -> EventDict:
    """The four members of each line, also for records of other loggers."""
    record: logging.LogRecord = event_dict["_record"]
    at = datetime.fromtimestamp(record.created, UTC)
    context = {**request_context(), **getattr(record, "context", {})}
    if record.name != logger.name:
        context["logger"] = record.name
    if event_dict.get("exc_info"):
        context["exception"] = "".join(format_exception(event_dict["exc_info"][1]))
    return {
        "timestamp": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": record.levelname.lower(),
        "event": redact(event_dict["event"]),
        "context": redact(context),
    }


def _json(line: EventDict, **_: Any) -> str:
    return printable_json(encode(line, enc_hook=repr).decode(errors="replace"))


def json_formatter() -> logging.Formatter:
    return ProcessorFormatter(processors=[_line, JSONRenderer(serializer=_json)])


@contextmanager
def json_logging() -> Iterator[None]:
    """Logs to stderr within the context, unless the program has configured handlers."""
    if logger.hasHandlers():
        yield
        return
    handler = logging.StreamHandler()
    handler.setFormatter(json_formatter())
    level, root = logger.level, logging.getLogger()
    root.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        root.removeHandler(handler)
