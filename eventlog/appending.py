"""Events on their way into the log, a part at a time: while the server appends one part, the next
is packed. To pack a large batch takes a third as long as to append it."""

from collections.abc import Sequence
from typing import Any

from eventlog.arrays import bigints, byteas, texts, unnested, uuids
from eventlog.desk import Decided
from eventlog.link import Answer, Connection, Link
from eventlog.mapper import EventMapper
from eventlog.origin import Origin
from eventlog.submission import Submission

PART_EVENTS = 500

_APPENDED = unnested(
    "ids uuid, versions bigint, topics text, states bytea, commands uuid, actors text, "
    "correlations uuid, causations bigint"
)

APPEND_EVENTS = f"""
INSERT INTO stored_events (originator_id, originator_version, topic, state,
                           command_id, actor, correlation_id, causation_id)
SELECT {_APPENDED}
RETURNING notification_id
"""

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

    def __init__(self, submissions: Sequence[Submission], mapper: EventMapper) -> None:
        self._events = [event for submission in submissions for event in submission.events]
        self._origins = [one.origin for one in submissions for _ in one.events]
        self._mapper = mapper
        self._answers: list[Answer] = []

    def __len__(self) -> int:
        return len(self._events)

    def queue(self, link: Link) -> None:
        for start in range(0, len(self._events), PART_EVENTS):
            part = slice(start, start + PART_EVENTS)
            columns = appended(self._events[part], self._origins[part], self._mapper)
            self._answers.append(link.queue(APPEND_EVENTS, **columns))
            link.start()

    @property
    def positions(self) -> list[int]:
        """Of all events, in their order; there after the next `sync`."""
        return [row[0] for answer in self._answers for row in answer.rows()]

    async def find(self, connection: Connection) -> list[int]:
        """The positions of those that are in the log."""
        wanted = appended(self._events, self._origins, self._mapper)
        found = await connection.execute(FIND_APPENDED, wanted, binary=True)
        return [row[0] for row in await found.fetchall()]


def appended(
    events: Sequence[Decided], origins: Sequence[Origin], mapper: EventMapper
) -> dict[str, Any]:
    """The parameters of APPEND_EVENTS: for each event, whose it is and who is behind it."""
    topics, states = mapper.encode_all([event.event for event in events])
    commands = uuids([origin.command_id for origin in origins])
    correlated = any(origin.correlation is not None for origin in origins)
    return {
        "ids": uuids([event.originator_id for event in events]),
        "versions": bigints([event.originator_version for event in events]),
        "topics": texts(topics),
        "states": byteas(states),
        "commands": commands,
        "actors": texts([origin.actor for origin in origins]),
        "correlations": uuids([o.correlation_id for o in origins]) if correlated else commands,
        "causations": bigints([origin.causation_id for origin in origins]),
    }
