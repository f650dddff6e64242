"""The list of orders, by section: pending orders (VIP before NORMAL, by number), then processing,
complete and dead orders, newest first. Deleted orders are in no list.

A complete order leaves the live table at once and enters `finished_orders` with the follower; in
between it is in the tail of the log. All three are read in one snapshot, so a list shows every
order exactly once.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from heapq import nlargest
from itertools import islice
from uuid import UUID

from msgspec import Struct

from daybook.domain.orders.order import ORDER, ORDER_RANKS, Order, OrderStatus
from daybook.eventlog.codec import EventMapper
from daybook.eventlog.postgres.pipeline import Connection
from daybook.projections.orders.finished_orders import (
    FIND_FINISHED_ORDERS,
    FINISHED_ORDERS,
    READ_FINISHED_ORDERS,
    READ_OWN_FINISHED_ORDERS,
    FinishedOrders,
    fold_finished,
)
from daybook.projections.orders.order_cursor import SECTIONS, OrderCursor
from daybook.projections.orders.orders import ORDERS, URGENCY
from daybook.projections.snapshot import FOLD_MAX, TAIL_MAX, ListBehindError, enter_snapshot

READ_PENDING_ORDERS = f"""{ORDERS.select}
WHERE status = 'PENDING' AND ({URGENCY}) > (%(rank)s, %(number)s)
ORDER BY {URGENCY}
LIMIT %(limit)s
"""
READ_PROCESSING_ORDERS = f"""{ORDERS.select}
WHERE bot_id IS NOT NULL AND number < %(number)s
ORDER BY number DESC
LIMIT %(limit)s
"""
FIND_PROCESSING_ORDERS = "SELECT id FROM orders WHERE bot_id IS NOT NULL"
READ_DEAD_ORDERS = f"""{ORDERS.select}
WHERE status = 'DEAD' AND number < %(number)s
ORDER BY number DESC
LIMIT %(limit)s
"""
# Orders of one owner, by an index of their own.
READ_OWN_PENDING_ORDERS = f"""{ORDERS.select}
WHERE owner = %(owner)s AND status = 'PENDING' AND ({URGENCY}) > (%(rank)s, %(number)s)
ORDER BY {URGENCY}
LIMIT %(limit)s
"""
READ_OWN_OTHER_ORDERS = f"""{ORDERS.select}
WHERE owner = %(owner)s AND status = %(status)s AND number < %(number)s
ORDER BY number DESC
LIMIT %(limit)s
"""
# Orders completed after the cursor, or deleted or restored after their completion.
READ_TAIL = """
SELECT originator_id
FROM stored_events AS tail
WHERE notification_id > %(after)s AND topic = ANY(%(topics)s)
  AND EXISTS (
      SELECT FROM stored_events AS history
      WHERE history.originator_id = tail.originator_id AND history.topic = ANY(%(completed)s))
ORDER BY notification_id
LIMIT %(limit)s
"""

_LIVE_STATEMENTS = {
    OrderStatus.PENDING: READ_PENDING_ORDERS,
    OrderStatus.PROCESSING: READ_PROCESSING_ORDERS,
    OrderStatus.DEAD: READ_DEAD_ORDERS,
}
_OWN_STATEMENTS = {
    OrderStatus.PENDING: READ_OWN_PENDING_ORDERS,
    OrderStatus.PROCESSING: READ_OWN_OTHER_ORDERS,
    OrderStatus.DEAD: READ_OWN_OTHER_ORDERS,
}
_mapper = EventMapper((ORDER,))
_TAIL = {
    "topics": _mapper.topics_of(FinishedOrders.kinds or ()),
    "completed": _mapper.topics_of([Order.Completed]),
}


class OrderPage(Struct, frozen=True):
    orders: list[Order]
    next_cursor: str | None
    now: datetime


async def read_orders(
    connection: Connection,
    *,
    limit: int,
    only: OrderStatus | None = None,
    cursor: str | None = None,
    owner: str | None = None,
) -> OrderPage:
    start = OrderCursor.beginning(only) if cursor is None else OrderCursor.parse(cursor, only)
    async with connection.transaction():
        now, position = await enter_snapshot(connection, FinishedOrders.name)
        # One more than asked for shows whether there is another page.
        orders = await _read_sections(connection, start, limit + 1, position, owner)
    if len(orders) <= limit:
        return OrderPage(orders, None, now)
    return OrderPage(orders[:limit], _cursor_of(orders[limit - 1], only).cursor(), now)


async def read_section(
    connection: Connection, section: OrderStatus, limit: int, position: int
) -> list[Order]:
    """Returns the first orders of one status, in a snapshot with the read model at `position`."""
    return await _read_sections(connection, OrderCursor.beginning(section), limit, position, None)


async def find_complete(connection: Connection) -> list[UUID]:
    """Returns the ids of complete orders that are not deleted. Processing orders come first: they
    may be complete when the caller's command decides."""
    async with connection.transaction():
        _, position = await enter_snapshot(connection, FinishedOrders.name)
        tail = await _fold_tail(connection, position)
        known = [order.number for order in tail]
        rows = await connection.execute(FIND_FINISHED_ORDERS, {"except": known}, binary=True)
        finished = [order_id for (order_id,) in await rows.fetchall()]
        rows = await connection.execute(FIND_PROCESSING_ORDERS, binary=True)
        processing = [order_id for (order_id,) in await rows.fetchall()]
    return processing + finished + [order.id for order in tail if order.deleted_at is None]


def _cursor_of(order: Order, only: OrderStatus | None) -> OrderCursor:
    rank = ORDER_RANKS[order.kind] if order.status is OrderStatus.PENDING else 0
    return OrderCursor(only, order.status, rank, order.number)


async def _read_sections(
    connection: Connection, start: OrderCursor, limit: int, position: int, owner: str | None
) -> list[Order]:
    orders: list[Order] = []
    sections = SECTIONS if start.only is None else (start.only,)
    for section in sections[sections.index(start.section) :]:
        begin = start if section is start.section else OrderCursor.beginning(start.only, section)
        missing = limit - len(orders)
        if section is OrderStatus.COMPLETE:
            orders += await _read_complete(connection, begin.number, missing, position, owner)
        elif missing:
            orders += await _read_live(connection, begin, missing, owner)
    return orders


async def _read_live(
    connection: Connection, start: OrderCursor, limit: int, owner: str | None
) -> Iterable[Order]:
    wanted = {"rank": start.rank, "number": start.number, "limit": limit}
    own = {"owner": owner, "status": start.section.value}
    statements = _LIVE_STATEMENTS if owner is None else _OWN_STATEMENTS
    rows = await connection.execute(statements[start.section], {**wanted, **own}, binary=True)
    return map(ORDERS.load, await rows.fetchall())


async def _read_complete(
    connection: Connection, before: int, limit: int, position: int, owner: str | None
) -> Sequence[Order]:
    """Returns the newest orders below a number, from the read model and the tail."""
    if not limit:
        return ()
    tail = await _fold_tail(connection, position)
    known = [order.number for order in tail]
    wanted = {"before": before, "except": known, "limit": limit, "owner": owner}
    statement = READ_FINISHED_ORDERS if owner is None else READ_OWN_FINISHED_ORDERS
    rows = await connection.execute(statement, wanted, binary=True)
    orders = [FINISHED_ORDERS.load(row) for row in await rows.fetchall()]
    owned = [order for order in tail if owner is None or order.owner == owner]
    orders += [order for order in owned if order.deleted_at is None and order.number < before]
    return nlargest(limit, orders, key=lambda order: order.number)


async def _fold_tail(connection: Connection, position: int) -> list[Order]:
    """Returns the complete orders, deleted or not, with events the read model has not applied."""
    wanted = {**_TAIL, "after": position, "limit": TAIL_MAX + 1}
    rows = await (await connection.execute(READ_TAIL, wanted, binary=True)).fetchall()
    if len(rows) > TAIL_MAX:
        raise ListBehindError
    ids: Iterator[UUID] = iter({row[0] for row in rows})
    tail: list[Order] = []
    while chunk := list(islice(ids, FOLD_MAX)):
        tail += await fold_finished(connection, chunk)
        await asyncio.sleep(0)
    return tail
