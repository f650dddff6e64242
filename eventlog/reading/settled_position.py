"""The settled position for one-time reads of the log.

Positions drawn before the call settle when the write transactions open at that time end, usually
within milliseconds. After SETTLE_SECONDS_MAX the furthest follower's position is used instead.
"""

import asyncio
import time
from typing import Any

from psycopg import AsyncConnection, Connection
from psycopg.rows import TupleRow, tuple_row

from daybook.eventlog.reading.horizon import Horizon

SETTLE_SECONDS_MAX = 0.5
LOOK_SECONDS = 0.005

# Ignores a cursor that an earlier version left ahead of the log.
READ_FOLLOWED = """
SELECT least((SELECT coalesce(max(position), 0) FROM followers),
             (SELECT coalesce(max(notification_id), 0) FROM stored_events))
"""


async def settled_position(connection: AsyncConnection[TupleRow]) -> int:
    horizon, until = Horizon(), time.monotonic() + SETTLE_SECONDS_MAX
    await horizon.look(connection)
    wanted = horizon.last_position
    while not horizon.is_complete(wanted):
        if time.monotonic() > until:
            followed = await connection.execute(READ_FOLLOWED)
            return _at_least(horizon, await followed.fetchone())
        await asyncio.sleep(LOOK_SECONDS)
        await horizon.look(connection)
    return horizon.settled


def settled_position_in_thread(connection: Connection[Any]) -> int:
    horizon, until = Horizon(), time.monotonic() + SETTLE_SECONDS_MAX
    horizon.look_in_thread(connection)
    wanted = horizon.last_position
    while not horizon.is_complete(wanted):
        if time.monotonic() > until:
            cursor = connection.cursor(row_factory=tuple_row)
            return _at_least(horizon, cursor.execute(READ_FOLLOWED).fetchone())
        time.sleep(LOOK_SECONDS)
        horizon.look_in_thread(connection)
    return horizon.settled


def _at_least(horizon: Horizon, followed: Any) -> int:
    return max(horizon.settled, int(followed[0]))
