"""Events on their way into the log, a part at a time: while the server appends one part, the next
is packed. To pack a large batch takes a third as long as to append it."""

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

# Those of one command: what is the same for all of them is said once, and of their positions the
# last is all that anybody asks for.
APPEND_EVENTS_OF_ONE = (
    f"WITH appended AS ({_insert_events(_OF_ONE_COMMAND)}{_RETURNING})\n"
    "SELECT max(notification_id) FROM appended"
)

# A batch is in the log as a whole or not at all, so any of its events tells; the command id
# tells it from another writer's event of the same version.
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


class Appending:
    """The events of one batch, in the order of its submissions."""

    def __init__(self, submissions: Sequence[SubmittedCommand]) -> None:
        self._events = [event for submission in submissions for event in submission.events]
        self._origins = [one.origin for one in submissions for _ in one.events]
        self._answers: list[tuple[PendingResult, int]] = []

    def __len__(self) -> int:
        return len(self._events)

    def queue(self, pipeline: Pipeline) -> None:
        for start in range(0, len(self._events), PART_EVENTS):
            part = slice(start, start + PART_EVENTS)
            events, origins = self._events[part], self._origins[part]
            if origins.count(origins[0]) == len(origins):
                given = {**_said(events), **_behind(origins[0])}
                answer = pipeline.add(APPEND_EVENTS_OF_ONE, **given)
            else:
                answer = pipeline.add(APPEND_EVENTS, **appended(events, origins))
            self._answers.append((answer, len(events)))
            pipeline.flush()

    @property
    def positions(self) -> list[int]:
        """Of all events, in their order; of several by one command, that of the last of a part.
        There after the next `sync`."""
        positions: list[int] = []
        for answer, count in self._answers:
            told = [row[0] for row in answer.rows()]
            positions += told if len(told) == count else told * count
        return positions

    async def find(self, connection: Connection) -> list[int]:
        """The positions of those that are in the log."""
        wanted = appended(self._events, self._origins)
        found = await connection.execute(FIND_APPENDED, wanted, binary=True)
        return [row[0] for row in await found.fetchall()]


def appended(events: Sequence[PendingEvent], origins: Sequence[Origin]) -> dict[str, Any]:
    """The parameters of APPEND_EVENTS: for each event, whose it is and who is behind it."""
    commands = uuids([origin.command_id for origin in origins])
    correlated = any(origin.correlation is not None for origin in origins)
    return {
        **_said(events),
        "commands": commands,
        "actors": texts([origin.actor for origin in origins]),
        "correlations": uuids([o.correlation_id for o in origins]) if correlated else commands,
        "causations": bigints([origin.causation_id for origin in origins]),
    }


def _said(events: Sequence[PendingEvent]) -> dict[str, Any]:
    return {
        "ids": uuids([event.originator_id for event in events]),
        "versions": bigints([event.originator_version for event in events]),
        "topics": texts([event.topic for event in events]),
        "states": byteas([event.state for event in events]),
    }


def _behind(origin: Origin) -> dict[str, Any]:
    return {
        "command": origin.command_id,
        "actor": origin.actor,
        "correlation": origin.correlation_id,
        "causation": origin.causation_id,
    }
