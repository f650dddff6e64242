"""`orders`: every order that is not finished, in the order in which bots take them."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from psycopg.rows import TupleRow

from daybook.domain.orders.claim import CompletionMode, OrderClaim
from daybook.domain.orders.order import ORDER, Order, OrderKind, OrderStatus
from daybook.eventlog.postgres.binary_arrays import (
    bigints,
    smallints,
    texts,
    timestamps,
    unnested,
    uuids,
)
from daybook.eventlog.postgres.key_lookup import equals_by_key_lookup
from daybook.eventlog.writing.live_table import LiveTable, Parameters

# The columns as `load` takes them, for every statement that reads orders.
SELECT_ORDERS = """
SELECT id, version, number, kind, status, attempts, attempts_max, created_at, updated_at,
       user_id, error, claim_id, bot_id, started_at, due_at, mode, owner
FROM orders
"""

HOLD_ORDERS = f"{SELECT_ORDERS} WHERE id = ANY(%(ids)b::uuid[]) ORDER BY id FOR UPDATE"

# A bot's order, whichever it is.
HOLD_TIED_ORDERS = f"""{SELECT_ORDERS}
WHERE id = ANY(%(ids)b::uuid[]) OR bot_id = ANY(%(tied)b::uuid[])
ORDER BY id
FOR UPDATE
"""

HOLD_EVERY_ORDER = f"{SELECT_ORDERS} ORDER BY id FOR UPDATE"

# VIP before NORMAL, then by number. SKIP LOCKED keeps claimers that ask at the same moment off
# each other's orders; under n askers one may overtake by n - 1 places.
PICK_READY_ORDERS = f"""{SELECT_ORDERS}
WHERE status = 'PENDING'
ORDER BY rank, number
LIMIT %(limit)b::bigint
FOR UPDATE SKIP LOCKED
"""

# The NORMAL orders that have waited longest, if that was long enough. Numbers rise with time, so
# the first of them are all that need to be looked at.
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

FIND_OVERLOOKED_ORDER = """
SELECT EXISTS (
    SELECT FROM orders WHERE status = 'PENDING' AND id <> ALL(%(ids)b::uuid[])
)
"""

_INSERTED = unnested(
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

_UPDATED = unnested(
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
    lock = HOLD_ORDERS
    lock_related = HOLD_TIED_ORDERS
    lock_all = HOLD_EVERY_ORDER
    more_ready_exists = FIND_OVERLOOKED_ORDER
    insert = INSERT_ORDERS
    update = UPDATE_ORDERS
    delete = DELETE_ORDERS

    def pick_statements(self, among: float | None, limit: int) -> Sequence[tuple[str, Parameters]]:
        """Among all; given a number of seconds, one that has waited so long is as urgent as a
        VIP's."""
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
            "numbers": bigints([order.number for order in states]),
            "ranks": smallints([_RANKS[order.kind] for order in states]),
            "kinds": texts([order.kind for order in states]),
            "attempts_max": smallints([order.attempts_max for order in states]),
            "created": timestamps([order.created_at for order in states]),
            "users": texts([order.user_id for order in states]),
            "owners": texts([order.owner for order in states]),
        }

    def update_parameters(self, states: Sequence[Order]) -> Parameters:
        claims = [order.claim for order in states]
        return {
            "ids": uuids([order.id for order in states]),
            "versions": bigints([order.version for order in states]),
            "statuses": texts([order.status for order in states]),
            "attempts": smallints([order.attempts for order in states]),
            "updated": timestamps([order.updated_at for order in states]),
            "errors": texts([order.error for order in states]),
            "claims": uuids([None if claim is None else claim.id for claim in claims]),
            "bots": uuids([None if claim is None else claim.bot_id for claim in claims]),
            "started": timestamps(
                [None if claim is None else claim.started_at for claim in claims]
            ),
            "due": timestamps([None if claim is None else claim.due_at for claim in claims]),
            "modes": texts([None if claim is None else claim.mode for claim in claims]),
        }


def _claim(
    claim_id: UUID | None, bot_id: UUID, started_at: datetime, due_at: datetime, mode: str
) -> OrderClaim | None:
    return (
        None if claim_id is None else OrderClaim(claim_id, bot_id, started_at, due_at, _MODES[mode])
    )
