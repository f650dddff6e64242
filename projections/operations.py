"""`operations`: what was accepted and is still to be carried out, in the order of acceptance.

`operation_lanes` says in which lanes it holds a place; `projections/lanes.py` keeps it.
"""

from collections.abc import Hashable, Sequence
from datetime import datetime
from uuid import UUID

from msgspec import Struct, json
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from domain.operation import OPERATION, Message, Operation, OperationKind, OperationStatus
from eventlog.arrays import bigints, byteas, integers, texts, timestamps, uuids
from eventlog.live import LiveTable, Parameters, Statements

SELECT_OPERATIONS = """
SELECT id, version, number, created_at, updated_at, run_at, failures, kind, error, items
FROM operations
"""

HOLD_OPERATIONS = f"{SELECT_OPERATIONS} WHERE id = ANY(%(ids)b::uuid[]) ORDER BY id FOR UPDATE"

# Which of these lanes somebody holds a place in.
SEE_TIED_LANES = """
SELECT lane.id
FROM lanes AS lane
WHERE lane.id = ANY(%(tied)b::uuid[]) AND EXISTS (
    SELECT FROM operation_lanes AS held
    WHERE (held.queue, held.partition) = (lane.queue, lane.partition))
"""

INSERT_OPERATIONS = """
INSERT INTO operations (id, version, number, created_at, updated_at, run_at, failures, kind, error,
                        items)
SELECT * FROM unnest(
    %(ids)b::uuid[], %(versions)b::bigint[], %(numbers)b::bigint[], %(created)b::timestamptz[],
    %(updated)b::timestamptz[], %(run_at)b::timestamptz[], %(failures)b::integer[],
    %(kinds)b::text[], %(errors)b::text[], %(items)b::bytea[])
"""

UPDATE_OPERATIONS = """
UPDATE operations
SET version = new.version, updated_at = new.updated_at, run_at = new.run_at,
    failures = new.failures, error = new.error
FROM unnest(
    %(ids)b::uuid[], %(versions)b::bigint[], %(updated)b::timestamptz[],
    %(run_at)b::timestamptz[], %(failures)b::integer[], %(errors)b::text[]
) AS new (id, version, updated_at, run_at, failures, error)
WHERE operations.id = new.id
"""

DELETE_OPERATIONS = "DELETE FROM operations WHERE id = ANY(%(ids)b::uuid[])"

DROP_PLACES = "DELETE FROM operation_lanes WHERE operation_id = ANY(%(ids)b::uuid[])"
RECKON_PLACES = """
INSERT INTO operation_lanes (queue, partition, place, operation_id)
SELECT lane.queue, lane.partition, notification_id, operations.id
FROM unnest(%(ids)b::uuid[], %(queues)b::text[], %(partitions)b::text[])
    AS lane (id, queue, partition)
JOIN operations USING (id)
JOIN stored_events ON (originator_id, originator_version) = (operations.id, 1)
"""

FIND_DUE = """
SELECT id, items
FROM operations
WHERE (run_at IS NULL OR run_at <= clock_timestamp())
  AND updated_at <= clock_timestamp() - %(patience)s * interval '1 second'
ORDER BY number
LIMIT %(limit)s
"""

# Numbers are drawn one by one and carried out in their order, so their difference is how many
# there are at most, and nothing needs to be counted.
READ_STANDING = """
SELECT (SELECT min(number) FROM operations),
       (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM operation_numbers),
       (SELECT created_at FROM operations ORDER BY number LIMIT 1),
       (SELECT created_at FROM operations ORDER BY number DESC LIMIT 1)
"""

_ITEMS = json.Decoder(tuple[Message, ...])


class LiveOperations(LiveTable[Operation]):
    decider = OPERATION
    name = "operations"
    select = SELECT_OPERATIONS
    hold = HOLD_OPERATIONS
    see_tied = SEE_TIED_LANES
    insert = INSERT_OPERATIONS
    update = UPDATE_OPERATIONS
    delete = DELETE_OPERATIONS
    beside = ("operation_lanes",)

    def noted(self, state: Operation) -> Hashable:  # noqa: ARG002 (what is over holds no place)
        return None

    def reckon(self, states: Sequence[Operation]) -> Statements:
        places = [(state.id, *lane) for state in states for lane in sorted(state.lanes)]
        named = {
            "ids": uuids([one for one, _, _ in places]),
            "queues": texts([queue for _, queue, _ in places]),
            "partitions": texts([partition for _, _, partition in places]),
        }
        ids = uuids([*{state.id for state in states}])
        return [(DROP_PLACES, {"ids": ids}), (RECKON_PLACES, named)]

    def load(self, row: TupleRow) -> Operation:
        return Operation(
            id=row[0],
            version=row[1],
            number=row[2],
            created_at=row[3],
            updated_at=row[4],
            run_at=row[5],
            failures=row[6],
            kind=OperationKind(row[7]),
            error=row[8],
            items=_ITEMS.decode(row[9]),
            status=OperationStatus.PENDING,
        )

    def inserted(self, states: Sequence[Operation]) -> Parameters:
        return {
            **self.updated(states),
            "numbers": bigints([operation.number for operation in states]),
            "created": timestamps([operation.created_at for operation in states]),
            "kinds": texts([operation.kind for operation in states]),
            "items": byteas([json.encode(operation.items) for operation in states]),
        }

    def updated(self, states: Sequence[Operation]) -> Parameters:
        return {
            "ids": uuids([operation.id for operation in states]),
            "versions": bigints([operation.version for operation in states]),
            "updated": timestamps([operation.updated_at for operation in states]),
            "run_at": timestamps([operation.run_at for operation in states]),
            "failures": integers([operation.failures for operation in states]),
            "errors": texts([operation.error for operation in states]),
        }


class Numbers(Struct, frozen=True, gc=False):
    """Of the operations that are still to be carried out; None when there are none."""

    oldest: int | None
    last_drawn: int
    oldest_at: datetime | None
    newest_at: datetime | None

    @property
    def depth(self) -> int:
        return 0 if self.oldest is None else self.last_drawn - self.oldest + 1


async def find_due(
    connection: AsyncConnection[TupleRow], *, patience_seconds: float, limit: int
) -> list[tuple[UUID, tuple[Message, ...]]]:
    """In the order in which they were accepted."""
    wanted = {"patience": patience_seconds, "limit": limit}
    rows = await connection.execute(FIND_DUE, wanted, binary=True)
    return [(operation_id, _ITEMS.decode(items)) for operation_id, items in await rows.fetchall()]


async def read_numbers(connection: AsyncConnection[TupleRow]) -> Numbers:
    rows = await connection.execute(READ_STANDING, binary=True)
    ((oldest, last_drawn, oldest_at, newest_at),) = await rows.fetchall()
    return Numbers(oldest, last_drawn, oldest_at, newest_at)
