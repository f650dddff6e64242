"""How far the log is settled right now, for whoever reads it once and does not follow it.

What was drawn when one asks is settled as soon as those who were writing then have ended, which is
a matter of milliseconds. Were one of them to take his time, what followers have processed is
settled in any case.
"""

import asyncio
import time
from typing import Any

from psycopg import AsyncConnection, Connection
from psycopg.rows import TupleRow

from eventlog.horizon import Horizon

SETTLE_SECONDS_MAX = 0.5
LOOK_SECONDS = 0.005

READ_FOLLOWED = "SELECT coalesce(max(position), 0) FROM followers"


async def settled_position(connection: AsyncConnection[TupleRow]) -> int:
    horizon, until = Horizon(), time.monotonic() + SETTLE_SECONDS_MAX
    while await horizon.look(connection) == 0 and horizon.is_waiting:
        if time.monotonic() > until:
            return _followed(await (await connection.execute(READ_FOLLOWED)).fetchone())
        await asyncio.sleep(LOOK_SECONDS)
    return horizon.settled


def settled_position_in_thread(connection: Connection[TupleRow]) -> int:
    horizon, until = Horizon(), time.monotonic() + SETTLE_SECONDS_MAX
    while horizon.look_in_thread(connection) == 0 and horizon.is_waiting:
        if time.monotonic() > until:
            return _followed(connection.execute(READ_FOLLOWED).fetchone())
        time.sleep(LOOK_SECONDS)
    return horizon.settled


def _followed(row: Any) -> int:
    return int(row[0])
