"""Aggregates as the log alone tells them: the fold of their events, up to a position or to now."""

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from eventlog.mapper import EventMapper

READ_HISTORIES = """
SELECT originator_id, topic, state
FROM stored_events
WHERE originator_id = ANY(%(ids)s::uuid[])
  AND (%(upto)s::bigint IS NULL OR notification_id <= %(upto)s)
ORDER BY originator_id, originator_version
"""


async def fold_histories(
    connection: AsyncConnection[TupleRow],
    mapper: EventMapper,
    ids: Sequence[UUID],
    *,
    upto: int | None = None,
) -> dict[UUID, Any]:
    """The state of each of these aggregates; one that never existed is not among them."""
    wanted = {"ids": list(ids), "upto": upto}
    rows = await connection.execute(READ_HISTORIES, wanted, binary=True)
    return fold_rows(mapper, await rows.fetchall())


def fold_rows(mapper: EventMapper, rows: Iterable[Sequence[Any]]) -> dict[UUID, Any]:
    """From rows of aggregate, topic and state, those of each aggregate in their order."""
    states: dict[UUID, Any] = {}
    for aggregate_id, topic, state in rows:
        decider, event = mapper.decider_of(topic), mapper.decode(topic, state)
        states[aggregate_id] = decider.evolve(states.get(aggregate_id), event)
    return states
