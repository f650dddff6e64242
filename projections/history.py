"""One aggregate's whole history, and what it comes to."""

from typing import Any
from uuid import UUID

from msgspec import Struct
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from eventlog.mapper import EventMapper, RecordedEvent
from projections.registry import DECIDERS

READ_HISTORY = """
SELECT notification_id, originator_id, originator_version, topic, state,
       recorded_at, actor, command_id, correlation_id, causation_id
FROM stored_events
WHERE originator_id = %(id)s
ORDER BY originator_version
"""

_MAPPER = EventMapper(DECIDERS)


class History(Struct, frozen=True):
    kind: str
    state: Any
    events: list[RecordedEvent]


async def read_history(connection: AsyncConnection[TupleRow], aggregate_id: UUID) -> History | None:
    """None when there never was such a thing."""
    rows = await connection.execute(READ_HISTORY, {"id": aggregate_id}, binary=True)
    events = [_MAPPER.recorded(row) for row in await rows.fetchall()]
    if not events:
        return None
    decider = _MAPPER.decider_of(events[0].topic)
    return History(decider.name, decider.fold(event.event for event in events), events)
