"""`busy_hours`: a read model that counts completed orders by hour."""

from collections import Counter
from collections.abc import Sequence

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from daybook.domain.event import Event
from daybook.domain.orders.order import Order
from daybook.eventlog.codec import FollowedEvent

ADD_TO_HOURS = """
INSERT INTO busy_hours (hour, completed)
SELECT * FROM unnest(%(hours)s::timestamptz[], %(counts)s::bigint[])
ON CONFLICT (hour) DO UPDATE SET completed = busy_hours.completed + excluded.completed
"""


class BusyHours:
    name = "busy_hours"
    kinds: tuple[type[Event], ...] | None = (Order.Completed,)
    needs_payload = True
    pause_seconds = 1.0

    async def apply(
        self, connection: AsyncConnection[TupleRow], events: Sequence[FollowedEvent]
    ) -> None:
        hours = [one.event.at.replace(minute=0, second=0, microsecond=0) for one in events]
        counts = Counter(hours)
        columns = {"hours": [*counts.keys()], "counts": [*counts.values()]}
        await connection.execute(ADD_TO_HOURS, columns)
