"""`schedules`: the live table of cron schedules that are not deleted."""

from datetime import datetime

from msgspec import Struct

from daybook.domain.schedules.schedule import SCHEDULE, Schedule
from daybook.eventlog.postgres.pipeline import Connection
from daybook.eventlog.writing.live_table import LiveTable
from daybook.eventlog.writing.row_mapping import Column

SCHEDULES = LiveTable(
    "schedules",
    SCHEDULE,
    [
        Column("id", "uuid"),
        Column("name", "text"),
        Column("created_at", "timestamptz"),
        Column("version", "bigint", changes=True),
        Column("cron", "text", "plan.cron", changes=True),
        Column("time_zone", "text", "plan.time_zone", changes=True),
        Column("missed_runs", "text", "plan.missed_runs", changes=True),
        Column("catch_up_seconds", "float8", "plan.catch_up_seconds", changes=True),
        Column("job", "bytea", "plan.job", changes=True),
        Column("paused", "boolean", changes=True),
        Column("updated_at", "timestamptz", changes=True),
        Column("next_run_at", "timestamptz", changes=True),
        Column("last_run_at", "timestamptz", changes=True),
    ],
)

READ_SCHEDULE = f"{SCHEDULES.select} WHERE name = %(name)s"
READ_SCHEDULES = f"""{SCHEDULES.select}
WHERE name > %(after)s
ORDER BY name
LIMIT %(limit)s
"""
# Due schedules and the next one, with its seconds to wait. The time is the database's.
FIND_DUE_SCHEDULES = """
SELECT name, next_run_at, missed_runs,
       extract(epoch FROM next_run_at - clock_timestamp())::float8 + %(standby_delay_seconds)s
           AS seconds
FROM schedules
WHERE next_run_at IS NOT NULL
ORDER BY next_run_at
LIMIT %(limit)s
"""


class DueSchedule(Struct, frozen=True, gc=False):
    name: str
    slot_at: datetime
    missed_runs: str
    seconds: float  # until it is due; 0 or less if due


async def find_due_schedules(
    connection: Connection, *, standby_delay_seconds: float, limit: int
) -> list[DueSchedule]:
    """Returns the first schedules by next run; the last of them may not be due yet."""
    parameters = {"standby_delay_seconds": standby_delay_seconds, "limit": limit}
    rows = await connection.execute(FIND_DUE_SCHEDULES, parameters)
    return [DueSchedule(*row) for row in await rows.fetchall()]


async def one_schedule(connection: Connection, name: str) -> Schedule | None:
    rows = await connection.execute(READ_SCHEDULE, {"name": name}, binary=True)
    row = await rows.fetchone()
    return None if row is None else SCHEDULES.load(row)


async def read_schedules(connection: Connection, *, after: str, limit: int) -> list[Schedule]:
    parameters = {"after": after, "limit": limit}
    rows = await connection.execute(READ_SCHEDULES, parameters, binary=True)
    return [SCHEDULES.load(row) for row in await rows.fetchall()]
