"""What happens at the counter, as lines of JSON: `{timestamp, level, event, context}`.

They go through the standard library's logging: a program that has set it up gets the records, and
for the service itself `written` prints them. No line carries a name or a number, whatever is said.
"""

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from msgspec.json import encode
from prometheus_client import Counter

from api import metrics
from api.requests import CANONICAL_UUID

logger = logging.getLogger("daybook.happenings")

LEVELS = {"rate_limit.hit": logging.WARNING}
COUNTERS: Mapping[str, Counter] = {
    "queue.created": metrics.JOINS,
    "queue.called": metrics.CALLS,
    "queue.idempotency_reuse": metrics.IDEMPOTENCY_REUSES,
}

MASKED = "…"
# Fields of this name are never for a log, whoever says them.
PERSONAL = re.compile(r"name|mobile|phone|guest|sealed|address", re.IGNORECASE)
# Digits as people write a number, long enough for one, and not part of an id or a moment.
NUMBER = re.compile(r"(?<![\w.:-])\+?\(?\d(?:[ ()./-]{0,2}\d){6,}(?![\w:-])")


def happened(event: str, **context: object) -> None:
    """Counts and tells it: `happened("queue.created", restaurantId=…, tokenNumber=…)`."""
    if counter := COUNTERS.get(event):
        counter.inc()
    level = LEVELS.get(event, logging.INFO)
    if logger.isEnabledFor(level):
        logger.log(level, event, extra={"context": masked(context)})


def masked(value: Any) -> Any:
    """The same without names and numbers: nothing under their field names, and no text that could
    be a telephone number."""
    if isinstance(value, Mapping):
        return {
            key: MASKED if PERSONAL.search(str(key)) else masked(one) for key, one in value.items()
        }
    if isinstance(value, list | tuple | set):
        return [masked(one) for one in value]
    if isinstance(value, str) and not CANONICAL_UUID.fullmatch(value):
        return NUMBER.sub(MASKED, value)
    return value


class Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        line = {
            "timestamp": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "context": getattr(record, "context", {}),
        }
        return encode(line, enc_hook=repr).decode(errors="replace")


@contextmanager
def written() -> Iterator[None]:
    """Lines go to stderr for as long as this lasts, unless the program has seen to it."""
    if logger.hasHandlers():
        yield
        return
    handler = logging.StreamHandler()
    handler.setFormatter(Lines())
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.propagate = True
        logger.setLevel(level)
        logger.removeHandler(handler)
