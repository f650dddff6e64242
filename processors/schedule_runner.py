"""Fires due schedules.

Several processes may find the same slot. The row lock of the schedule lets one fire it; the other
finds that the schedule has moved on.
"""

from typing import ClassVar

from daybook.domain.command import Command
from daybook.domain.schedules.commands import RUNS_MAX, FireSchedule
from daybook.domain.schedules.schedule import (
    LATE_SECONDS_MAX,
    SCHEDULE,
    MissedRuns,
    Schedule,
    run_id,
    schedule_id,
)
from daybook.eventlog.origin import Origin
from daybook.processors.processor import (
    AGAIN_SECONDS,
    BATCH_MAX,
    POLL_SECONDS,
    Processor,
    Runtime,
    Session,
    WakesOn,
)
from daybook.projections.schedules.schedules import DueSchedule, find_due_schedules

ACTOR = "system:schedules"
ACTION = "fire"


class CronRunner(Processor):
    name: ClassVar[str] = "schedules"
    wakes_on: ClassVar[WakesOn] = (SCHEDULE,)
    pause_seconds: ClassVar[float] = 0.05
    # The next due time is known, and a new schedule is rarely due within 1 s.
    min_interval_seconds: ClassVar[float] = POLL_SECONDS

    async def work(self, runtime: Runtime, session: Session) -> float:
        connection, seconds = session.connection, session.standby_delay_seconds
        first = await find_due_schedules(connection, standby_delay_seconds=seconds, limit=BATCH_MAX)
        due = [one for one in first if one.seconds <= 0]
        if not await runtime.send(_fire(runtime, one) for one in due):
            return AGAIN_SECONDS
        # A schedule with many missed runs may have some left.
        return 0 if due else min([POLL_SECONDS, *(one.seconds for one in first)])


def _fire(runtime: Runtime, due: DueSchedule) -> tuple[Command[Schedule], Origin]:
    is_behind = due.missed_runs == MissedRuns.ALL and due.seconds < -LATE_SECONDS_MAX
    command = FireSchedule(name=due.name, runs_max=RUNS_MAX if is_behind else 1)
    cause = run_id(schedule_id(due.name), due.slot_at)
    return command, runtime.origin(ACTOR, cause, ACTION)
