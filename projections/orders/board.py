"""The board: what a kitchen has to see of its orders and bots, as it is at one moment."""

from datetime import datetime

from msgspec import Struct

from daybook.domain.orders.bot import Bot
from daybook.domain.orders.order import Order, OrderStatus
from daybook.eventlog.postgres.pipeline import Connection
from daybook.projections.orders.bots import all_bots
from daybook.projections.orders.finished_orders import FinishedOrders
from daybook.projections.orders.order_list import read_section
from daybook.projections.snapshot import enter_snapshot

# How many orders of each status are shown: more than anybody can look at.
SHOWN_MAX = {
    OrderStatus.PENDING: 5000,
    OrderStatus.PROCESSING: 1000,
    OrderStatus.COMPLETE: 100,
    OrderStatus.DEAD: 100,
}

# The newest event that this snapshot sees.
READ_NEWEST = "SELECT notification_id FROM stored_events ORDER BY notification_id DESC LIMIT 1"


class Board(Struct, frozen=True):
    orders: list[Order]
    bots: list[Bot]
    cut: list[OrderStatus]
    """Of which status there are more orders than are shown."""
    position: int
    now: datetime


async def read_board(connection: Connection) -> Board:
    orders, cut = list[Order](), list[OrderStatus]()
    async with connection.transaction():
        now, followed = await enter_snapshot(connection, FinishedOrders.name)
        newest = await (await connection.execute(READ_NEWEST)).fetchone()
        bots = await all_bots(connection)
        for status, shown_max in SHOWN_MAX.items():
            section = await read_section(connection, status, shown_max + 1, followed)
            orders += section[:shown_max]
            cut += [status] if len(section) > shown_max else []
    return Board(orders, bots, cut, newest[0] if newest else 0, now)
