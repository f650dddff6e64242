"""Aggregates as the log alone tells them: the fold of their events, up to a position or to now."""

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
"""Is told of an aggregate that cannot be folded, and why."""


def pass_over(_aggregate_id: UUID, _error: Exception) -> None:
    """For lists, which go on without it: the doctor and `GET /api/quarantine` name it."""


def refuse_unreadable(aggregate_id: UUID, error: Exception) -> None:
    """For a read of this one aggregate, which fails."""
    raise UnreadableAggregateError(aggregate_id, f"{type(error).__name__}: {error}") from error


async def fold_histories(
    connection: AsyncConnection[TupleRow],
    mapper: EventMapper,
    ids: Sequence[UUID],
    *,
    upto: int | None = None,
    on_unreadable: OnUnreadable = pass_over,
) -> dict[UUID, Any]:
    """The state of each of these aggregates; one that never existed, or cannot be read, is not
    among them."""
    wanted = {"ids": list(ids), "upto": upto}
    rows = await connection.execute(READ_HISTORIES, wanted, binary=True)
    return fold_rows(mapper, await rows.fetchall(), on_unreadable)


def fold_rows(
    mapper: EventMapper,
    rows: Iterable[Sequence[Any]],
    on_unreadable: OnUnreadable = pass_over,
) -> dict[UUID, Any]:
    """From rows of aggregate, topic and state, those of each aggregate in their order."""
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
