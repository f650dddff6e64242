"""`finished_orders`: complete orders that are not deleted, for lists.

`Order.Completed` carries only the claim, so orders are folded from their events, a batch in one
query. A complete order can only be deleted and restored, so a row is the fold of all its events.
"""

from collections.abc import Iterable, Sequence
from uuid import UUID

from psycopg.rows import TupleRow

from daybook.domain.event import Event
from daybook.domain.orders.claim import CompletionMode, OrderClaim
from daybook.domain.orders.order import ORDER, Order, OrderKind, OrderStatus
from daybook.eventlog.codec import EventMapper, FollowedEvent
from daybook.eventlog.postgres import binary_arrays as arrays
from daybook.eventlog.postgres.pipeline import Connection
from daybook.eventlog.reading.fold import fold_histories

_INSERTED = arrays.unnested(
    "numbers bigint, ids uuid, versions bigint, created timestamptz, updated timestamptz, "
    "completed timestamptz, claims uuid, bots uuid, started timestamptz, due timestamptz, "
    "attempts smallint, attempts_max smallint, kinds text, modes text, users text, owners text"
)
UPSERT_FINISHED_ORDERS = f"""
INSERT INTO finished_orders (number, id, version, created_at, updated_at, completed_at, claim_id,
                             bot_id, started_at, due_at, attempts, attempts_max, kind, mode,
                             user_id, owner)
SELECT {_INSERTED}
ON CONFLICT (number) DO UPDATE
SET version = excluded.version, updated_at = excluded.updated_at
"""
DELETE_FINISHED_ORDERS = "DELETE FROM finished_orders WHERE number = ANY(%(numbers)b::bigint[])"
SELECT_FINISHED_ORDERS = """
SELECT number, id, version, created_at, updated_at, completed_at, attempts, attempts_max, kind,
       user_id, claim_id, bot_id, started_at, due_at, mode, owner
FROM finished_orders
"""
# Newest first, except orders with events after the follower's cursor: the caller folds these.
READ_FINISHED_ORDERS = f"""{SELECT_FINISHED_ORDERS}
WHERE number < %(before)s AND number <> ALL(%(except)s::bigint[])
ORDER BY number DESC
LIMIT %(limit)s
"""
FIND_FINISHED_ORDERS = """
SELECT id FROM finished_orders WHERE number <> ALL(%(except)s::bigint[]) ORDER BY number
"""
READ_OWN_FINISHED_ORDERS = f"""{SELECT_FINISHED_ORDERS}
WHERE owner = %(owner)s AND number < %(before)s AND number <> ALL(%(except)s::bigint[])
ORDER BY number DESC
LIMIT %(limit)s
"""

_MAPPER = EventMapper((ORDER,))
_KINDS = {kind.value: kind for kind in OrderKind}
_MODES = {mode.value: mode for mode in CompletionMode}


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
            await connection.execute(DELETE_FINISHED_ORDERS, {"numbers": arrays.bigints(deleted)})


async def fold_finished(
    connection: Connection, ids: Iterable[UUID], *, upto: int | None = None
) -> list[Order]:
    """Returns the complete ones of these orders, deleted or not, by number."""
    folded = await fold_histories(connection, _MAPPER, [*ids], upto=upto)
    complete = (order for order in folded.values() if order.status is OrderStatus.COMPLETE)
    return sorted(complete, key=lambda order: order.number)


def load_finished(row: TupleRow) -> Order:
    return Order(
        number=row[0],
        id=row[1],
        version=row[2],
        created_at=row[3],
        updated_at=row[4],
        completed_at=row[5],
        attempts=row[6],
        attempts_max=row[7],
        kind=_KINDS[row[8]],
        user_id=row[9],
        completed_under=OrderClaim(row[10], row[12], row[13], row[11], _MODES[row[14]]),
        status=OrderStatus.COMPLETE,
        owner=row[15],
    )


def _columns(orders: Sequence[Order]) -> dict[str, bytes]:
    claims = [_claim(order) for order in orders]
    return {
        "numbers": arrays.bigints([order.number for order in orders]),
        "ids": arrays.uuids([order.id for order in orders]),
        "versions": arrays.bigints([order.version for order in orders]),
        "created": arrays.timestamps([order.created_at for order in orders]),
        "updated": arrays.timestamps([order.updated_at for order in orders]),
        "completed": arrays.timestamps([order.completed_at for order in orders]),
        "attempts": arrays.smallints([order.attempts for order in orders]),
        "attempts_max": arrays.smallints([order.attempts_max for order in orders]),
        "kinds": arrays.texts([order.kind for order in orders]),
        "users": arrays.texts([order.user_id for order in orders]),
        "owners": arrays.texts([order.owner for order in orders]),
        "claims": arrays.uuids([claim.id for claim in claims]),
        "bots": arrays.uuids([claim.bot_id for claim in claims]),
        "started": arrays.timestamps([claim.started_at for claim in claims]),
        "due": arrays.timestamps([claim.until for claim in claims]),
        "modes": arrays.texts([claim.mode for claim in claims]),
    }


def _claim(order: Order) -> OrderClaim:
    assert order.completed_under is not None, f"{order} was completed under no claim"
    return order.completed_under
