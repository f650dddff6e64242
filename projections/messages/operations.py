"""`operations`: deferred pushes in the order of acceptance, until they are executed or cancelled.

`operation_lanes` has their places in lanes; `projections/jobs/lanes.py` maintains it.
"""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from msgspec import Struct, json

from daybook.domain.messages.operation import OPERATION, Message, Operation
from daybook.eventlog.postgres.binary_arrays import texts, uuids
from daybook.eventlog.postgres.pipeline import Connection
from daybook.eventlog.writing.live_table import LiveTable, SideTables, Statements
from daybook.eventlog.writing.row_mapping import Column

# Places reserved in these lanes. LATERAL makes the planner go lane by lane.
COUNT_RELATED_LANES = """
SELECT lane.id, held.count
FROM lanes AS lane, LATERAL (
    SELECT count(*) FROM operation_lanes
    WHERE (operation_lanes.queue, operation_lanes.partition) = (lane.queue, lane.partition)
) AS held
WHERE lane.id = ANY(%(related_ids)b::uuid[]) AND held.count > 0
"""
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
    AND updated_at <= clock_timestamp() - %(standby_delay_seconds)s * interval '1 second'
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


class ReservedPlaces(SideTables[Operation]):
    names = ("operation_lanes",)

    def recompute(self, states: Sequence[Operation]) -> Statements:
        # Stored states come first, so the later state of an operation wins.
        latest = {state.id: state for state in states}
        places = [(one.id, *lane) for one in latest.values() for lane in sorted(one.lanes)]
        named = {
            "ids": uuids([one for one, _, _ in places]),
            "queues": texts([queue for _, queue, _ in places]),
            "partitions": texts([partition for _, _, partition in places]),
        }
        return [(DELETE_PLACES, {"ids": uuids([*latest])}), (RECOMPUTE_PLACES, named)]


OPERATIONS = LiveTable(
    "operations",
    OPERATION,
    [
        Column("id", "uuid"),
        Column("created_at", "timestamptz"),
        Column("kind", "text"),
        Column("items", "bytea"),
        Column("attempts_max", "integer"),
        Column("version", "bigint", changes=True),
        Column("number", "bigint", changes=True),
        Column("updated_at", "timestamptz", changes=True),
        Column("run_at", "timestamptz", changes=True),
        Column("failures", "integer", changes=True),
        Column("error", "text", changes=True),
        Column("status", "text", changes=True),
        Column("failed_at", "timestamptz", changes=True),
        Column("skipped", "bytea", changes=True),
    ],
    count_related=COUNT_RELATED_LANES,
    sides=ReservedPlaces(),
)


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
    connection: Connection, *, standby_delay_seconds: float, limit: int
) -> list[DueOperation]:
    """Returns due operations in the order of acceptance."""
    wanted = {"standby_delay_seconds": standby_delay_seconds, "limit": limit}
    rows = await connection.execute(FIND_DUE, wanted, binary=True)
    return [
        DueOperation(operation_id, _ITEMS.decode(items))
        for operation_id, items in await rows.fetchall()
    ]


async def read_backlog(connection: Connection) -> BacklogNumbers:
    rows = await connection.execute(READ_BACKLOG, binary=True)
    ((oldest, last_drawn, oldest_at, newest_at),) = await rows.fetchall()
    return BacklogNumbers(oldest, last_drawn, oldest_at, newest_at)


class FailedOperationTotals(Struct, frozen=True, gc=False):
    """Totals of failed operations that await a retry or cancellation."""

    count: int
    oldest_at: datetime | None
    newest_at: datetime | None
    average_seconds: float | None  # from acceptance to the last failure


async def count_failed(connection: Connection, *, limit: int) -> FailedOperationTotals:
    rows = await connection.execute(COUNT_FAILED, {"limit": limit}, binary=True)
    (row,) = await rows.fetchall()
    return FailedOperationTotals(*row)
