"""Figures of a restaurant's day: tickets by status and hour, and waiting times.

Nothing is stored for it. A ticket's id begins with its creation time, so the tickets of a day are
adjacent in every table.
"""

from collections import Counter
from datetime import date, datetime, time, timedelta
from uuid import UUID
from zoneinfo import ZoneInfo

from msgspec import Struct

from daybook.domain.tickets.restaurant import Restaurant
from daybook.domain.tickets.ticket import Ticket, TicketStatus
from daybook.eventlog.postgres.pipeline import Connection
from daybook.projections.snapshot import enter_snapshot
from daybook.projections.tickets.finished_tickets import FinishedTickets
from daybook.projections.tickets.restaurants import one_restaurant
from daybook.projections.tickets.ticket_list import fold_tail

# The clock that made an id may differ from the log's.
CLOCKS_APART = timedelta(minutes=10)

SUM_UP = """
SELECT status, extract(hour FROM created_at AT TIME ZONE %(zone)s)::integer, count(*),
       count(called_at), coalesce(sum(waited), 0), coalesce(max(waited), 0)
FROM (
    SELECT status, created_at, called_at,
           extract(epoch FROM called_at - created_at)::float8 AS waited
    FROM (
        SELECT status, created_at, called_at
        FROM tickets
        WHERE restaurant_id = %(restaurant)s AND id BETWEEN %(first)s AND %(last)s
        UNION ALL
        SELECT status, (ticket ->> 'created_at')::timestamptz, (ticket ->> 'called_at')::timestamptz
        FROM (
            SELECT status, convert_from(ticket, 'UTF8')::jsonb AS ticket
            FROM finished_tickets
            WHERE restaurant_id = %(restaurant)s AND id BETWEEN %(first)s AND %(last)s
              AND id <> ALL(%(except)s::uuid[])
        ) AS over
    ) AS drawn
    WHERE created_at >= %(begins)s AND created_at < %(ends)s
) AS of_the_day
GROUP BY 1, 2
"""


class Figures(Struct):
    day: date
    time_zone: str
    by_status: Counter[TicketStatus]
    by_hour: Counter[int]
    called_count: int = 0
    waited_seconds: float = 0.0  # sum over called tickets
    longest_seconds: float = 0.0

    def add(self, status: TicketStatus, hour: int, count: int = 1) -> None:
        self.by_status[status] += count
        self.by_hour[hour] += count

    def add_waits(self, count: int, seconds: float, longest: float) -> None:
        self.called_count += count
        self.waited_seconds += seconds
        self.longest_seconds = max(self.longest_seconds, longest)


async def read_figures(
    connection: Connection, slug: str, day: date | None = None
) -> tuple[Restaurant, Figures] | None:
    """Returns the figures of a day or of today; None if the restaurant does not exist."""
    async with connection.transaction():
        now, position = await enter_snapshot(connection, FinishedTickets.name)
        restaurant = await one_restaurant(connection, slug)
        if restaurant is None:
            return None
        zone = ZoneInfo(restaurant.profile.time_zone)
        figures = Figures(
            day or now.astimezone(zone).date(), restaurant.profile.time_zone, Counter(), Counter()
        )
        tail = [one for one in await fold_tail(connection, position) if one.status.is_over]
        await _sum_up(connection, restaurant, figures, tail)
    return restaurant, figures


async def _sum_up(
    connection: Connection, restaurant: Restaurant, figures: Figures, tail: list[Ticket]
) -> None:
    zone = ZoneInfo(figures.time_zone)
    begins = datetime.combine(figures.day, time(), zone)
    ends = datetime.combine(figures.day + timedelta(days=1), time(), zone)
    wanted = {
        "restaurant": restaurant.id,
        "zone": figures.time_zone,
        "begins": begins,
        "ends": ends,
        "first": _first_id(begins - CLOCKS_APART),
        "last": _first_id(ends + CLOCKS_APART),
        "except": [one.id for one in tail],
    }
    for status, hour, count, *waits in await (await connection.execute(SUM_UP, wanted)).fetchall():
        figures.add(TicketStatus(status), hour, count)
        figures.add_waits(*waits)
    for ticket in tail:
        if ticket.restaurant_id == restaurant.id and begins <= ticket.created_at < ends:
            figures.add(ticket.status, ticket.created_at.astimezone(zone).hour)
            if ticket.called_at is not None:
                waited = (ticket.called_at - ticket.created_at).total_seconds()
                figures.add_waits(1, waited, waited)


def _first_id(moment: datetime) -> UUID:
    """Returns the lowest UUIDv7 of that time: milliseconds in the first 48 bits."""
    return UUID(int=int(moment.timestamp() * 1000) << 80)
