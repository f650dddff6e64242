"""Forgetting: what was answered to an Idempotency-Key is kept for some weeks, and then deleted; who
was let in by a limit, until the limit has forgotten it.

Whoever sends the key again after that is told that it was used.
"""

from typing import ClassVar

from daybook.eventlog.side_tables.rate_limit_windows import delete_expired
from daybook.eventlog.writing.idempotency import delete_expired_keys
from daybook.processors.processor import (
    BATCH_MAX,
    POLL_SECONDS,
    Processor,
    Runtime,
    Session,
    WakesOn,
)


class Retention(Processor):
    name: ClassVar[str] = "forgetting"
    # What it deletes is no aggregate, and grows old without a word.
    wakes_on: ClassVar[WakesOn] = ()
    # Between two batches, so that others have their turn; without a full batch it does not matter
    # what happens, because nothing grows old at once.
    pause_seconds: ClassVar[float] = 0.1
    min_interval_seconds: ClassVar[float] = POLL_SECONDS

    async def work(self, runtime: Runtime, session: Session) -> float:
        if not session.is_leader:
            return POLL_SECONDS
        days = runtime.retention_rules.idempotency_keep_days
        keys = await delete_expired_keys(session.connection, days=days, limit=BATCH_MAX)
        admissions = await delete_expired(session.connection, limit=BATCH_MAX)
        return 0 if BATCH_MAX in (keys, admissions) else POLL_SECONDS
