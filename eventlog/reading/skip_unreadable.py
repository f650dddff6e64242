"""Lets a projection continue without the events that cannot be read, and only without those."""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from daybook.domain.quarantine import Fault
from daybook.eventlog.codec import EventMapper, FollowedEvent
from daybook.eventlog.event_faults import examine

if TYPE_CHECKING:
    from daybook.eventlog.reading.follower import Rebuildable

_log = logging.getLogger("daybook")

Connection = AsyncConnection[TupleRow]
Events = Sequence[FollowedEvent]


async def apply_readable(
    connection: Connection, projection: "Rebuildable", events: Events, mapper: EventMapper
) -> list[str]:
    """Applies the events inside a transaction; returns a description of each event left out. It
    bisects the batch to find the failing event. If that event's aggregate can be read, the
    projection itself has a defect, and its exception is raised."""
    if not events:
        return []
    try:
        async with connection.transaction():
            await projection.apply(connection, events)
    except (psycopg.OperationalError, OSError):
        raise
    except Exception:
        if connection.closed:
            raise
        if len(events) == 1:
            fault = await examine(connection, mapper, events[0].originator_id)
            if fault is None:
                raise
            return [_report(projection, events[0], fault)]
        middle = len(events) // 2
        left_out = await apply_readable(connection, projection, events[:middle], mapper)
        return left_out + await apply_readable(connection, projection, events[middle:], mapper)
    return []


def _report(projection: "Rebuildable", event: FollowedEvent, fault: Fault) -> str:
    _log.error(
        "projection %s skipped the event at position %d: %s %s cannot be read (%s). "
        "Run 'daybook quarantine list', then set the aggregate aside.",
        projection.name,
        event.position,
        fault.kind,
        fault.aggregate_id,
        fault.error,
    )
    return f"{fault.kind} {fault.aggregate_id}: {fault.error}"
