"""Folds aggregates that have no live row from the log, for commands that need them."""

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from daybook.domain.soundness import fault_in
from daybook.eventlog.codec import EventMapper
from daybook.eventlog.event_faults import describe_error
from daybook.eventlog.reading.fold import fold_rows
from daybook.eventlog.writing.unit_of_work import UnreadableAggregate

READ_AGGREGATES = """
SELECT originator_id, originator_version, topic, state
FROM stored_events
WHERE originator_id = ANY(%(ids)b::uuid[])
ORDER BY originator_id, originator_version
"""


def fold_aggregates(mapper: EventMapper, rows: Iterable[Sequence[Any]]) -> dict[UUID, Any]:
    """Folds rows of READ_AGGREGATES. An aggregate that cannot be read becomes UnreadableAggregate,
    so that only commands about it are refused."""
    found = [*rows]
    versions = {aggregate_id: version for aggregate_id, version, _, _ in found}
    unreadable: dict[UUID, UnreadableAggregate] = {}

    def add_unreadable(aggregate_id: UUID, error: Exception) -> None:
        unreadable[aggregate_id] = UnreadableAggregate(aggregate_id, describe_error(error))

    events = [(aggregate_id, topic, state) for aggregate_id, _, topic, state in found]
    states = fold_rows(mapper, events, add_unreadable)
    for aggregate_id, state in states.items():
        fault = fault_in(state)
        if fault is None and state.version != versions[aggregate_id]:
            fault = f"log version {versions[aggregate_id]} folds to version {state.version}"
        if fault is not None:
            unreadable[aggregate_id] = UnreadableAggregate(aggregate_id, fault)
    return {**states, **unreadable}
