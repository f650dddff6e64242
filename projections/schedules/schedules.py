"""`schedules`: the live table of cron schedules that are not deleted."""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct, json
from psycopg.rows import TupleRow

from daybook.domain.jobs.create import JobTemplate
from daybook.domain.schedules.schedule import SCHEDULE, MissedRuns, Plan, Schedule
from daybook.eventlog.postgres import binary_arrays as arrays
from daybook.eventlog.postgres.key_lookup import equals_by_key_lookup
from daybook.eventlog.postgres.pipeline import Connection
from daybook.eventlog.writing.live_table import LiveTable, Parameters

SELECT_SCHEDULES = """
SELECT id, version, name, cron, time_zone, missed_runs, catch_up_seconds, job, paused, created_at,
       updated_at, next_run_at, last_run_at
FROM schedules
"""
LOCK_SCHEDULES = f"{SELECT_SCHEDULES} WHERE id = ANY(%(ids)b::uuid[]) ORDER BY id FOR UPDATE"
INSERT_SCHEDULES = """
INSERT INTO schedules (id, version, name, cron, time_zone, missed_runs, catch_up_seconds, job,
                       paused, created_at, updated_at, next_run_at, last_run_at)
SELECT * FROM unnest(
    %(ids)b::uuid[], %(versions)b::bigint[], %(names)b::text[], %(crons)b::text[],
    %(time_zones)b::text[], %(missed_runs)b::text[], %(catch_up_seconds)b::float8[],
    %(jobs)b::bytea[], %(paused)b::boolean[], %(created)b::timestamptz[],
    %(updated)b::timestamptz[], %(next_runs)b::timestamptz[], %(last_runs)b::timestamptz[])
"""
UPDATE_SCHEDULES = f"""
UPDATE schedules
SET version = new.version, cron = new.cron, time_zone = new.time_zone,
    missed_runs = new.missed_runs, catch_up_seconds = new.catch_up_seconds, job = new.job,
    paused = new.paused, updated_at = new.updated_at, next_run_at = new.next_run_at,
    last_run_at = new.last_run_at
FROM unnest(
    %(ids)b::uuid[], %(versions)b::bigint[], %(crons)b::text[], %(time_zones)b::text[],
    %(missed_runs)b::text[], %(catch_up_seconds)b::float8[], %(jobs)b::bytea[],
    %(paused)b::boolean[], %(updated)b::timestamptz[], %(next_runs)b::timestamptz[],
    %(last_runs)b::timestamptz[]
) AS new (id, version, cron, time_zone, missed_runs, catch_up_seconds, job, paused, updated_at,
          next_run_at, last_run_at)
WHERE {equals_by_key_lookup("schedules.id", "new.id")}
"""
DELETE_SCHEDULES = "DELETE FROM schedules WHERE id = ANY(%(ids)b::uuid[])"
READ_SCHEDULE = f"{SELECT_SCHEDULES} WHERE name = %(name)s"
READ_SCHEDULES = f"""{SELECT_SCHEDULES}
WHERE name > %(after)s
ORDER BY name
LIMIT %(limit)s
"""
# Due schedules and the next one, with its seconds to wait. The time is the database's.
FIND_DUE_SCHEDULES = """
SELECT name, next_run_at, missed_runs,
       extract(epoch FROM next_run_at - clock_timestamp())::float8 + %(patience)s AS seconds
FROM schedules
WHERE next_run_at IS NOT NULL
ORDER BY next_run_at
LIMIT %(limit)s
"""


class LiveSchedules(LiveTable[Schedule]):
    decider = SCHEDULE
    name = "schedules"
    select = SELECT_SCHEDULES
    lock = LOCK_SCHEDULES
    insert = INSERT_SCHEDULES
    update = UPDATE_SCHEDULES
    delete = DELETE_SCHEDULES

    def load(self, row: TupleRow) -> Schedule:
        plan = Plan(
            cron=row[3],
            time_zone=row[4],
            missed_runs=MissedRuns(row[5]),
            catch_up_seconds=row[6],
            job=json.decode(row[7], type=JobTemplate),
        )
        return Schedule(
            id=row[0],
            version=row[1],
            name=row[2],
            plan=plan,
            paused=row[8],
            created_at=row[9],
            updated_at=row[10],
            next_run_at=row[11],
            last_run_at=row[12],
        )

    def insert_parameters(self, states: Sequence[Schedule]) -> Parameters:
        return {
            **self.update_parameters(states),
            "names": arrays.texts([schedule.name for schedule in states]),
            "created": arrays.timestamps([schedule.created_at for schedule in states]),
        }

    def update_parameters(self, states: Sequence[Schedule]) -> Parameters:
        plans = [schedule.plan for schedule in states]
        return {
            "ids": arrays.uuids([schedule.id for schedule in states]),
            "versions": arrays.bigints([schedule.version for schedule in states]),
            "crons": arrays.texts([plan.cron for plan in plans]),
            "time_zones": arrays.texts([plan.time_zone for plan in plans]),
            "missed_runs": arrays.texts([plan.missed_runs for plan in plans]),
            "catch_up_seconds": arrays.doubles([plan.catch_up_seconds for plan in plans]),
            "jobs": arrays.byteas([json.encode(plan.job) for plan in plans]),
            "paused": arrays.booleans([schedule.paused for schedule in states]),
            "updated": arrays.timestamps([schedule.updated_at for schedule in states]),
            "next_runs": arrays.timestamps([schedule.next_run_at for schedule in states]),
            "last_runs": arrays.timestamps([schedule.last_run_at for schedule in states]),
        }


class DueSchedule(Struct, frozen=True, gc=False):
    name: str
    slot_at: datetime
    missed_runs: str
    seconds: float  # until it is due; 0 or less if due


async def find_due_schedules(
    connection: Connection, *, patience_seconds: float, limit: int
) -> list[DueSchedule]:
    """Returns the first schedules by next run; the last of them may not be due yet."""
    parameters = {"patience": patience_seconds, "limit": limit}
    rows = await connection.execute(FIND_DUE_SCHEDULES, parameters)
    return [DueSchedule(*row) for row in await rows.fetchall()]


async def one_schedule(connection: Connection, name: str) -> Schedule | None:
    rows = await connection.execute(READ_SCHEDULE, {"name": name}, binary=True)
    row = await rows.fetchone()
    return None if row is None else LiveSchedules().load(row)


async def read_schedules(connection: Connection, *, after: str, limit: int) -> list[Schedule]:
    parameters = {"after": after, "limit": limit}
    rows = await connection.execute(READ_SCHEDULES, parameters, binary=True)
    return [LiveSchedules().load(row) for row in await rows.fetchall()]
