"""Leases: a worker that has not been heard of until its lease was over has lost its job.

The attempt counts, the job rests and is tried again; after the last one it is dead. The worker may
still be at it: whatever it says later names a claim that holds nothing any more.
"""

import random
from typing import ClassVar
from uuid import UUID

from domain.desk import Command
from domain.job import JOB, Job
from domain.workshop import ExpireLease
from eventlog.origin import Origin
from processors.runtime import (
    AGAIN_SECONDS,
    BATCH_MAX,
    POLL_SECONDS,
    Hears,
    Processor,
    Runtime,
    Session,
)

ACTOR = "system:leases"
DEED = "expire"

# What is over, and the first that is not. Only what is being worked on is looked through.
FIND_EXPIRED = """
WITH held AS MATERIALIZED (
    SELECT id, claim_id,
           extract(epoch FROM lease_until - clock_timestamp())::float8 + %(patience)s AS seconds
    FROM jobs
    WHERE claim_id IS NOT NULL
)
SELECT id, claim_id, seconds
FROM held
WHERE seconds <= 0 OR seconds = (SELECT min(seconds) FROM held WHERE seconds > 0)
ORDER BY seconds
LIMIT %(limit)s
"""


class Leases(Processor):
    name: ClassVar[str] = "leases"
    hears: ClassVar[Hears] = (JOB,)
    pause_seconds: ClassVar[float] = 0.1
    # A lease that begins now is not over before those that began earlier, as a rule; and nobody
    # waits for its end to the millisecond.
    deaf_seconds: ClassVar[float] = POLL_SECONDS

    async def work(self, runtime: Runtime, session: Session) -> float:
        parameters = {"patience": session.patience_seconds, "limit": BATCH_MAX}
        rows = await (await session.connection.execute(FIND_EXPIRED, parameters)).fetchall()
        expired = [(job_id, claim_id) for job_id, claim_id, seconds in rows if seconds <= 0]
        coming = [seconds for _, _, seconds in rows if seconds > 0]
        taken = await runtime.send(_expiry(runtime, *one) for one in expired)
        if not taken:
            return AGAIN_SECONDS
        return 0 if len(expired) == BATCH_MAX else min([POLL_SECONDS, *coming])


def _expiry(runtime: Runtime, job_id: UUID, claim_id: UUID) -> tuple[Command[Job], Origin]:
    jitter = random.random()  # noqa: S311 (spreads retries)
    command = ExpireLease(job_id=job_id, claim_id=claim_id, jitter=jitter)
    return command, runtime.origin(ACTOR, claim_id, DEED)
