"""Read-your-writes: a read with If-Position-At-Least sees the log at least up to that position.

The database may be a standby that lags behind the primary. So the position is checked on the same
connection that then runs the query.
"""

from contextvars import ContextVar

from msgspec import Struct
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from daybook.api.http.request_reader import Headers, bad_request

HEADER = b"if-position-at-least"
POSITION_DIGITS_MAX = 18
# Below READ_SECONDS_MAX of the service.
WAIT_SECONDS_MAX = 1.0
# Commits of this service wake a waiting read at once; those of other processes are polled for.
POLL_SECONDS = 0.05

# The position itself, not only a later one: positions do not become visible in order.
FIND_POSITION = """
SELECT (SELECT max(notification_id) FROM stored_events)
WHERE EXISTS (SELECT FROM stored_events WHERE notification_id = %(position)s)
"""


class PositionNotReachedError(Exception):
    """The log does not contain the position, or not yet."""

    def __init__(self, position: int) -> None:
        super().__init__(
            f"The log has not reached position {position}: retry, or read without "
            "If-Position-At-Least."
        )


class AtLeast(Struct):
    position: int
    may_wait: bool = True
    """False for a request without a key, which may not occupy a connection."""

    visible_position: int | None = None
    """The last position of the log when the read began."""


AT_LEAST: ContextVar[AtLeast | None] = ContextVar("at_least", default=None)
"""Applies to every query of the current request."""


def read_at_least(headers: Headers) -> AtLeast | None:
    text = headers.get(HEADER)
    if text is None:
        return None
    if not text.isdigit() or len(text) > POSITION_DIGITS_MAX:
        raise bad_request("bad_position", "If-Position-At-Least must be a position of the log.")
    return AtLeast(int(text))


async def is_visible(connection: AsyncConnection[TupleRow], wanted: AtLeast) -> bool:
    if not wanted.position:
        return True
    found = await connection.execute(FIND_POSITION, {"position": wanted.position})
    row = await found.fetchone()
    if row is not None:
        wanted.visible_position = row[0]
    return row is not None
