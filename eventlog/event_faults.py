"""Validation of stored events and the states they fold to: events of older versions may hold values
that no type allows today. It runs after a failure or in the background, never in a command's path.
"""

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from daybook.domain.event import State
from daybook.domain.quarantine import ERROR_CHARACTERS_MAX, Fault
from daybook.domain.soundness import fault_in
from daybook.eventlog.codec import EventMapper
from daybook.eventlog.errors import UnknownTopicError

READ_AGGREGATE = """
SELECT notification_id, originator_id, originator_version, topic, state
FROM stored_events
WHERE originator_id = %(id)s
ORDER BY originator_version
"""


def fault_in_event(mapper: EventMapper, topic: str, state: bytes) -> str | None:
    """Returns why a single event cannot be read, or None if it can."""
    try:
        return fault_in(mapper.decode(topic, state))
    except Exception as error:
        # Every exception means that this version cannot read the event.
        return describe_error(error)


def fault_of(mapper: EventMapper, rows: Iterable[Sequence[Any]]) -> Fault | None:
    """Returns the first fault in one aggregate's history; the rows hold position, aggregate,
    version, topic and state, ordered by version."""
    state: State | None = None
    expected = 1
    for position, aggregate_id, version, topic, stored in rows:
        error = fault_in_event(mapper, topic, stored)
        if error is None and version != expected:
            error = f"version {version} where {expected} must follow"
        if error is None:
            try:
                state = mapper.decider_of(topic).evolve(state, mapper.decode(topic, stored))
            except Exception as failed:
                error = describe_error(failed)
        if error is not None:
            return Fault(
                aggregate_id=aggregate_id,
                kind=kind_of(mapper, topic),
                topic=topic,
                position=position,
                version=version,
                error=error,
            )
        expected += 1
    return None


async def examine(
    connection: AsyncConnection[TupleRow], mapper: EventMapper, aggregate_id: UUID
) -> Fault | None:
    rows = await connection.execute(READ_AGGREGATE, {"id": aggregate_id}, binary=True)
    return fault_of(mapper, await rows.fetchall())


def kind_of(mapper: EventMapper, topic: str) -> str:
    try:
        return mapper.decider_of(topic).name
    except UnknownTopicError:
        return topic.partition(".")[0]


def describe_error(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:ERROR_CHARACTERS_MAX].replace("\0", "")
