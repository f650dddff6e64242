"""`quarantines`: aggregates with an unreadable event."""

from collections.abc import Iterable, Sequence
from uuid import UUID

from psycopg.rows import TupleRow

from daybook.domain.quarantine import QUARANTINE, Fault, Quarantine, QuarantineStatus
from daybook.eventlog.postgres.binary_arrays import bigints, texts, timestamps, uuids
from daybook.eventlog.postgres.connections import SCHEMA
from daybook.eventlog.postgres.key_lookup import equals_by_key_lookup
from daybook.eventlog.postgres.pipeline import Connection
from daybook.eventlog.writing.live_table import (
    NO_SIDE_STATEMENTS,
    Changes,
    LiveTable,
    Parameters,
    SideStatements,
    Statements,
)

SELECT_QUARANTINES = """
SELECT id, version, aggregate_id, kind, topic, position, aggregate_version, error, status, reason,
       created_at, updated_at
FROM quarantines
"""
LOCK_QUARANTINES = f"{SELECT_QUARANTINES} WHERE id = ANY(%(ids)b::uuid[]) ORDER BY id FOR UPDATE"
INSERT_QUARANTINES = """
INSERT INTO quarantines (id, version, aggregate_id, kind, topic, position, aggregate_version, error,
                         status, reason, created_at, updated_at)
SELECT * FROM unnest(
    %(ids)b::uuid[], %(versions)b::bigint[], %(aggregates)b::uuid[], %(kinds)b::text[],
    %(topics)b::text[], %(positions)b::bigint[], %(aggregate_versions)b::bigint[],
    %(errors)b::text[], %(statuses)b::text[], %(reasons)b::text[], %(created)b::timestamptz[],
    %(updated)b::timestamptz[])
"""
UPDATE_QUARANTINES = f"""
UPDATE quarantines
SET version = new.version, status = new.status, reason = new.reason, updated_at = new.updated_at
FROM unnest(
    %(ids)b::uuid[], %(versions)b::bigint[], %(statuses)b::text[], %(reasons)b::text[],
    %(updated)b::timestamptz[]
) AS new (id, version, status, reason, updated_at)
WHERE {equals_by_key_lookup("quarantines.id", "new.id")}
"""
READ_QUARANTINES = f"{SELECT_QUARANTINES} ORDER BY position"
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


class LiveQuarantines(LiveTable[Quarantine]):
    decider = QUARANTINE
    name = "quarantines"
    select = SELECT_QUARANTINES
    lock = LOCK_QUARANTINES
    insert = INSERT_QUARANTINES
    update = UPDATE_QUARANTINES

    def __init__(self, listed_in: Iterable[str] = (), recompute_lanes: Statements = ()) -> None:
        """`listed_in` are the tables with rows of aggregates; `recompute_lanes` unblocks the lanes
        of a removed job."""
        self._take_rows = [_TAKE_ROWS.format(table=table) for table in listed_in]
        self._recompute_lanes = recompute_lanes

    def side_statements(self, changes: Changes) -> SideStatements:
        """Removes an aggregate that is set aside from every table, in the event's transaction."""
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

    def load(self, row: TupleRow) -> Quarantine:
        return Quarantine(
            id=row[0],
            version=row[1],
            fault=Fault(
                aggregate_id=row[2],
                kind=row[3],
                topic=row[4],
                position=row[5],
                version=row[6],
                error=row[7],
            ),
            status=QuarantineStatus(row[8]),
            reason=row[9],
            created_at=row[10],
            updated_at=row[11],
        )

    def insert_parameters(self, states: Sequence[Quarantine]) -> Parameters:
        faults = [one.fault for one in states]
        return {
            **self.update_parameters(states),
            "aggregates": uuids([fault.aggregate_id for fault in faults]),
            "kinds": texts([fault.kind for fault in faults]),
            "topics": texts([fault.topic for fault in faults]),
            "positions": bigints([fault.position for fault in faults]),
            "aggregate_versions": bigints([fault.version for fault in faults]),
            "errors": texts([fault.error for fault in faults]),
            "created": timestamps([one.created_at for one in states]),
        }

    def update_parameters(self, states: Sequence[Quarantine]) -> Parameters:
        return {
            "ids": uuids([one.id for one in states]),
            "versions": bigints([one.version for one in states]),
            "statuses": texts([one.status for one in states]),
            "reasons": texts([one.reason for one in states]),
            "updated": timestamps([one.updated_at for one in states]),
        }


async def all_quarantines(connection: Connection) -> list[Quarantine]:
    rows = await connection.execute(READ_QUARANTINES, binary=True)
    return [LiveQuarantines().load(row) for row in await rows.fetchall()]


async def set_aside_ids(connection: Connection) -> set[UUID]:
    rows = await connection.execute(READ_SET_ASIDE, binary=True)
    return {row[0] for row in await rows.fetchall()}
