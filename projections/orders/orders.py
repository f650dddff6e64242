"""`orders`: the live table of unfinished orders, from which bots claim."""

from collections.abc import Sequence

from daybook.domain.orders.order import ORDER, ORDER_RANKS, Order, OrderKind, urgency
from daybook.eventlog.writing.live_table import LiveTable, Pick, Statement, Statements
from daybook.eventlog.writing.row_mapping import AS_CREATED, Column

# Set when an order is created; `finished_orders` has these columns too.
CREATED_COLUMNS = (
    Column("id", "uuid"),
    Column("number", "bigint"),
    Column("kind", "text"),
    Column("attempts_max", "smallint"),
    Column("created_at", "timestamptz"),
    Column("user_id", "text"),
    Column("owner", "text"),
)
COLUMNS = (
    *CREATED_COLUMNS,
    # Claims and lists use an index on rank and number: the urgency of a pending order.
    Column("rank", "smallint", value=lambda order: ORDER_RANKS[order.kind]),
    Column("version", "bigint", changes=True, initial="1"),
    Column("status", "text", changes=True, initial="'PENDING'"),
    Column("attempts", "smallint", changes=True, initial="0"),
    Column("updated_at", "timestamptz", changes=True, initial=AS_CREATED),
    Column("error", "text", changes=True, initial="NULL"),
    Column("claim_id", "uuid", "claim.id", changes=True, initial="NULL"),
    Column("bot_id", "uuid", "claim.bot_id", changes=True, initial="NULL"),
    Column("started_at", "timestamptz", "claim.started_at", changes=True, initial="NULL"),
    Column("due_at", "timestamptz", "claim.until", changes=True, initial="NULL"),
    Column("mode", "text", "claim.mode", changes=True, initial="NULL"),
)


class PickOrders(Pick[Order]):
    """The selector is the age in seconds at which a NORMAL order ranks as VIP, or None."""

    more_ready_exists = """
SELECT EXISTS (
    SELECT FROM orders WHERE status = 'PENDING' AND id <> ALL(%(ids)b::uuid[])
)
"""

    def statements(self, aging_seconds: float | None, limit: int) -> Statements:
        picks: list[Statement] = [(CLAIM_READY_ORDERS, {"limit": limit})]
        if aging_seconds is not None:
            aging = {"limit": limit, "aging_ms": int(aging_seconds * 1000)}
            picks.append((CLAIM_AGED_ORDERS, aging))
        return picks

    def merge(self, aging_seconds: float | None, picked: Sequence[list[Order]]) -> list[Order]:
        if aging_seconds is None:
            return picked[0]
        ready, aged = ({order.number: order for order in orders} for orders in picked)
        return sorted(
            {**ready, **aged}.values(),
            key=lambda order: urgency(order, is_aged=order.number in aged),
        )


# The sort key of `domain.orders.order.urgency`, without aging.
URGENCY = "rank, number"
ORDERS = LiveTable("orders", ORDER, COLUMNS, related_by="bot_id", pick=PickOrders())

# SKIP LOCKED keeps concurrent claims off each
# other's orders; with n claims an order may be overtaken by n - 1.
CLAIM_READY_ORDERS = f"""{ORDERS.select}
WHERE status = 'PENDING'
ORDER BY {URGENCY}
LIMIT %(limit)b::bigint
FOR UPDATE SKIP LOCKED
"""
# NORMAL orders that have aged. Numbers rise with time, so only the first need to be examined.
CLAIM_AGED_ORDERS = f"""
SELECT *
FROM (
    {ORDERS.select}
    WHERE status = 'PENDING' AND rank = {ORDER_RANKS[OrderKind.NORMAL]}
    ORDER BY {URGENCY}
    LIMIT %(limit)b::bigint
    FOR UPDATE SKIP LOCKED
) AS oldest
WHERE created_at <= statement_timestamp() - %(aging_ms)b::bigint * interval '1 millisecond'
"""
