"""`running_rebuilds`: rebuilds without an end. One whose lock is free was interrupted."""

from collections.abc import Sequence

from psycopg.rows import TupleRow

from daybook.domain.rebuild import REBUILD, Rebuild, RebuildAction, RebuildStatus
from daybook.eventlog.postgres.binary_arrays import bigints, texts, timestamps, uuids
from daybook.eventlog.writing.live_table import LiveTable, Parameters

# Advisory lock of the running rebuild: the bytes of "rebuild".
REBUILD_LOCK = 0x72656275_696C64

SELECT_RUNNING_REBUILDS = """
SELECT id, version, action, projections, created_at, updated_at
FROM running_rebuilds
"""
LOCK_ALL_REBUILDS = f"{SELECT_RUNNING_REBUILDS} ORDER BY id FOR UPDATE"
LOCK_REBUILDS = f"{SELECT_RUNNING_REBUILDS} WHERE id = ANY(%(ids)b::uuid[]) ORDER BY id FOR UPDATE"
INSERT_REBUILDS = """
INSERT INTO running_rebuilds (id, version, action, projections, created_at, updated_at)
SELECT * FROM unnest(
    %(ids)b::uuid[], %(versions)b::bigint[], %(actions)b::text[], %(projections)b::text[],
    %(created)b::timestamptz[], %(updated)b::timestamptz[])
"""
DELETE_REBUILDS = "DELETE FROM running_rebuilds WHERE id = ANY(%(ids)b::uuid[])"


class RunningRebuilds(LiveTable[Rebuild]):
    """A rebuild has one event before its end, so no row is ever updated."""

    decider = REBUILD
    name = "running_rebuilds"
    select = SELECT_RUNNING_REBUILDS
    lock = LOCK_REBUILDS
    lock_all = LOCK_ALL_REBUILDS
    insert = INSERT_REBUILDS
    delete = DELETE_REBUILDS

    def load(self, row: TupleRow) -> Rebuild:
        return Rebuild(
            id=row[0],
            version=row[1],
            action=RebuildAction(row[2]),
            projections=tuple(row[3].split()),
            status=RebuildStatus.RUNNING,
            created_at=row[4],
            updated_at=row[5],
        )

    def insert_parameters(self, states: Sequence[Rebuild]) -> Parameters:
        return {
            "ids": uuids([rebuild.id for rebuild in states]),
            "versions": bigints([rebuild.version for rebuild in states]),
            "actions": texts([rebuild.action for rebuild in states]),
            "projections": texts([" ".join(rebuild.projections) for rebuild in states]),
            "created": timestamps([rebuild.created_at for rebuild in states]),
            "updated": timestamps([rebuild.updated_at for rebuild in states]),
        }
