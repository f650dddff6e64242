"""Deletes stored responses of idempotency keys after `idempotency_keep_days`, and expired rows of
rate limits. A key that is sent again after that is refused as expired.
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
    # Rows expire by age, without an event.
    wakes_on: ClassVar[WakesOn] = ()
    # Between two full batches, for the benefit of the other processors.
    pause_seconds: ClassVar[float] = 0.1
    min_interval_seconds: ClassVar[float] = POLL_SECONDS

    async def work(self, runtime: Runtime, session: Session) -> float:
        if not session.is_leader:
            return POLL_SECONDS
        days = runtime.retention_rules.idempotency_keep_days
        keys = await delete_expired_keys(session.connection, days=days, limit=BATCH_MAX)
        windows = await delete_expired(session.connection, limit=BATCH_MAX)
        return 0 if BATCH_MAX in (keys, windows) else POLL_SECONDS
