"""The board: orders by status and all bots, read in one snapshot."""

from datetime import datetime

from msgspec import Struct

from daybook.domain.orders.bot import Bot
from daybook.domain.orders.order import Order, OrderStatus
from daybook.eventlog.postgres.pipeline import Connection
from daybook.projections.orders.bots import all_bots
from daybook.projections.orders.finished_orders import FinishedOrders
from daybook.projections.orders.order_list import read_section
from daybook.projections.snapshot import enter_snapshot

SHOWN_MAX = {
    OrderStatus.PENDING: 5000,
    OrderStatus.PROCESSING: 1000,
    OrderStatus.COMPLETE: 100,
    OrderStatus.DEAD: 100,
}

# The newest event visible to the snapshot.
READ_NEWEST = "SELECT notification_id FROM stored_events ORDER BY notification_id DESC LIMIT 1"


class Board(Struct, frozen=True):
    orders: list[Order]
    bots: list[Bot]
    cut: list[OrderStatus]  # statuses with more orders than are shown
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
