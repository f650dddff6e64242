"""Finds the first fault of one aggregate in its events."""

from uuid import UUID

from daybook.domain.deciders import DECIDERS
from daybook.domain.errors import NotFoundError, ReadableAggregateError
from daybook.domain.quarantine import Fault
from daybook.eventlog.codec import EventMapper
from daybook.eventlog.event_faults import READ_AGGREGATE, fault_of
from daybook.eventlog.postgres.pipeline import Connection

_MAPPER = EventMapper(DECIDERS)


async def fault_to_set_aside(connection: Connection, aggregate_id: UUID) -> Fault:
    """Raises NotFoundError without such an aggregate, ReadableAggregateError if it is readable."""
    found = await connection.execute(READ_AGGREGATE, {"id": aggregate_id}, binary=True)
    rows = await found.fetchall()
    if not rows:
        raise NotFoundError("order, job or other aggregate", aggregate_id)
    fault = fault_of(_MAPPER, rows)
    if fault is None:
        raise ReadableAggregateError(aggregate_id)
    return fault
