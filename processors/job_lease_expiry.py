"""Expires job leases that no heartbeat has extended.

The attempt counts; the job is retried after its backoff, or is dead after the last attempt. A late
report of the worker names a claim that is no longer valid, and is refused.
"""

import random
from typing import ClassVar, cast
from uuid import UUID

from daybook.domain.command import Command
from daybook.domain.jobs.job import JOB, Job
from daybook.domain.jobs.work import ExpireLease
from daybook.eventlog.origin import Origin
from daybook.processors.deadlines import Deadline, Deadlines
from daybook.processors.processor import (
    AGAIN_SECONDS,
    POLL_SECONDS,
    Processor,
    Runtime,
    Session,
    WakesOn,
)

ACTOR = "system:leases"
ACTION = "expire"

# Expired leases, the first that is not expired, and any with more time left than its length, which
# was granted while the clock was ahead. After a jump, all leases. Reads claimed jobs only.
FIND_EXPIRED = """
WITH moment AS MATERIALIZED (
    SELECT clock_timestamp() AS now
), held AS MATERIALIZED (
    SELECT claim_id, lease_until, id,
           extract(epoch FROM lease_until - now)::float8 AS seconds,
           CASE WHEN heartbeat_claim_id = claim_id THEN heartbeat_seconds
                ELSE extract(epoch FROM lease_until - started_at)::float8 END AS length_seconds
    FROM jobs, moment
    WHERE claim_id IS NOT NULL
)
SELECT now, claim_id, lease_until, seconds, length_seconds, id
FROM moment LEFT JOIN held
    ON %(all)s
    OR seconds <= - %(grace)s::float8
    OR seconds > length_seconds + %(jump_seconds_min)s
    OR seconds = (SELECT min(seconds) FROM held WHERE seconds > - %(grace)s::float8)
ORDER BY seconds
LIMIT %(limit)s
"""


class JobLeaseExpiry(Processor):
    name: ClassVar[str] = "leases"
    wakes_on: ClassVar[WakesOn] = (JOB,)
    pause_seconds: ClassVar[float] = 0.1
    # A new lease rarely ends before the older ones, and up to 1 s of delay is acceptable.
    min_interval_seconds: ClassVar[float] = POLL_SECONDS

    def __init__(self) -> None:
        self._deadlines = Deadlines()

    async def work(self, runtime: Runtime, session: Session) -> float:
        due = await self._deadlines.find_due(session, FIND_EXPIRED)
        accepted = await runtime.send(_expiry(runtime, one) for one in due.deadlines)
        return due.next_seconds if accepted else AGAIN_SECONDS


def _expiry(runtime: Runtime, lease: Deadline) -> tuple[Command[Job], Origin]:
    jitter = random.random()  # noqa: S311 (spreads retries)
    (job_id,) = lease.extra_columns
    claim_id = cast("UUID", lease.owner_id)
    command = ExpireLease(
        job_id=job_id,
        claim_id=claim_id,
        lease_until=lease.until,
        lease_seconds=lease.length_seconds,
        jitter=jitter,
    )
    return command, runtime.origin(ACTOR, claim_id, ACTION)
