"""Folds aggregates from their events, up to a position or to the end of the log."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from daybook.domain.errors import UnreadableAggregateError
from daybook.eventlog.codec import EventMapper

READ_HISTORIES = """
SELECT originator_id, topic, state
FROM stored_events
WHERE originator_id = ANY(%(ids)s::uuid[])
  AND (%(upto)s::bigint IS NULL OR notification_id <= %(upto)s)
ORDER BY originator_id, originator_version
"""

OnUnreadable = Callable[[UUID, Exception], None]


def skip_unreadable(_aggregate_id: UUID, _error: Exception) -> None:
    """For lists, which omit the aggregate; the doctor and `GET /api/quarantine` name it."""


def refuse_unreadable(aggregate_id: UUID, error: Exception) -> None:
    """For reads of one aggregate, which fail."""
    raise UnreadableAggregateError(aggregate_id, f"{type(error).__name__}: {error}") from error


async def fold_histories(
    connection: AsyncConnection[TupleRow],
    mapper: EventMapper,
    ids: Sequence[UUID],
    *,
    upto: int | None = None,
    on_unreadable: OnUnreadable = skip_unreadable,
) -> dict[UUID, Any]:
    """Returns the state of each aggregate, without those that never existed or cannot be read."""
    wanted = {"ids": list(ids), "upto": upto}
    rows = await connection.execute(READ_HISTORIES, wanted, binary=True)
    return fold_rows(mapper, await rows.fetchall(), on_unreadable)


def fold_rows(
    mapper: EventMapper,
    rows: Iterable[Sequence[Any]],
    on_unreadable: OnUnreadable = skip_unreadable,
) -> dict[UUID, Any]:
    """Folds rows of aggregate, topic and state, which are in order within each aggregate."""
    states: dict[UUID, Any] = {}
    unreadable: set[UUID] = set()
    for aggregate_id, topic, state in rows:
        try:
            decider, event = mapper.decider_of(topic), mapper.decode(topic, state)
            states[aggregate_id] = decider.evolve(states.get(aggregate_id), event)
        except Exception as error:
            if aggregate_id not in unreadable:
                unreadable.add(aggregate_id)
                on_unreadable(aggregate_id, error)
    for aggregate_id in unreadable:
        states.pop(aggregate_id, None)
    return states
