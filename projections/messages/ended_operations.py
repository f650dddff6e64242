"""`ended_operations`: operations ended by minute, kind and status, with their latencies.

Latencies are sums of whole microseconds, so that the order of additions does not matter.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from daybook.domain.event import Event
from daybook.domain.messages.operation import OPERATION, Operation, OperationKind, OperationStatus
from daybook.eventlog.codec import EventMapper, FollowedEvent
from daybook.eventlog.postgres.binary_arrays import bigints, texts, timestamps
from daybook.eventlog.postgres.pipeline import Connection
from daybook.eventlog.reading.fold import fold_histories

ADD_ENDED_OPERATIONS = """
INSERT INTO ended_operations AS known (minute_at, kind, status, count, microseconds, oldest_at,
                                       newest_at)
SELECT * FROM unnest(
    %(minutes)b::timestamptz[], %(kinds)b::text[], %(statuses)b::text[], %(counts)b::bigint[],
    %(microseconds)b::bigint[], %(oldest)b::timestamptz[], %(newest)b::timestamptz[])
ON CONFLICT (minute_at, kind, status) DO UPDATE
SET count = known.count + excluded.count,
    microseconds = known.microseconds + excluded.microseconds,
    oldest_at = least(known.oldest_at, excluded.oldest_at),
    newest_at = greatest(known.newest_at, excluded.newest_at)
"""
READ_ENDED_OPERATIONS = """
SELECT kind, status, sum(count)::bigint, sum(microseconds)::bigint, min(oldest_at), max(newest_at)
FROM ended_operations
WHERE minute_at > clock_timestamp() - %(minutes)s * interval '1 minute'
GROUP BY kind, status
ORDER BY kind, status
"""

_MAPPER = EventMapper((OPERATION,))
MICROSECOND = timedelta(microseconds=1)

Minute = tuple[datetime, OperationKind, OperationStatus]


class EndedOperationTotals(Struct, frozen=True, gc=False):
    """Totals of operations created from `oldest_at` to `newest_at`."""

    count: int
    microseconds: int
    oldest_at: datetime
    newest_at: datetime

    @property
    def average_seconds(self) -> float:
        return self.microseconds / self.count / 1_000_000

    def __add__(self, other: "EndedOperationTotals") -> "EndedOperationTotals":
        return EndedOperationTotals(
            self.count + other.count,
            self.microseconds + other.microseconds,
            min(self.oldest_at, other.oldest_at),
            max(self.newest_at, other.newest_at),
        )


EndedLately = tuple[OperationKind, OperationStatus, EndedOperationTotals]


class EndedOperations:
    name = "ended_operations"
    kinds: tuple[type[Event], ...] | None = (Operation.Completed, Operation.Cancelled)

    needs_payload = True
    # Statistics by the minute tolerate the delay.
    pause_seconds = 0.25

    async def apply(self, connection: Connection, events: Sequence[FollowedEvent]) -> None:
        ids = [event.originator_id for event in events]
        folded = await fold_histories(connection, _MAPPER, ids, upto=events[-1].position)
        minutes = _by_minute(_over(folded.values()))
        await connection.execute(ADD_ENDED_OPERATIONS, _columns(minutes))


async def read_ended(connection: Connection, *, minutes: int) -> list[EndedLately]:
    rows = await connection.execute(READ_ENDED_OPERATIONS, {"minutes": minutes})
    return [
        (OperationKind(kind), OperationStatus(status), EndedOperationTotals(*numbers))
        for kind, status, *numbers in await rows.fetchall()
    ]


def _over(states: Iterable[object]) -> list[Operation]:
    return [one for one in states if isinstance(one, Operation)]


def _by_minute(operations: Iterable[Operation]) -> dict[Minute, EndedOperationTotals]:
    minutes: dict[Minute, EndedOperationTotals] = {}
    for one in operations:
        minute = one.updated_at.replace(second=0, microsecond=0), one.kind, one.status
        took = (one.updated_at - one.created_at) // MICROSECOND
        ended = EndedOperationTotals(1, took, one.created_at, one.created_at)
        minutes[minute] = minutes[minute] + ended if minute in minutes else ended
    return dict(sorted(minutes.items()))


def _columns(minutes: dict[Minute, EndedOperationTotals]) -> dict[str, bytes]:
    ended = minutes.values()
    return {
        "minutes": timestamps([minute for minute, _, _ in minutes]),
        "kinds": texts([kind for _, kind, _ in minutes]),
        "statuses": texts([status for _, _, status in minutes]),
        "counts": bigints([one.count for one in ended]),
        "microseconds": bigints([one.microseconds for one in ended]),
        "oldest": timestamps([one.oldest_at for one in ended]),
        "newest": timestamps([one.newest_at for one in ended]),
    }
