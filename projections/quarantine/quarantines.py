"""`quarantines`: aggregates with an unreadable event."""

from collections.abc import Iterable
from uuid import UUID

from daybook.domain.quarantine import QUARANTINE, Quarantine, QuarantineStatus
from daybook.eventlog.postgres.binary_arrays import uuids
from daybook.eventlog.postgres.connections import SCHEMA
from daybook.eventlog.postgres.pipeline import Connection
from daybook.eventlog.writing.live_table import (
    NO_SIDE_STATEMENTS,
    Changes,
    LiveTable,
    SideStatements,
    SideTables,
    Statements,
)
from daybook.eventlog.writing.row_mapping import Column, RowMapping

COLUMNS = (
    Column("id", "uuid"),
    Column("aggregate_id", "uuid", "fault.aggregate_id"),
    Column("kind", "text", "fault.kind"),
    Column("topic", "text", "fault.topic"),
    Column("position", "bigint", "fault.position"),
    Column("aggregate_version", "bigint", "fault.version"),
    Column("error", "text", "fault.error"),
    Column("created_at", "timestamptz"),
    Column("version", "bigint", changes=True),
    Column("status", "text", changes=True),
    Column("reason", "text", changes=True),
    Column("updated_at", "timestamptz", changes=True),
)
QUARANTINES = RowMapping("quarantines", Quarantine, COLUMNS)
READ_QUARANTINES = f"{QUARANTINES.select} ORDER BY position"
# With its schema: in a rebuild the search path finds copies first.
READ_SET_ASIDE = f"SELECT aggregate_id FROM {SCHEMA}.quarantines WHERE status = 'SET_ASIDE'"
COUNT_QUARANTINES = """
SELECT count(*) FILTER (WHERE status = 'DETECTED'), count(*) FILTER (WHERE status = 'SET_ASIDE')
FROM quarantines
"""
_TAKE_ROWS = """
WITH taken AS (DELETE FROM {table} WHERE id = ANY(%(ids)b::uuid[]) RETURNING {table}.*)
INSERT INTO quarantined_rows (id, table_name, data)
SELECT id, '{table}', to_jsonb(taken) FROM taken
ON CONFLICT (id) DO NOTHING
"""
RELEASE_LANES = "DELETE FROM operation_lanes WHERE operation_id = ANY(%(ids)b::uuid[])"


class RowsOfSetAside(SideTables[Quarantine]):
    """Removes an aggregate that is set aside from every table, in the event's transaction."""

    def __init__(self, listed_in: Iterable[str], recompute_lanes: Statements) -> None:
        """`listed_in` are the tables with rows of aggregates; `recompute_lanes` unblocks the lanes
        of a removed job."""
        self._take_rows = [_TAKE_ROWS.format(table=table) for table in listed_in]
        self._recompute_lanes = recompute_lanes

    def statements(self, changes: Changes) -> SideStatements:
        ids = [
            change.state.fault.aggregate_id
            for change in changes.get(QUARANTINE.name, ())
            if change.state.status is QuarantineStatus.SET_ASIDE
        ]
        if not ids:
            return NO_SIDE_STATEMENTS
        given = {"ids": uuids(ids)}
        taken = [(statement, given) for statement in (*self._take_rows, RELEASE_LANES)]
        return SideStatements(after=[*taken, *self._recompute_lanes])


def live_quarantines(
    listed_in: Iterable[str] = (), recompute_lanes: Statements = ()
) -> LiveTable[Quarantine]:
    sides = RowsOfSetAside(listed_in, recompute_lanes)
    return LiveTable("quarantines", QUARANTINE, COLUMNS, sides=sides)


async def all_quarantines(connection: Connection) -> list[Quarantine]:
    rows = await connection.execute(READ_QUARANTINES, binary=True)
    return [QUARANTINES.load(row) for row in await rows.fetchall()]


async def set_aside_ids(connection: Connection) -> set[UUID]:
    rows = await connection.execute(READ_SET_ASIDE, binary=True)
    return {row[0] for row in await rows.fetchall()}
