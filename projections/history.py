"""One aggregate's history: as a whole with what it comes to, or a page of it."""

from typing import Any
from uuid import UUID

from msgspec import Struct
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from daybook.domain.deciders import DECIDERS
from daybook.domain.event import Decider
from daybook.domain.quarantine import Fault
from daybook.eventlog.codec import EventMapper, RecordedEvent
from daybook.eventlog.event_faults import fault_of, kind_of

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
    state: Any
    """None when the events cannot be folded."""

    events: list[RecordedEvent]
    fault: Fault | None = None


async def read_history(connection: AsyncConnection[TupleRow], aggregate_id: UUID) -> History | None:
    """None when there never was such a thing."""
    found = await connection.execute(READ_HISTORY, {"id": aggregate_id}, binary=True)
    rows = await found.fetchall()
    events = [_MAPPER.recorded_event(row) for row in rows]
    if not events:
        return None
    if fault := fault_of(_MAPPER, [row[:5] for row in rows]):
        return History(fault.kind, None, events, fault)
    decider = _MAPPER.decider_of(events[0].topic)
    return History(decider.name, decider.fold(event.event for event in events), events)


async def decider_of(
    connection: AsyncConnection[TupleRow], aggregate_id: UUID
) -> Decider[Any] | None:
    """The decider of an aggregate's kind; None if it never existed, or its kind is unknown."""
    first = await connection.execute(READ_FIRST_TOPIC, {"id": aggregate_id})
    topic = await first.fetchone()
    if topic is None:
        return None
    # By its first word, if the rest is unknown.
    return _BY_NAME.get(kind_of(_MAPPER, topic[0]))


async def read_history_page(
    connection: AsyncConnection[TupleRow],
    decider: Decider[Any],
    aggregate_id: UUID,
    *,
    after: int,
    limit: int,
) -> list[RecordedEvent] | None:
    """Its events behind a version; None when there never was such a thing of that kind."""
    if await decider_of(connection, aggregate_id) is not decider:
        return None
    wanted = {"id": aggregate_id, "after": after, "limit": limit}
    rows = await connection.execute(READ_HISTORY_PAGE, wanted, binary=True)
    return [_MAPPER.recorded_event(row) for row in await rows.fetchall()]
