"""Aggregates that are in no live table, folded for a command that names them."""

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
    """Folds rows of READ_AGGREGATES. An aggregate that cannot be read becomes Unreadable: commands
    that name it are refused, and no others."""
    found = [*rows]
    versions = {aggregate_id: version for aggregate_id, version, _, _ in found}
    unreadable: dict[UUID, UnreadableAggregate] = {}

    def note(aggregate_id: UUID, error: Exception) -> None:
        unreadable[aggregate_id] = UnreadableAggregate(aggregate_id, describe_error(error))

    states = fold_rows(mapper, [(one, topic, state) for one, _, topic, state in found], note)
    for aggregate_id, state in states.items():
        fault = fault_in(state)
        if fault is None and state.version != versions[aggregate_id]:
            fault = f"its {versions[aggregate_id]} versions fold to {state.version}"
        if fault is not None:
            unreadable[aggregate_id] = UnreadableAggregate(aggregate_id, fault)
    return {**states, **unreadable}
