"""Appends a batch's events in parts: the server appends one part while the client packs the next.
Packing a large batch takes a third of the time of appending it."""

from collections.abc import Sequence
from typing import Any

from daybook.eventlog.origin import Origin
from daybook.eventlog.postgres.binary_arrays import bigints, byteas, texts, unnested, uuids
from daybook.eventlog.postgres.pipeline import Connection, PendingResult, Pipeline
from daybook.eventlog.writing.batch_needs import SubmittedCommand
from daybook.eventlog.writing.unit_of_work import PendingEvent

PART_EVENTS = 500

_EACH = unnested(
    "ids uuid, versions bigint, topics text, states bytea, commands uuid, actors text, "
    "correlations uuid, causations bigint"
)
_OF_ONE_COMMAND = f"""{unnested("ids uuid, versions bigint, topics text, states bytea")},
    %(command)b::uuid, %(actor)b::text, %(correlation)b::uuid, %(causation)b::bigint"""


def _insert_events(columns: str) -> str:
    return f"""
INSERT INTO stored_events (originator_id, originator_version, topic, state,
                           command_id, actor, correlation_id, causation_id)
SELECT {columns}
"""


INSERT_EVENTS = _insert_events(_EACH)
_RETURNING = "RETURNING notification_id\n"
APPEND_EVENTS = INSERT_EVENTS + _RETURNING

# For parts with one command: sends its provenance once and returns only the last position.
APPEND_EVENTS_OF_ONE = (
    f"WITH appended AS ({_insert_events(_OF_ONE_COMMAND)}{_RETURNING})\n"
    "SELECT max(notification_id) FROM appended"
)

# A batch is in the log whole or not at all, so any of its events decides. The command id tells it
# from another writer's event of the same version.
FIND_APPENDED = """
SELECT notification_id
FROM unnest(%(ids)b::uuid[], %(versions)b::bigint[], %(commands)b::uuid[])
     WITH ORDINALITY AS mine (id, version, command, place), LATERAL (
    SELECT notification_id
    FROM stored_events
    WHERE (originator_id, originator_version, command_id) = (mine.id, mine.version, mine.command)
    OFFSET 0
) AS appended
ORDER BY place
"""


class BatchAppend:
    """The events of one batch, in the order of its commands."""

    def __init__(self, commands: Sequence[SubmittedCommand]) -> None:
        self._events = [event for command in commands for event in command.events]
        self._origins = [command.origin for command in commands for _ in command.events]
        self._results: list[tuple[PendingResult, int]] = []

    def __len__(self) -> int:
        return len(self._events)

    def send(self, pipeline: Pipeline) -> None:
        for start in range(0, len(self._events), PART_EVENTS):
            part = slice(start, start + PART_EVENTS)
            events, origins = self._events[part], self._origins[part]
            if origins.count(origins[0]) == len(origins):
                parameters = {**_event_columns(events), **_origin_parameters(origins[0])}
                result = pipeline.add(APPEND_EVENTS_OF_ONE, **parameters)
            else:
                result = pipeline.add(APPEND_EVENTS, **append_parameters(events, origins))
            self._results.append((result, len(events)))
            pipeline.flush()

    @property
    def positions(self) -> list[int]:
        """Positions of all events, after the next `sync`. In a part with one command, each event
        gets the position of the last."""
        positions: list[int] = []
        for result, count in self._results:
            returned = [row[0] for row in result.rows()]
            positions += returned if len(returned) == count else returned * count
        return positions

    async def find(self, connection: Connection) -> list[int]:
        """Returns the positions of the batch's events that are in the log."""
        wanted = append_parameters(self._events, self._origins)
        found = await connection.execute(FIND_APPENDED, wanted, binary=True)
        return [row[0] for row in await found.fetchall()]


def append_parameters(events: Sequence[PendingEvent], origins: Sequence[Origin]) -> dict[str, Any]:
    commands = uuids([origin.command_id for origin in origins])
    correlated = any(origin.correlation is not None for origin in origins)
    return {
        **_event_columns(events),
        "commands": commands,
        "actors": texts([origin.actor for origin in origins]),
        "correlations": uuids([o.correlation_id for o in origins]) if correlated else commands,
        "causations": bigints([origin.causation_id for origin in origins]),
    }


def _event_columns(events: Sequence[PendingEvent]) -> dict[str, Any]:
    return {
        "ids": uuids([event.originator_id for event in events]),
        "versions": bigints([event.originator_version for event in events]),
        "topics": texts([event.topic for event in events]),
        "states": byteas([event.state for event in events]),
    }


def _origin_parameters(origin: Origin) -> dict[str, Any]:
    return {
        "command": origin.command_id,
        "actor": origin.actor,
        "correlation": origin.correlation_id,
        "causation": origin.causation_id,
    }
