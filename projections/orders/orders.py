"""`orders`: the live table of unfinished orders, from which bots claim."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from psycopg.rows import TupleRow

from daybook.domain.orders.claim import CompletionMode, OrderClaim
from daybook.domain.orders.order import ORDER, Order, OrderKind, OrderStatus
from daybook.eventlog.postgres import binary_arrays as arrays
from daybook.eventlog.postgres.key_lookup import equals_by_key_lookup
from daybook.eventlog.writing.live_table import LiveTable, Parameters

# In the order of `load`.
SELECT_ORDERS = """
SELECT id, version, number, kind, status, attempts, attempts_max, created_at, updated_at,
       user_id, error, claim_id, bot_id, started_at, due_at, mode, owner
FROM orders
"""
LOCK_ORDERS = f"{SELECT_ORDERS} WHERE id = ANY(%(ids)b::uuid[]) ORDER BY id FOR UPDATE"
# The orders that these bots work on.
LOCK_RELATED_ORDERS = f"""{SELECT_ORDERS}
WHERE id = ANY(%(ids)b::uuid[]) OR bot_id = ANY(%(tied)b::uuid[])
ORDER BY id
FOR UPDATE
"""
LOCK_ALL_ORDERS = f"{SELECT_ORDERS} ORDER BY id FOR UPDATE"
# VIP before NORMAL, then by number. SKIP LOCKED keeps concurrent claims off each other's orders;
# with n claims an order may be overtaken by n - 1.
PICK_READY_ORDERS = f"""{SELECT_ORDERS}
WHERE status = 'PENDING'
ORDER BY rank, number
LIMIT %(limit)b::bigint
FOR UPDATE SKIP LOCKED
"""
# NORMAL orders that have aged. Numbers rise with time, so only the first need to be examined.
PICK_AGED_ORDERS = f"""
SELECT *
FROM (
    {SELECT_ORDERS}
    WHERE status = 'PENDING' AND rank = 1
    ORDER BY rank, number
    LIMIT %(limit)b::bigint
    FOR UPDATE SKIP LOCKED
) AS oldest
WHERE created_at <= statement_timestamp() - %(aging_ms)b::bigint * interval '1 millisecond'
"""
MORE_READY_ORDERS_EXIST = """
SELECT EXISTS (
    SELECT FROM orders WHERE status = 'PENDING' AND id <> ALL(%(ids)b::uuid[])
)
"""
_INSERTED = arrays.unnested(
    "ids uuid, versions bigint, numbers bigint, ranks smallint, kinds text, statuses text, "
    "attempts smallint, attempts_max smallint, created timestamptz, updated timestamptz, "
    "users text, errors text, claims uuid, bots uuid, started timestamptz, due timestamptz, "
    "modes text, owners text"
)
INSERT_ORDERS = f"""
INSERT INTO orders (id, version, number, rank, kind, status, attempts, attempts_max, created_at,
                    updated_at, user_id, error, claim_id, bot_id, started_at, due_at, mode, owner)
SELECT {_INSERTED}
"""
_UPDATED = arrays.unnested(
    "ids uuid, versions bigint, statuses text, attempts smallint, updated timestamptz, "
    "errors text, claims uuid, bots uuid, started timestamptz, due timestamptz, modes text"
)
UPDATE_ORDERS = f"""
UPDATE orders
SET version = new.version, status = new.status, attempts = new.attempts,
    updated_at = new.updated_at, error = new.error, claim_id = new.claim_id,
    bot_id = new.bot_id, started_at = new.started_at, due_at = new.due_at, mode = new.mode
FROM (SELECT {_UPDATED})
    AS new (id, version, status, attempts, updated_at, error, claim_id, bot_id, started_at,
            due_at, mode)
WHERE {equals_by_key_lookup("orders.id", "new.id")}
"""
DELETE_ORDERS = "DELETE FROM orders WHERE id = ANY(%(ids)b::uuid[])"

_RANKS = {OrderKind.VIP: 0, OrderKind.NORMAL: 1}
_KINDS = {kind.value: kind for kind in OrderKind}
_STATUSES = {status.value: status for status in OrderStatus}
_MODES = {mode.value: mode for mode in CompletionMode}


class LiveOrders(LiveTable[Order]):
    decider = ORDER
    name = "orders"
    select = SELECT_ORDERS
    lock = LOCK_ORDERS
    lock_related = LOCK_RELATED_ORDERS
    lock_all = LOCK_ALL_ORDERS
    more_ready_exists = MORE_READY_ORDERS_EXIST
    insert = INSERT_ORDERS
    update = UPDATE_ORDERS
    delete = DELETE_ORDERS

    def pick_statements(self, among: float | None, limit: int) -> Sequence[tuple[str, Parameters]]:
        """`among` is the age in seconds at which a NORMAL order ranks as VIP, or None."""
        picks: list[tuple[str, Parameters]] = [(PICK_READY_ORDERS, {"limit": limit})]
        if among is not None:
            picks.append((PICK_AGED_ORDERS, {"limit": limit, "aging_ms": int(among * 1000)}))
        return picks

    def merge_picks(self, among: float | None, picked: Sequence[list[Order]]) -> list[Order]:
        if among is None:
            return picked[0]
        ready, aged = ({order.id.int: order for order in orders} for orders in picked)

        def urgency(order: Order) -> tuple[int, int]:
            return 0 if order.id.int in aged else _RANKS[order.kind], order.number

        return sorted({**ready, **aged}.values(), key=urgency)

    def load(self, row: TupleRow) -> Order:
        return Order(
            id=row[0],
            version=row[1],
            number=row[2],
            kind=_KINDS[row[3]],
            status=_STATUSES[row[4]],
            attempts=row[5],
            attempts_max=row[6],
            created_at=row[7],
            updated_at=row[8],
            user_id=row[9],
            error=row[10],
            claim=_claim(*row[11:16]),
            owner=row[16],
        )

    def insert_parameters(self, states: Sequence[Order]) -> Parameters:
        return {
            **self.update_parameters(states),
            "numbers": arrays.bigints([order.number for order in states]),
            "ranks": arrays.smallints([_RANKS[order.kind] for order in states]),
            "kinds": arrays.texts([order.kind for order in states]),
            "attempts_max": arrays.smallints([order.attempts_max for order in states]),
            "created": arrays.timestamps([order.created_at for order in states]),
            "users": arrays.texts([order.user_id for order in states]),
            "owners": arrays.texts([order.owner for order in states]),
        }

    def update_parameters(self, states: Sequence[Order]) -> Parameters:
        claims = [order.claim for order in states]
        return {
            "ids": arrays.uuids([order.id for order in states]),
            "versions": arrays.bigints([order.version for order in states]),
            "statuses": arrays.texts([order.status for order in states]),
            "attempts": arrays.smallints([order.attempts for order in states]),
            "updated": arrays.timestamps([order.updated_at for order in states]),
            "errors": arrays.texts([order.error for order in states]),
            "claims": arrays.uuids([None if claim is None else claim.id for claim in claims]),
            "bots": arrays.uuids([None if claim is None else claim.bot_id for claim in claims]),
            "started": arrays.timestamps(
                [None if claim is None else claim.started_at for claim in claims]
            ),
            "due": arrays.timestamps([None if claim is None else claim.until for claim in claims]),
            "modes": arrays.texts([None if claim is None else claim.mode for claim in claims]),
        }


def _claim(
    claim_id: UUID | None, bot_id: UUID, started_at: datetime, due_at: datetime, mode: str
) -> OrderClaim | None:
    return (
        None if claim_id is None else OrderClaim(claim_id, started_at, due_at, bot_id, _MODES[mode])
    )
