"""Scans the settled log for unreadable events and records their aggregates as quarantined.

Each run scans at most 5,000 events. Aggregates whose rows could not be loaded are recorded first.
Other aggregates continue; an operator sets the quarantined one aside.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import ClassVar
from uuid import UUID

from psycopg.rows import TupleRow

from daybook.domain.deciders import DECIDERS
from daybook.domain.quarantine import QUARANTINE, Detect, Fault
from daybook.eventlog.codec import EventMapper
from daybook.eventlog.event_faults import examine, fault_in_event
from daybook.eventlog.reading.horizon import READ_LAST_POSITION, Horizon
from daybook.processors.processor import (
    AGAIN_SECONDS,
    POLL_SECONDS,
    Processor,
    Runtime,
    Session,
    WakesOn,
)

_log = logging.getLogger("daybook")

ACTOR = "system:quarantine"
SCANNED_MAX = 5_000
# The event loop gets control after this many events.
STEP = 500

READ_POSITION = "SELECT position FROM quarantine_scans"
MOVE_POSITION = """
INSERT INTO quarantine_scans (position) VALUES (%(position)s)
ON CONFLICT (is_only) DO UPDATE SET position = excluded.position
"""
READ_EVENTS = """
SELECT notification_id, originator_id, topic, state, originator_version > 1 AND NOT EXISTS (
    SELECT FROM stored_events AS before
    WHERE before.originator_id = event.originator_id
      AND before.originator_version = event.originator_version - 1)
FROM stored_events AS event
WHERE notification_id > %(after)s AND notification_id <= %(upto)s
ORDER BY notification_id
LIMIT %(limit)s
"""
# Newest first: rows whose events turn out readable stay in the table, and must not fill the batch.
FIND_TAKEN_ROWS = """
SELECT id FROM quarantined_rows
WHERE NOT EXISTS (SELECT FROM quarantines WHERE aggregate_id = quarantined_rows.id)
ORDER BY taken_at DESC
LIMIT %(limit)s
"""
_MAPPER = EventMapper(DECIDERS)


class QuarantineScan(Processor):
    name: ClassVar[str] = "quarantine"
    # An unreadable event sends no notification; the poll finds it within 1 s.
    wakes_on: ClassVar[WakesOn] = (QUARANTINE,)
    pause_seconds: ClassVar[float] = 0.5

    def __init__(self) -> None:
        self._horizon = Horizon()

    async def work(self, runtime: Runtime, session: Session) -> float:
        if not session.is_leader:
            return POLL_SECONDS
        taken = await session.connection.execute(FIND_TAKEN_ROWS, {"limit": STEP})
        if not await self._record(runtime, session, [row[0] for row in await taken.fetchall()]):
            return AGAIN_SECONDS
        return await self._scan(runtime, session)

    async def _scan(self, runtime: Runtime, session: Session) -> float:
        connection = session.connection
        ((last,),) = await (await connection.execute(READ_LAST_POSITION)).fetchall()
        row = await (await connection.execute(READ_POSITION)).fetchone()
        # A log that lost its tail in a crash is scanned again from its new end.
        after = min(row[0], last) if row else 0
        if after >= last:
            return POLL_SECONDS
        upto = await self._horizon.look_step_by_step(connection)
        if upto <= after:
            return POLL_SECONDS
        given = {"after": after, "upto": upto, "limit": SCANNED_MAX}
        rows = await (await connection.execute(READ_EVENTS, given, binary=True)).fetchall()
        if not await self._record(runtime, session, await _suspects(rows)):
            return AGAIN_SECONDS
        reached = rows[-1][0] if len(rows) == SCANNED_MAX else upto
        await connection.execute(MOVE_POSITION, {"position": reached})
        return 0 if len(rows) == SCANNED_MAX else POLL_SECONDS

    async def _record(self, runtime: Runtime, session: Session, ids: Iterable[UUID]) -> bool:
        """Returns whether every fault found in these aggregates is recorded."""
        faults = [await examine(session.connection, _MAPPER, one) for one in ids]
        found = [fault for fault in faults if fault is not None]
        for fault in found:
            _log_fault(fault)
        return await runtime.send(
            (Detect(fault=one), runtime.origin(ACTOR, one.aggregate_id, "detect")) for one in found
        )


async def _suspects(rows: Sequence[TupleRow]) -> list[UUID]:
    """Returns the aggregates of unreadable events, each once."""
    found: dict[UUID, None] = {}
    for start in range(0, len(rows), STEP):
        for _, aggregate_id, topic, state, is_gap in rows[start : start + STEP]:
            if is_gap or fault_in_event(_MAPPER, topic, state):
                found[aggregate_id] = None
        await asyncio.sleep(0)
    return [*found]


def _log_fault(fault: Fault) -> None:
    _log.error(
        "%s %s is quarantined: its event %s at position %d cannot be read (%s). All others "
        "continue. Inspect it with 'daybook explain ID', then set it aside: "
        "daybook quarantine set-aside %s --reason TEXT",
        fault.kind,
        fault.aggregate_id,
        fault.topic,
        fault.position,
        fault.error,
        fault.aggregate_id,
    )
