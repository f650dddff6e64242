"""`operations`: what was accepted and is still to be carried out, in the order of acceptance; and
what was given up, until somebody retries or cancels it.

`operation_lanes` says in which lanes it holds a place; `projections/jobs/lanes.py` keeps it.
"""

from collections.abc import Hashable, Sequence
from datetime import datetime
from uuid import UUID

from msgspec import Struct, json
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from daybook.domain.messages.operation import (
    OPERATION,
    Message,
    Operation,
    OperationKind,
    OperationStatus,
)
from daybook.eventlog.postgres.binary_arrays import (
    bigints,
    byteas,
    integers,
    texts,
    timestamps,
    unnested,
    uuids,
)
from daybook.eventlog.postgres.key_lookup import equals_by_key_lookup
from daybook.eventlog.writing.live_table import LiveTable, Parameters, Statements

SELECT_OPERATIONS = """
SELECT id, version, number, created_at, updated_at, run_at, failures, kind, error, items, status,
       attempts_max, failed_at, skipped
FROM operations
"""

HOLD_OPERATIONS = f"{SELECT_OPERATIONS} WHERE id = ANY(%(ids)b::uuid[]) ORDER BY id FOR UPDATE"

# In which of these lanes somebody holds a place, and how many: never more than a lane takes.
# Lane by lane, whatever the planner thinks of the rest.
SEE_TIED_LANES = """
SELECT lane.id, held.count
FROM lanes AS lane, LATERAL (
    SELECT count(*) FROM operation_lanes
    WHERE (operation_lanes.queue, operation_lanes.partition) = (lane.queue, lane.partition)
) AS held
WHERE lane.id = ANY(%(tied)b::uuid[]) AND held.count > 0
"""

_INSERTED = unnested(
    "ids uuid, versions bigint, numbers bigint, created timestamptz, updated timestamptz, "
    "run_at timestamptz, failures integer, kinds text, errors text, items bytea, statuses text, "
    "attempts integer, failed timestamptz, skipped bytea"
)

INSERT_OPERATIONS = f"""
INSERT INTO operations (id, version, number, created_at, updated_at, run_at, failures, kind, error,
                        items, status, attempts_max, failed_at, skipped)
SELECT {_INSERTED}
"""

_UPDATED = unnested(
    "ids uuid, versions bigint, numbers bigint, updated timestamptz, run_at timestamptz, "
    "failures integer, errors text, statuses text, failed timestamptz, skipped bytea"
)

UPDATE_OPERATIONS = f"""
UPDATE operations
SET version = new.version, number = new.number, updated_at = new.updated_at, run_at = new.run_at,
    failures = new.failures, error = new.error, status = new.status, failed_at = new.failed_at,
    skipped = new.skipped
FROM (SELECT {_UPDATED})
    AS new (id, version, number, updated_at, run_at, failures, error, status, failed_at,
            skipped)
WHERE {equals_by_key_lookup("operations.id", "new.id")}
"""

DELETE_OPERATIONS = "DELETE FROM operations WHERE id = ANY(%(ids)b::uuid[])"

DROP_PLACES = "DELETE FROM operation_lanes WHERE operation_id = ANY(%(ids)b::uuid[])"
RECKON_PLACES = """
INSERT INTO operation_lanes (queue, partition, place, operation_id)
SELECT lane.queue, lane.partition, (
    SELECT notification_id
    FROM stored_events
    WHERE (originator_id, originator_version) = (lane.id, 1)
), lane.id
FROM unnest(%(ids)b::uuid[], %(queues)b::text[], %(partitions)b::text[])
    AS lane (id, queue, partition)
WHERE EXISTS (SELECT FROM operations WHERE operations.id = lane.id OFFSET 0)
"""

# An operation of the future is one from before the clock went back, and has rested long enough.
FIND_DUE = """
SELECT id, items
FROM operations
WHERE status = 'pending' AND (
    (run_at IS NULL OR run_at <= clock_timestamp())
    AND updated_at <= clock_timestamp() - %(patience)s * interval '1 second'
    OR updated_at > clock_timestamp() + interval '1 second')
ORDER BY number
LIMIT %(limit)s
"""

# Numbers are drawn one by one and carried out in their order, so their difference is how many
# there are at most, and nothing needs to be counted. One that has failed before rests while others
# pass it, so it would make the difference larger than what is waited for.
READ_STANDING = """
SELECT (SELECT min(number) FROM operations WHERE status = 'pending' AND run_at IS NULL),
       (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM operation_numbers),
       (SELECT created_at FROM operations WHERE status = 'pending' ORDER BY number LIMIT 1),
       (SELECT created_at FROM operations WHERE status = 'pending' ORDER BY number DESC LIMIT 1)
"""

# They are few, or somebody has been told for long; nobody needs to know how many beyond that.
COUNT_FAILED = """
SELECT count(*), min(created_at), max(created_at),
       avg(extract(epoch FROM failed_at - created_at))::float8
FROM (
    SELECT created_at, failed_at FROM operations WHERE status = 'failed' ORDER BY number
    LIMIT %(limit)s
) AS failed
"""

_ITEMS = json.Decoder(tuple[Message, ...])
_SKIPPED = json.Decoder(tuple[str, ...])


class LiveOperations(LiveTable[Operation]):
    decider = OPERATION
    name = "operations"
    select = SELECT_OPERATIONS
    lock = HOLD_OPERATIONS
    count_related_statement = SEE_TIED_LANES
    insert = INSERT_OPERATIONS
    update = UPDATE_OPERATIONS
    delete = DELETE_OPERATIONS
    side_tables = ("operation_lanes",)

    def side_row(self, state: Operation) -> Hashable:  # noqa: ARG002 (what is over holds no place)
        return None

    def recompute_derived(self, states: Sequence[Operation]) -> Statements:
        # A state that was stored comes before what became of it.
        latest = {state.id: state for state in states}
        places = [(one.id, *lane) for one in latest.values() for lane in sorted(one.lanes)]
        named = {
            "ids": uuids([one for one, _, _ in places]),
            "queues": texts([queue for _, queue, _ in places]),
            "partitions": texts([partition for _, _, partition in places]),
        }
        ids = uuids([*latest])
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
            status=OperationStatus(row[10]),
            attempts_max=row[11],
            failed_at=row[12],
            skipped=_SKIPPED.decode(row[13]),
        )

    def insert_parameters(self, states: Sequence[Operation]) -> Parameters:
        return {
            **self.update_parameters(states),
            "created": timestamps([operation.created_at for operation in states]),
            "kinds": texts([operation.kind for operation in states]),
            "items": byteas([json.encode(operation.items) for operation in states]),
            "attempts": integers([operation.attempts_max for operation in states]),
        }

    def update_parameters(self, states: Sequence[Operation]) -> Parameters:
        return {
            "ids": uuids([operation.id for operation in states]),
            "versions": bigints([operation.version for operation in states]),
            "numbers": bigints([operation.number for operation in states]),
            "updated": timestamps([operation.updated_at for operation in states]),
            "run_at": timestamps([operation.run_at for operation in states]),
            "failures": integers([operation.failures for operation in states]),
            "errors": texts([operation.error for operation in states]),
            "statuses": texts([operation.status for operation in states]),
            "failed": timestamps([operation.failed_at for operation in states]),
            "skipped": byteas([json.encode(operation.skipped) for operation in states]),
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


class DueOperation(Struct, frozen=True, gc=False):
    operation_id: UUID
    items: tuple[Message, ...]


async def find_due(
    connection: AsyncConnection[TupleRow], *, patience_seconds: float, limit: int
) -> list[DueOperation]:
    """In the order in which they were accepted."""
    wanted = {"patience": patience_seconds, "limit": limit}
    rows = await connection.execute(FIND_DUE, wanted, binary=True)
    return [
        DueOperation(operation_id, _ITEMS.decode(items))
        for operation_id, items in await rows.fetchall()
    ]


async def read_numbers(connection: AsyncConnection[TupleRow]) -> Numbers:
    rows = await connection.execute(READ_STANDING, binary=True)
    ((oldest, last_drawn, oldest_at, newest_at),) = await rows.fetchall()
    return Numbers(oldest, last_drawn, oldest_at, newest_at)


class FailedOperation(Struct, frozen=True, gc=False):
    """Of the operations that were given up and that nobody has looked after."""

    count: int
    oldest_at: datetime | None
    newest_at: datetime | None
    average_seconds: float | None
    """From their acceptance to their last failure."""


async def count_failed(connection: AsyncConnection[TupleRow], *, limit: int) -> FailedOperation:
    rows = await connection.execute(COUNT_FAILED, {"limit": limit}, binary=True)
    (row,) = await rows.fetchall()
    return FailedOperation(*row)
