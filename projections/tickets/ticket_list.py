"""One ticket with its position on the waitlist, or the tickets of a restaurant, page by page.

Called tickets come first, then waiting ones, by place; ended tickets have lists of their own,
newest first. An ended ticket leaves the live table at once and enters `finished_tickets` with the
follower; in between it is in the tail of the log. One snapshot shows every ticket exactly once.
"""

from collections.abc import Sequence
from heapq import nlargest
from uuid import UUID

from msgspec import Struct

from daybook.domain.deciders import DECIDERS
from daybook.domain.tickets.restaurant import Restaurant, Wait, wait_at
from daybook.domain.tickets.ticket import ID_VERSION, Ticket, TicketStatus
from daybook.eventlog.codec import EventMapper
from daybook.eventlog.postgres.pipeline import Connection
from daybook.eventlog.reading.fold import fold_histories, refuse_unreadable
from daybook.projections.page_cursor import NUMBER_MAX, BadCursorError, read_cursor, write_cursor
from daybook.projections.snapshot import TAIL_MAX, ListBehindError, enter_snapshot
from daybook.projections.tickets.finished_tickets import (
    READ_FINISHED_TICKETS,
    READ_GUESTS_FINISHED_TICKETS,
    READ_TAIL,
    FinishedTickets,
    fold_tickets,
    load_finished,
    tail_topics,
)
from daybook.projections.tickets.restaurants import one_restaurant
from daybook.projections.tickets.ticket_counts import AHEAD
from daybook.projections.tickets.tickets import TICKETS

# The ticket's row and its position; the cost does not depend on the length of the waitlist.
READ_TICKET = f"""
SELECT asked.*, CASE WHEN asked.status = 'WAITING' THEN {AHEAD} + 1 END,
       restaurants.slug, restaurants.minutes_per_party
FROM ({TICKETS.select} WHERE id = %(id)s) AS asked
JOIN restaurants ON restaurants.id = asked.restaurant_id
"""
READ_ITS_RESTAURANT = "SELECT slug, minutes_per_party FROM restaurants WHERE id = %(id)s"
COUNT_AHEAD = f"""
SELECT {AHEAD}
FROM (SELECT %(restaurant)s::uuid AS restaurant_id, %(place)s::bigint AS place) AS asked
"""
READ_LINE = f"""{TICKETS.select}
WHERE restaurant_id = %(restaurant)s AND status = %(status)s AND place > %(after)s
ORDER BY place
LIMIT %(limit)s
"""
READ_GUESTS_TICKETS = f"""
SELECT asked.*, CASE WHEN asked.status = 'WAITING' THEN {AHEAD} + 1 END
FROM (
    {TICKETS.select}
    WHERE restaurant_id = %(restaurant)s AND subject_id = %(subject)s
    ORDER BY place DESC
    LIMIT %(limit)s
) AS asked
"""
READ_NEXT_TOKENS = """
SELECT token_number
FROM tickets
WHERE restaurant_id = %(restaurant)s AND status = 'WAITING'
ORDER BY place
LIMIT %(limit)s
"""

WAITLIST_SECTIONS = (TicketStatus.CALLED, TicketStatus.WAITING)

_MAPPER = EventMapper(DECIDERS)


class TicketView(Struct, frozen=True, gc=False):
    ticket: Ticket
    slug: str
    minutes_per_party: float
    position: int | None = None  # on the waitlist; None unless WAITING

    @property
    def wait(self) -> Wait | None:
        return None if self.position is None else wait_at(self.position, self.minutes_per_party)


class TicketCursor(Struct, frozen=True, gc=False):
    only: TicketStatus | None
    section: TicketStatus
    place: int


class TicketPage(Struct, frozen=True):
    tickets: list[TicketView]
    next_cursor: str | None
    restaurant: Restaurant


async def one_ticket(connection: Connection, ticket_id: UUID) -> TicketView | None:
    """Returns ended tickets too; None if the ticket never existed."""
    if ticket_id.version != ID_VERSION:
        return None
    rows = await connection.execute(READ_TICKET, {"id": ticket_id}, binary=True)
    row = await rows.fetchone()
    if row is not None:
        *ticket, position, slug, minutes_per_party = row
        return TicketView(TICKETS.load(tuple(ticket)), slug, minutes_per_party, position)
    folded = await fold_histories(connection, _MAPPER, [ticket_id], on_unreadable=refuse_unreadable)
    found = folded.get(ticket_id)
    # The id may be that of an aggregate of another kind.
    if not isinstance(found, Ticket):
        return None
    wanted = {"id": found.restaurant_id}
    ((slug, minutes_per_party),) = await (
        await connection.execute(READ_ITS_RESTAURANT, wanted)
    ).fetchall()
    return TicketView(found, slug, minutes_per_party)


async def next_tokens(connection: Connection, restaurant_id: UUID, limit: int) -> list[str]:
    """Returns the public token numbers of the guests to be called next."""
    wanted = {"restaurant": restaurant_id, "limit": limit}
    rows = await connection.execute(READ_NEXT_TOKENS, wanted)
    return [token for (token,) in await rows.fetchall()]


async def read_tickets(
    connection: Connection,
    slug: str,
    *,
    limit: int,
    only: TicketStatus | None = None,
    cursor: str | None = None,
) -> TicketPage | None:
    """Returns None if the restaurant does not exist."""
    begin = _beginning(only) if cursor is None else _parsed(cursor, only)
    async with connection.transaction():
        _, position = await enter_snapshot(connection, FinishedTickets.name)
        restaurant = await one_restaurant(connection, slug)
        if restaurant is None:
            return None
        if begin.section.is_over:
            found = await _read_over(connection, restaurant, begin, limit + 1, position)
        else:
            found = await _read_line(connection, restaurant, begin, limit + 1)
    page = found[:limit]
    if len(found) <= limit:
        return TicketPage(page, None, restaurant)
    last = page[-1].ticket
    return TicketPage(
        page, write_cursor(TicketCursor(only, last.status, last.token.place)), restaurant
    )


async def tickets_of_guest(
    connection: Connection, restaurant: Restaurant, subject_id: UUID, *, limit: int
) -> list[TicketView]:
    """Returns the live and ended tickets of one guest, newest first."""
    wanted = {"restaurant": restaurant.id, "subject": subject_id, "limit": limit}
    async with connection.transaction():
        _, position = await enter_snapshot(connection, FinishedTickets.name)
        rows = await connection.execute(READ_GUESTS_TICKETS, wanted, binary=True)
        found = [
            _view(restaurant, TICKETS.load(row[:-1]), row[-1]) for row in await rows.fetchall()
        ]
        tail = [one for one in await fold_tail(connection, position) if one.status.is_over]
        wanted["except"] = [one.id for one in tail]
        rows = await connection.execute(READ_GUESTS_FINISHED_TICKETS, wanted, binary=True)
        over = [load_finished(row) for row in await rows.fetchall()]
    wanted_ids = (restaurant.id, subject_id)
    over += [one for one in tail if (one.restaurant_id, one.guest.subject_id) == wanted_ids]
    found += [_view(restaurant, one) for one in over]
    return nlargest(limit, found, key=lambda one: one.ticket.token.place)


def _beginning(only: TicketStatus | None) -> TicketCursor:
    section = only or WAITLIST_SECTIONS[0]
    return TicketCursor(only, section, NUMBER_MAX if section.is_over else 0)


def _parsed(cursor: str, only: TicketStatus | None) -> TicketCursor:
    parsed = read_cursor(cursor, TicketCursor)
    if parsed.only is not only or not 0 <= parsed.place <= NUMBER_MAX:
        raise BadCursorError
    return parsed


async def _read_line(
    connection: Connection, restaurant: Restaurant, begin: TicketCursor, limit: int
) -> list[TicketView]:
    sections = WAITLIST_SECTIONS if begin.only is None else (begin.only,)
    found: list[TicketView] = []
    for section in sections[sections.index(begin.section) :]:
        after = begin.place if section is begin.section else 0
        wanted = {"restaurant": restaurant.id, "status": section.value, "after": after}
        wanted["limit"] = limit - len(found)
        rows = await connection.execute(READ_LINE, wanted, binary=True)
        tickets = [TICKETS.load(row) for row in await rows.fetchall()]
        found += await _views(connection, restaurant, tickets)
    return found


async def _views(
    connection: Connection, restaurant: Restaurant, tickets: Sequence[Ticket]
) -> list[TicketView]:
    """Adds positions to consecutive tickets of one section: only the first needs a query."""
    if not tickets or not tickets[0].is_waiting:
        return [_view(restaurant, ticket) for ticket in tickets]
    given = {"restaurant": restaurant.id, "place": tickets[0].token.place}
    ((ahead,),) = await (await connection.execute(COUNT_AHEAD, given, binary=True)).fetchall()
    return [_view(restaurant, ticket, ahead + n) for n, ticket in enumerate(tickets, start=1)]


def _view(restaurant: Restaurant, ticket: Ticket, position: int | None = None) -> TicketView:
    return TicketView(ticket, restaurant.slug, restaurant.profile.minutes_per_party, position)


async def _read_over(
    connection: Connection, restaurant: Restaurant, begin: TicketCursor, limit: int, position: int
) -> list[TicketView]:
    """Returns the newest ended tickets before a place, from the read model and the tail."""
    tail = await fold_tail(connection, position)
    wanted = {
        "restaurant": restaurant.id,
        "status": begin.section.value,
        "before": begin.place,
        "except": [ticket.id for ticket in tail],
        "limit": limit,
    }
    rows = await connection.execute(READ_FINISHED_TICKETS, wanted, binary=True)
    tickets = [load_finished(row) for row in await rows.fetchall()]
    of_line = [one for one in tail if one.restaurant_id == restaurant.id]
    tickets += [
        one for one in of_line if one.status is begin.section and one.token.place < begin.place
    ]
    newest = nlargest(limit, tickets, key=lambda one: one.token.place)
    return [_view(restaurant, one) for one in newest]


async def fold_tail(connection: Connection, position: int) -> list[Ticket]:
    wanted = {"after": position, "topics": tail_topics(), "limit": TAIL_MAX + 1}
    rows = await (await connection.execute(READ_TAIL, wanted, binary=True)).fetchall()
    if len(rows) > TAIL_MAX:
        raise ListBehindError
    return await fold_tickets(connection, [row[0] for row in rows])
