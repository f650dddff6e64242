"""Reading one's own writes: a read that names a position is shown nothing older than that.

Every answer is current as of the database that it is read from. That may be a standby, which
follows the one that is written to. So whoever wrote at a position, and then reads with it, is
answered once that position is there, on the very connection that is read from.
"""

from contextvars import ContextVar

from msgspec import Struct
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from daybook.api.http.request_reader import Headers, bad_request

HEADER = b"if-position-at-least"
POSITION_DIGITS_MAX = 18
# Less than a read may take as a whole.
WAIT_SECONDS_MAX = 1.0
# Whoever waits is woken by commits of this service; of others it hears a little later.
LOOK_SECONDS = 0.05

# The position itself, and not only a later one: positions do not become visible in their order.
FIND_POSITION = """
SELECT (SELECT max(notification_id) FROM stored_events)
WHERE EXISTS (SELECT FROM stored_events WHERE notification_id = %(position)s)
"""


class PositionNotReachedError(Exception):
    """What was asked for is not there yet, or never will be."""

    def __init__(self, position: int) -> None:
        super().__init__(
            f"The log does not show position {position} yet: ask again, or without "
            "If-Position-At-Least."
        )


class AtLeast(Struct):
    position: int
    may_wait: bool = True
    """False for a request without a key: it is answered at once, and never held open."""

    shown: int | None = None
    """Up to where the log was there when the read began."""


AT_LEAST: ContextVar[AtLeast | None] = ContextVar("at_least", default=None)
"""What the request at hand asks for: of every query that is read for it."""


def read_at_least(headers: Headers) -> AtLeast | None:
    text = headers.get(HEADER)
    if text is None:
        return None
    if not text.isdigit() or len(text) > POSITION_DIGITS_MAX:
        raise bad_request("bad_position", "If-Position-At-Least must be a position of the log.")
    return AtLeast(int(text))


async def is_there(connection: AsyncConnection[TupleRow], wanted: AtLeast) -> bool:
    if not wanted.position:
        return True
    found = await connection.execute(FIND_POSITION, {"position": wanted.position})
    row = await found.fetchone()
    if row is not None:
        wanted.shown = row[0]
    return row is not None
