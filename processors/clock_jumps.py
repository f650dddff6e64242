"""Records jumps of the database's clock, and moves backoffs and rate limits back with it.

Leases and timers handle jumps themselves (deadlines.py). Times that a client chose, for delayed
jobs, snoozes and schedules, do not move.
"""

from time import monotonic
from typing import Any, ClassVar
from uuid import UUID

from uuid_utils.compat import uuid7

from daybook.domain.clock import RecordJump
from daybook.domain.command import Command
from daybook.domain.jobs.job import JOB
from daybook.domain.jobs.work import RescheduleRetry
from daybook.eventlog.origin import Origin
from daybook.processors.database_clock import Jump
from daybook.processors.processor import (
    AGAIN_SECONDS,
    BATCH_MAX,
    POLL_SECONDS,
    Processor,
    Runtime,
    Session,
    WakesOn,
)

ACTOR = "system:clock"
# A standby process also notices each jump. It keeps the jump for 2 s, and records it only if it
# takes over from a dead leader in that time.
UNRECORDED_SECONDS_MAX = 2.0

READ_CLOCK = "SELECT clock_timestamp()"
# Retries whose failure is in the future, by a clock that was ahead. The query runs only after a
# jump, and once when a process becomes the leader, because it walks through all delayed jobs. The
# job's last event distinguishes a retry from a time that a client chose.
FIND_STRANDED_RETRIES = """
SELECT jobs.id, jobs.version, extract(epoch FROM run_at - updated_at)::float8
FROM jobs
JOIN stored_events AS last
    ON (last.originator_id, last.originator_version) = (jobs.id, jobs.version)
WHERE status = 'PENDING' AND run_at IS NOT NULL
  AND updated_at > clock_timestamp() + interval '1 second'
  AND split_part(last.topic, '/', 1) = 'job.failed'
ORDER BY jobs.number
LIMIT %(limit)s
"""
MOVE_PACES = "UPDATE queue_paces SET due_at = due_at + %(seconds)s * interval '1 second'"


class ClockJumps(Processor):
    name: ClassVar[str] = "clock"
    wakes_on: ClassVar[WakesOn] = (JOB,)
    pause_seconds: ClassVar[float] = 0.1
    # No event makes a clock jump.
    min_interval_seconds: ClassVar[float] = POLL_SECONDS

    def __init__(self) -> None:
        # The clock may have jumped before this process started.
        self._may_be_stranded = True

    async def work(self, runtime: Runtime, session: Session) -> float:
        began = monotonic()
        ((now,),) = await (await session.connection.execute(READ_CLOCK)).fetchall()
        look = session.clock.look(now, began=began)
        if not session.is_leader:
            session.clock.forget(before=look.ended - UNRECORDED_SECONDS_MAX)
            self._may_be_stranded = True
            return POLL_SECONDS
        for jump in session.clock.unrecorded:
            # Jumps are recorded in order: a failure keeps this one and all later ones unrecorded.
            if not await runtime.send([_record(runtime, jump)]):
                return AGAIN_SECONDS
            session.clock.mark_recorded(jump)
            await self._move_rate_limits(session, jump)
        if not self._may_be_stranded:
            return POLL_SECONDS
        return await self._reschedule(runtime, session)

    async def _move_rate_limits(self, session: Session, jump: Jump) -> None:
        if jump.seconds < 0:
            self._may_be_stranded = True
            await session.connection.execute(MOVE_PACES, {"seconds": jump.seconds})

    async def _reschedule(self, runtime: Runtime, session: Session) -> float:
        found = await session.connection.execute(FIND_STRANDED_RETRIES, {"limit": BATCH_MAX})
        stranded = await found.fetchall()
        accepted = await runtime.send(_move(runtime, *one) for one in stranded)
        self._may_be_stranded = len(stranded) == BATCH_MAX or not accepted
        return AGAIN_SECONDS if self._may_be_stranded else POLL_SECONDS


def _record(runtime: Runtime, jump: Jump) -> tuple[Command[Any], Origin]:
    command = RecordJump(
        seconds=jump.seconds, within_seconds=jump.within_seconds, noticed_at=jump.noticed_at
    )
    return command, runtime.origin(ACTOR, uuid7(), "jump")


def _move(
    runtime: Runtime, job_id: UUID, version: int, seconds: float
) -> tuple[Command[Any], Origin]:
    command = RescheduleRetry(job_id=job_id, version=version, retry_delay_seconds=seconds)
    return command, runtime.origin(ACTOR, job_id, f"move {version}")
