"""`orders`: every order that is not finished, in the order in which bots take them."""

from collections.abc import Sequence

from psycopg.rows import TupleRow

from domain.order import ORDER, Claim, Order, OrderKind, OrderStatus
from eventlog.arrays import bigints, smallints, texts, timestamps, uuids
from eventlog.live import LiveTable, Parameters

HOLD_ORDERS = """
SELECT id, version, number, kind, status, created_at, updated_at,
       claim_id, bot_id, started_at, due_at
FROM orders
WHERE id = ANY(%(ids)b::uuid[])
ORDER BY id
FOR UPDATE
"""

# VIP before NORMAL, then by number. SKIP LOCKED keeps claimers that ask at the same moment off
# each other's orders; under n askers one may overtake by n - 1 places.
PICK_READY_ORDERS = """
SELECT id, version, number, kind, status, created_at, updated_at,
       claim_id, bot_id, started_at, due_at
FROM orders
WHERE status = 'PENDING'
ORDER BY rank, number
LIMIT %(limit)b::bigint
FOR UPDATE SKIP LOCKED
"""

FIND_OVERLOOKED_ORDER = """
SELECT EXISTS (
    SELECT FROM orders WHERE status = 'PENDING' AND id <> ALL(%(ids)b::uuid[])
)
"""

INSERT_ORDERS = """
INSERT INTO orders (id, version, number, rank, kind, status, created_at, updated_at,
                    claim_id, bot_id, started_at, due_at)
SELECT * FROM unnest(
    %(ids)b::uuid[], %(versions)b::bigint[], %(numbers)b::bigint[], %(ranks)b::smallint[],
    %(kinds)b::text[], %(statuses)b::text[], %(created)b::timestamptz[],
    %(updated)b::timestamptz[], %(claims)b::uuid[], %(bots)b::uuid[],
    %(started)b::timestamptz[], %(due)b::timestamptz[])
"""

UPDATE_ORDERS = """
UPDATE orders
SET version = new.version, status = new.status, updated_at = new.updated_at,
    claim_id = new.claim_id, bot_id = new.bot_id,
    started_at = new.started_at, due_at = new.due_at
FROM unnest(
    %(ids)b::uuid[], %(versions)b::bigint[], %(statuses)b::text[], %(updated)b::timestamptz[],
    %(claims)b::uuid[], %(bots)b::uuid[], %(started)b::timestamptz[], %(due)b::timestamptz[]
) AS new (id, version, status, updated_at, claim_id, bot_id, started_at, due_at)
WHERE orders.id = new.id
"""

DELETE_ORDERS = "DELETE FROM orders WHERE id = ANY(%(ids)b::uuid[])"

_RANKS = {OrderKind.VIP: 0, OrderKind.NORMAL: 1}
_KINDS = {kind.value: kind for kind in OrderKind}
_STATUSES = {status.value: status for status in OrderStatus}


class LiveOrders(LiveTable[Order]):
    decider = ORDER
    hold = HOLD_ORDERS
    pick = PICK_READY_ORDERS
    overlooked = FIND_OVERLOOKED_ORDER
    insert = INSERT_ORDERS
    update = UPDATE_ORDERS
    delete = DELETE_ORDERS

    def load(self, row: TupleRow) -> Order:
        claim_id = row[7]
        return Order(
            id=row[0],
            version=row[1],
            number=row[2],
            kind=_KINDS[row[3]],
            status=_STATUSES[row[4]],
            created_at=row[5],
            updated_at=row[6],
            claim=None if claim_id is None else Claim(claim_id, *row[8:11]),
        )

    def inserted(self, states: Sequence[Order]) -> Parameters:
        return {
            **self.updated(states),
            "numbers": bigints([order.number for order in states]),
            "ranks": smallints([_RANKS[order.kind] for order in states]),
            "kinds": texts([order.kind for order in states]),
            "created": timestamps([order.created_at for order in states]),
        }

    def updated(self, states: Sequence[Order]) -> Parameters:
        claims = [order.claim for order in states]
        return {
            "ids": uuids([order.id for order in states]),
            "versions": bigints([order.version for order in states]),
            "statuses": texts([order.status for order in states]),
            "updated": timestamps([order.updated_at for order in states]),
            "claims": uuids([None if claim is None else claim.id for claim in claims]),
            "bots": uuids([None if claim is None else claim.bot_id for claim in claims]),
            "started": timestamps(
                [None if claim is None else claim.started_at for claim in claims]
            ),
            "due": timestamps([None if claim is None else claim.due_at for claim in claims]),
        }
