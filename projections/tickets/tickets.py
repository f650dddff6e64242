"""`tickets`: the live table of waiting and called tickets."""

from uuid import UUID

from daybook.domain.tickets.ticket import TICKET, Ticket
from daybook.eventlog.writing.live_table import LiveTable, Pick, SideTables, Statements
from daybook.eventlog.writing.row_mapping import Column
from daybook.projections.tickets.ticket_counts import COUNT_MOVED

_BEGIN_TO_WAIT = """
    SELECT restaurant_id, place, 1 AS change
    FROM (SELECT unnest(%(restaurant_id)b::uuid[]) AS restaurant_id,
                 unnest(%(place)b::bigint[]) AS place, unnest(%(status)b::text[]) AS status) AS new
    WHERE status = 'WAITING'"""
_CEASE_TO_WAIT = """
    SELECT restaurant_id, place, -1 AS change
    FROM (SELECT * FROM tickets WHERE id = ANY({ids}) OFFSET 0) AS before
    WHERE status = 'WAITING'"""


class TicketCounts(SideTables[Ticket]):
    names = ("ticket_counts",)
    with_insert = f"moved AS ({_BEGIN_TO_WAIT}\n), {COUNT_MOVED}"
    with_update = (
        f"moved AS ({_BEGIN_TO_WAIT}\n    UNION ALL"
        f"{_CEASE_TO_WAIT.format(ids='%(id)b::uuid[]')}\n), {COUNT_MOVED}"
    )
    with_delete = f"moved AS ({_CEASE_TO_WAIT.format(ids='%(ids)b::uuid[]')}\n), {COUNT_MOVED}"


class PickTickets(Pick[Ticket]):
    def statements(self, restaurant: UUID, limit: int) -> Statements:
        return [(PICK_FIRST_TICKETS, {"restaurant": restaurant.bytes, "limit": limit})]


TICKETS = LiveTable(
    "tickets",
    TICKET,
    [
        Column("id", "uuid"),
        Column("subject_id", "uuid", "guest.subject_id"),
        Column("sealed", "text", "guest.sealed"),
        Column("pseudonym", "text", "guest.pseudonym"),
        Column("party_size", "smallint"),
        Column("seating_type", "text"),
        Column("created_at", "timestamptz"),
        Column("version", "bigint", changes=True),
        Column("restaurant_id", "uuid", changes=True),
        Column("place", "bigint", "token.place", changes=True),
        Column("sequence", "bigint", "token.sequence", changes=True),
        Column("service_day", "date", "token.service_day", changes=True),
        Column("token_number", "text", "token.number", changes=True),
        Column("position_at_join", "bigint", changes=True),
        Column("minutes_low", "integer", "estimate.minutes_low", changes=True),
        Column("minutes_high", "integer", "estimate.minutes_high", changes=True),
        Column("status", "text", changes=True),
        Column("updated_at", "timestamptz", changes=True),
        Column("calls_count", "integer", changes=True),
        Column("called_at", "timestamptz", changes=True),
        Column("recalled_at", "timestamptz", changes=True),
        Column("due_at", "timestamptz", changes=True),
        Column("desk", "text", changes=True),
        Column("returned_at", "timestamptz", changes=True),
        Column("transferred_at", "timestamptz", changes=True),
        Column("came_from", "uuid", changes=True),
    ],
    pick=PickTickets(),
    sides=TicketCounts(),
)

# No SKIP LOCKED: every change of a ticket locks the restaurant first, so no ticket is skipped.
PICK_FIRST_TICKETS = f"""{TICKETS.select}
WHERE restaurant_id = %(restaurant)b::uuid AND status = 'WAITING'
ORDER BY place
LIMIT %(limit)b::bigint
FOR UPDATE
"""
