"""Replays a log from Python and counts aggregates by status, at any position.

python -m examples.replay log.ndjson
python -m examples.replay postgresql://user@host/database 4711
"""

import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from daybook.domain.deciders import DECIDERS
from daybook.eventlog.codec import EventMapper
from daybook.eventlog.transfer.ndjson import Line
from daybook.eventlog.transfer.replay import read_database, read_export

MAPPER = EventMapper(DECIDERS)


def replay(lines: Iterable[Line], upto: int | None = None) -> dict[UUID, Any]:
    """Folds every aggregate, up to a position or to the end of the log."""
    states: dict[UUID, Any] = {}
    for line in lines:
        if upto is not None and line.position > upto:
            break
        decider = MAPPER.decider_of(line.topic)
        event = MAPPER.decode(line.topic, bytes(line.data))
        states[line.aggregate] = decider.evolve(states.get(line.aggregate), event)
    return states


def count_by_status(states: Iterable[Any]) -> Counter[tuple[str, str]]:
    return Counter((type(state).__name__, getattr(state, "status", "")) for state in states)


def main(source: str, upto: str | None = None) -> None:
    lines = read_database(source) if "://" in source else read_export(source)
    states = replay(lines, None if upto is None else int(upto))
    for (kind, status), count in sorted(count_by_status(states.values()).items()):
        sys.stdout.write(f"{count:>8}  {kind} {status}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
