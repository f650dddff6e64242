"""One aggregate's history: all events with the state they fold to, or one page of events."""

from typing import Any
from uuid import UUID

from msgspec import Struct

from daybook.domain.deciders import DECIDERS
from daybook.domain.event import Decider
from daybook.domain.quarantine import Fault
from daybook.eventlog.codec import EventMapper, RecordedEvent
from daybook.eventlog.event_faults import fault_of, kind_of
from daybook.eventlog.postgres.pipeline import Connection

_SELECT_HISTORY = """
SELECT notification_id, originator_id, originator_version, topic, state,
       recorded_at, actor, command_id, correlation_id, causation_id
FROM stored_events
WHERE originator_id = %(id)s
"""
READ_HISTORY = f"""{_SELECT_HISTORY}ORDER BY originator_version
"""
READ_HISTORY_PAGE = f"""{_SELECT_HISTORY}  AND originator_version > %(after)s
ORDER BY originator_version
LIMIT %(limit)s
"""
READ_FIRST_TOPIC = """
SELECT topic
FROM stored_events
WHERE originator_id = %(id)s
ORDER BY originator_version
LIMIT 1
"""

_MAPPER = EventMapper(DECIDERS)
_BY_NAME = {decider.name: decider for decider in DECIDERS}


class History(Struct, frozen=True):
    kind: str
    state: Any  # None if the events cannot be folded
    events: list[RecordedEvent]
    fault: Fault | None = None


async def read_history(connection: Connection, aggregate_id: UUID) -> History | None:
    """Returns None if the aggregate never existed."""
    found = await connection.execute(READ_HISTORY, {"id": aggregate_id}, binary=True)
    rows = await found.fetchall()
    events = [_MAPPER.recorded_event(row) for row in rows]
    if not events:
        return None
    if fault := fault_of(_MAPPER, [row[:5] for row in rows]):
        return History(fault.kind, None, events, fault)
    decider = _MAPPER.decider_of(events[0].topic)
    return History(decider.name, decider.fold(event.event for event in events), events)


async def decider_of(connection: Connection, aggregate_id: UUID) -> Decider[Any] | None:
    """Returns None if the aggregate never existed or its kind is unknown."""
    first = await connection.execute(READ_FIRST_TOPIC, {"id": aggregate_id})
    topic = await first.fetchone()
    if topic is None:
        return None
    # The first word of the topic is enough: the topic itself may be unknown to this version.
    return _BY_NAME.get(kind_of(_MAPPER, topic[0]))


async def read_history_page(
    connection: Connection, decider: Decider[Any], aggregate_id: UUID, *, after: int, limit: int
) -> list[RecordedEvent] | None:
    """Returns the events after a version; None if no aggregate of that kind has this id."""
    if await decider_of(connection, aggregate_id) is not decider:
        return None
    wanted = {"id": aggregate_id, "after": after, "limit": limit}
    rows = await connection.execute(READ_HISTORY_PAGE, wanted, binary=True)
    return [_MAPPER.recorded_event(row) for row in await rows.fetchall()]
