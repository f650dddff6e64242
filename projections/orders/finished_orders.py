"""`finished_orders`: complete orders that are not deleted, for lists.

`Order.Completed` carries only the claim, so orders are folded from their events, a batch in one
query. A complete order can only be deleted and restored, so a row is the fold of all its events.
"""

from collections.abc import Iterable, Sequence
from uuid import UUID

from daybook.domain.event import Event
from daybook.domain.orders.order import ORDER, Order, OrderStatus
from daybook.eventlog.codec import EventMapper, FollowedEvent
from daybook.eventlog.postgres.binary_arrays import bigints
from daybook.eventlog.postgres.pipeline import Connection
from daybook.eventlog.reading.fold import fold_histories
from daybook.eventlog.writing.row_mapping import Column, RowMapping
from daybook.projections.orders.orders import CREATED_COLUMNS

FINISHED_ORDERS = RowMapping(
    "finished_orders",
    Order,
    [
        *CREATED_COLUMNS,
        Column("version", "bigint"),
        Column("updated_at", "timestamptz"),
        Column("completed_at", "timestamptz"),
        Column("attempts", "smallint"),
        Column("claim_id", "uuid", "completed_under.id"),
        Column("bot_id", "uuid", "completed_under.bot_id"),
        Column("started_at", "timestamptz", "completed_under.started_at"),
        Column("due_at", "timestamptz", "completed_under.until"),
        Column("mode", "text", "completed_under.mode"),
    ],
    constants={"status": OrderStatus.COMPLETE},
)
UPSERT_FINISHED_ORDERS = f"""{FINISHED_ORDERS.insert_sql()}
ON CONFLICT (number) DO UPDATE
SET version = excluded.version, updated_at = excluded.updated_at
"""
DELETE_FINISHED_ORDERS = "DELETE FROM finished_orders WHERE number = ANY(%(numbers)b::bigint[])"
# Newest first, except orders with events after the follower's cursor: the caller folds these.
READ_FINISHED_ORDERS = f"""{FINISHED_ORDERS.select}
WHERE number < %(before)s AND number <> ALL(%(except)s::bigint[])
ORDER BY number DESC
LIMIT %(limit)s
"""
FIND_FINISHED_ORDERS = """
SELECT id FROM finished_orders WHERE number <> ALL(%(except)s::bigint[]) ORDER BY number
"""
READ_OWN_FINISHED_ORDERS = f"""{FINISHED_ORDERS.select}
WHERE owner = %(owner)s AND number < %(before)s AND number <> ALL(%(except)s::bigint[])
ORDER BY number DESC
LIMIT %(limit)s
"""

_MAPPER = EventMapper((ORDER,))
_columns = FINISHED_ORDERS.packer(FINISHED_ORDERS.columns)


class FinishedOrders:
    name = "finished_orders"
    kinds: tuple[type[Event], ...] | None = (Order.Completed, Order.Deleted, Order.Restored)

    needs_payload = True
    # Lists read the log after the cursor too, so a delay is not visible.
    pause_seconds = 0.25

    async def apply(self, connection: Connection, events: Sequence[FollowedEvent]) -> None:
        touched = {event.originator_id for event in events}
        orders = await fold_finished(connection, touched, upto=events[-1].position)
        listed = [order for order in orders if order.deleted_at is None]
        deleted = [order.number for order in orders if order.deleted_at is not None]
        if listed:
            await connection.execute(UPSERT_FINISHED_ORDERS, _columns(listed))
        if deleted:
            await connection.execute(DELETE_FINISHED_ORDERS, {"numbers": bigints(deleted)})


async def fold_finished(
    connection: Connection, ids: Iterable[UUID], *, upto: int | None = None
) -> list[Order]:
    """Returns the complete ones of these orders, deleted or not, by number."""
    folded = await fold_histories(connection, _MAPPER, [*ids], upto=upto)
    complete = (order for order in folded.values() if order.status is OrderStatus.COMPLETE)
    return sorted(complete, key=lambda order: order.number)
