"""`operations`: deferred pushes in the order of acceptance, until they are executed or cancelled.

`operation_lanes` has their places in lanes; `projections/jobs/lanes.py` maintains it.
"""

from collections.abc import Hashable, Sequence
from datetime import datetime
from uuid import UUID

from msgspec import Struct, json
from psycopg.rows import TupleRow

from daybook.domain.messages.operation import (
    OPERATION,
    Message,
    Operation,
    OperationKind,
    OperationStatus,
)
from daybook.eventlog.postgres import binary_arrays as arrays
from daybook.eventlog.postgres.key_lookup import equals_by_key_lookup
from daybook.eventlog.postgres.pipeline import Connection
from daybook.eventlog.writing.live_table import LiveTable, Parameters, Statements

SELECT_OPERATIONS = """
SELECT id, version, number, created_at, updated_at, run_at, failures, kind, error, items, status,
       attempts_max, failed_at, skipped
FROM operations
"""
LOCK_OPERATIONS = f"{SELECT_OPERATIONS} WHERE id = ANY(%(ids)b::uuid[]) ORDER BY id FOR UPDATE"
# Places reserved in these lanes. LATERAL makes the planner go lane by lane.
COUNT_RELATED_LANES = """
SELECT lane.id, held.count
FROM lanes AS lane, LATERAL (
    SELECT count(*) FROM operation_lanes
    WHERE (operation_lanes.queue, operation_lanes.partition) = (lane.queue, lane.partition)
) AS held
WHERE lane.id = ANY(%(tied)b::uuid[]) AND held.count > 0
"""
_INSERTED = arrays.unnested(
    "ids uuid, versions bigint, numbers bigint, created timestamptz, updated timestamptz, "
    "run_at timestamptz, failures integer, kinds text, errors text, items bytea, statuses text, "
    "attempts integer, failed timestamptz, skipped bytea"
)
INSERT_OPERATIONS = f"""
INSERT INTO operations (id, version, number, created_at, updated_at, run_at, failures, kind, error,
                        items, status, attempts_max, failed_at, skipped)
SELECT {_INSERTED}
"""
_UPDATED = arrays.unnested(
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
DELETE_PLACES = "DELETE FROM operation_lanes WHERE operation_id = ANY(%(ids)b::uuid[])"
RECOMPUTE_PLACES = """
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
# An updated_at in the future means that the clock went back; such an operation is due.
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
# Operations are numbered and executed in order, so a difference of numbers bounds the backlog
# without a count. Operations that back off are left out: others overtake them.
READ_BACKLOG = """
SELECT (SELECT min(number) FROM operations WHERE status = 'pending' AND run_at IS NULL),
       (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM operation_numbers),
       (SELECT created_at FROM operations WHERE status = 'pending' ORDER BY number LIMIT 1),
       (SELECT created_at FROM operations WHERE status = 'pending' ORDER BY number DESC LIMIT 1)
"""
# Counted up to the limit.
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
    lock = LOCK_OPERATIONS
    count_related_statement = COUNT_RELATED_LANES
    insert = INSERT_OPERATIONS
    update = UPDATE_OPERATIONS
    delete = DELETE_OPERATIONS
    side_tables = ("operation_lanes",)

    def side_row(self, state: Operation) -> Hashable:  # noqa: ARG002 (an ended operation has no place)
        return None

    def recompute_derived(self, states: Sequence[Operation]) -> Statements:
        # Stored states come first, so the later state of an operation wins.
        latest = {state.id: state for state in states}
        places = [(one.id, *lane) for one in latest.values() for lane in sorted(one.lanes)]
        named = {
            "ids": arrays.uuids([one for one, _, _ in places]),
            "queues": arrays.texts([queue for _, queue, _ in places]),
            "partitions": arrays.texts([partition for _, _, partition in places]),
        }
        ids = arrays.uuids([*latest])
        return [(DELETE_PLACES, {"ids": ids}), (RECOMPUTE_PLACES, named)]

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
            "created": arrays.timestamps([operation.created_at for operation in states]),
            "kinds": arrays.texts([operation.kind for operation in states]),
            "items": arrays.byteas([json.encode(operation.items) for operation in states]),
            "attempts": arrays.integers([operation.attempts_max for operation in states]),
        }

    def update_parameters(self, states: Sequence[Operation]) -> Parameters:
        return {
            "ids": arrays.uuids([operation.id for operation in states]),
            "versions": arrays.bigints([operation.version for operation in states]),
            "numbers": arrays.bigints([operation.number for operation in states]),
            "updated": arrays.timestamps([operation.updated_at for operation in states]),
            "run_at": arrays.timestamps([operation.run_at for operation in states]),
            "failures": arrays.integers([operation.failures for operation in states]),
            "errors": arrays.texts([operation.error for operation in states]),
            "statuses": arrays.texts([operation.status for operation in states]),
            "failed": arrays.timestamps([operation.failed_at for operation in states]),
            "skipped": arrays.byteas([json.encode(operation.skipped) for operation in states]),
        }


class BacklogNumbers(Struct, frozen=True, gc=False):
    """Numbers and times of pending operations; None if there are none."""

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
    connection: Connection, *, patience_seconds: float, limit: int
) -> list[DueOperation]:
    """Returns due operations in the order of acceptance."""
    wanted = {"patience": patience_seconds, "limit": limit}
    rows = await connection.execute(FIND_DUE, wanted, binary=True)
    return [
        DueOperation(operation_id, _ITEMS.decode(items))
        for operation_id, items in await rows.fetchall()
    ]


async def read_backlog(connection: Connection) -> BacklogNumbers:
    rows = await connection.execute(READ_BACKLOG, binary=True)
    ((oldest, last_drawn, oldest_at, newest_at),) = await rows.fetchall()
    return BacklogNumbers(oldest, last_drawn, oldest_at, newest_at)


class FailedOperation(Struct, frozen=True, gc=False):
    """Totals of failed operations that await a retry or cancellation."""

    count: int
    oldest_at: datetime | None
    newest_at: datetime | None
    average_seconds: float | None  # from acceptance to the last failure


async def count_failed(connection: Connection, *, limit: int) -> FailedOperation:
    rows = await connection.execute(COUNT_FAILED, {"limit": limit}, binary=True)
    (row,) = await rows.fetchall()
    return FailedOperation(*row)
