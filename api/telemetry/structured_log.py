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
# Fields of this name are never for a log, whoever says them.
PERSONAL = re.compile(r"name|mobile|phone|guest|sealed|address", re.IGNORECASE)
# Digits as people write a number, long enough for one, and not part of an id or a moment.
NUMBER = re.compile(r"(?<![\w.:-])\+?\(?\d(?:[ ()./-]{0,2}\d){6,}(?![\w:-])")


def log_event(event: str, **context: object) -> None:
    """Counts and tells it: `happened("queue.created", restaurantId=…, tokenNumber=…)`."""
    if counter := COUNTERS.get(event):
        counter.inc()
    level = LEVELS.get(event, logging.INFO)
    if logger.isEnabledFor(level) and (event not in LIMITS or LIMITS[event].lets_through()):
        logger.log(level, event, extra={"context": redact(context)})


def tell_left_out(event: str, count: int) -> None:
    # It belongs to no single request, though one may be at hand.
    token = REQUEST.set(None)
    try:
        logger.log(LEVELS[event], event, extra={"context": {"linesLeftOut": count}})
    finally:
        REQUEST.reset(token)


# Of the lines that anybody without a key can cause.
LIMITS = {event: LineLimit(event, tell_left_out) for event in LEVELS}


def redact(value: Any) -> Any:
    """The same without names and numbers: nothing under their field names, and no text that could
    be a telephone number."""
    if isinstance(value, Mapping):
        return {
            key: MASKED if PERSONAL.search(str(key)) else redact(one) for key, one in value.items()
        }
    if isinstance(value, list | tuple | set):
        return [redact(one) for one in value]
    if isinstance(value, str) and not CANONICAL_UUID.fullmatch(value):
        return NUMBER.sub(MASKED, KEY.sub(MASKED, value))
    return value


def _line(_logger: object, _name: str, told: EventDict) -> EventDict:
    """The same four members for every record, whoever made it."""
    record: logging.LogRecord = told["_record"]
    at = datetime.fromtimestamp(record.created, UTC)
    context = {**request_context(), **getattr(record, "context", {})}
    if record.name != logger.name:
        context["logger"] = record.name
    if told.get("exc_info"):
        context["exception"] = "".join(format_exception(told["exc_info"][1]))
    return {
        "timestamp": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": record.levelname.lower(),
        "event": redact(told["event"]),
        "context": redact(context),
    }


def _json(line: EventDict, **_: Any) -> str:
    return printable_json(encode(line, enc_hook=repr).decode(errors="replace"))


def json_formatter() -> logging.Formatter:
    return ProcessorFormatter(processors=[_line, JSONRenderer(serializer=_json)])


@contextmanager
def json_logging() -> Iterator[None]:
    """Lines go to stderr for as long as this lasts, unless the program has seen to it."""
    if logger.hasHandlers():
        yield
        return
    handler = logging.StreamHandler()
    handler.setFormatter(json_formatter())
    level, everybody = logger.level, logging.getLogger()
    everybody.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        everybody.removeHandler(handler)
