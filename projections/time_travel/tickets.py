"""Waitlists of restaurants as of a position of the log."""

from collections import defaultdict
from uuid import UUID

from daybook.domain.tickets.restaurant import Restaurant
from daybook.domain.tickets.ticket import Ticket
from daybook.eventlog.postgres.pipeline import Connection
from daybook.projections.tickets.ticket_list import TicketView
from daybook.projections.time_travel.state_as_of import Past


async def tickets_as_of(
    connection: Connection, position: int, *, line: UUID | None = None
) -> list[TicketView]:
    """Returns called and waiting tickets, of one restaurant or of all by slug."""
    past = await Past.at(connection, position)
    restaurants: dict[UUID, Restaurant] = {one.id: one for one in past.of(Restaurant)}
    lines: dict[UUID, list[Ticket]] = defaultdict(list)
    for ticket in past.of(Ticket):
        if line is None or ticket.restaurant_id == line:
            lines[ticket.restaurant_id].append(ticket)
    by_slug = sorted(lines, key=lambda one: restaurants[one].slug)
    return [view for one in by_slug for view in _in_order(restaurants[one], lines[one])]


def _in_order(restaurant: Restaurant, tickets: list[Ticket]) -> list[TicketView]:
    tickets.sort(key=lambda ticket: (ticket.is_waiting, ticket.token.place))
    views: list[TicketView] = []
    position = 0
    for ticket in tickets:
        position += ticket.is_waiting
        waiting_at = position if ticket.is_waiting else None
        minutes = restaurant.profile.minutes_per_party
        views.append(TicketView(ticket, restaurant.slug, minutes, waiting_at))
    return views


async def restaurants_as_of(connection: Connection, position: int) -> list[Restaurant]:
    past = await Past.at(connection, position)
    return sorted(past.of(Restaurant), key=lambda restaurant: restaurant.slug)
