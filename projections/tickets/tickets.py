"""`tickets`: the live table of waiting and called tickets."""

from collections.abc import Sequence
from uuid import UUID

from psycopg.rows import TupleRow

from daybook.domain.tickets.restaurant import Token, Wait
from daybook.domain.tickets.ticket import TICKET, Guest, Ticket, TicketStatus
from daybook.eventlog.postgres import binary_arrays as arrays
from daybook.eventlog.postgres.key_lookup import equals_by_key_lookup
from daybook.eventlog.writing.live_table import LiveTable, Parameters
from daybook.projections.tickets.ticket_counts import COUNT_MOVED

# In the order of `load`.
SELECT_TICKETS = """
SELECT id, version, restaurant_id, place, sequence, service_day, token_number, subject_id, sealed,
       pseudonym, party_size, seating_type, position_at_join, minutes_low, minutes_high, status,
       created_at, updated_at, calls_count, called_at, recalled_at, due_at, desk, returned_at,
       transferred_at, came_from
FROM tickets
"""
LOCK_TICKETS = f"{SELECT_TICKETS} WHERE id = ANY(%(ids)b::uuid[]) ORDER BY id FOR UPDATE"
# No SKIP LOCKED: every change of a ticket locks the restaurant first, so no ticket is skipped.
PICK_FIRST_TICKETS = f"""{SELECT_TICKETS}
WHERE restaurant_id = %(restaurant)b::uuid AND status = 'WAITING'
ORDER BY place
LIMIT %(limit)b::bigint
FOR UPDATE
"""
INSERT_TICKETS = f"""
WITH new AS MATERIALIZED (
    SELECT * FROM unnest(
        %(ids)b::uuid[], %(versions)b::bigint[], %(restaurants)b::uuid[], %(places)b::bigint[],
        %(sequences)b::bigint[], %(days)b::date[], %(tokens)b::text[], %(subjects)b::uuid[],
        %(sealed)b::text[], %(pseudonyms)b::text[], %(sizes)b::smallint[], %(seatings)b::text[],
        %(joined_at)b::bigint[], %(minutes_low)b::integer[], %(minutes_high)b::integer[],
        %(statuses)b::text[], %(created)b::timestamptz[], %(updated)b::timestamptz[],
        %(calls)b::integer[], %(called)b::timestamptz[], %(recalled)b::timestamptz[],
        %(due)b::timestamptz[], %(desks)b::text[], %(returned)b::timestamptz[],
        %(transferred)b::timestamptz[], %(came_from)b::uuid[]
    ) AS new (id, version, restaurant_id, place, sequence, service_day, token_number, subject_id,
              sealed, pseudonym, party_size, seating_type, position_at_join, minutes_low,
              minutes_high, status, created_at, updated_at, calls_count, called_at, recalled_at,
              due_at, desk, returned_at, transferred_at, came_from)
), moved AS (
    SELECT restaurant_id, place, 1 AS change FROM new WHERE status = 'WAITING'
), {COUNT_MOVED}
INSERT INTO tickets (id, version, restaurant_id, place, sequence, service_day, token_number,
                     subject_id, sealed, pseudonym, party_size, seating_type, position_at_join,
                     minutes_low, minutes_high, status, created_at, updated_at, calls_count,
                     called_at, recalled_at, due_at, desk, returned_at, transferred_at, came_from)
SELECT * FROM new
"""
UPDATE_TICKETS = f"""
WITH new AS MATERIALIZED (
    SELECT * FROM unnest(
        %(ids)b::uuid[], %(versions)b::bigint[], %(restaurants)b::uuid[], %(places)b::bigint[],
        %(sequences)b::bigint[], %(days)b::date[], %(tokens)b::text[], %(joined_at)b::bigint[],
        %(minutes_low)b::integer[], %(minutes_high)b::integer[], %(statuses)b::text[],
        %(updated)b::timestamptz[], %(calls)b::integer[], %(called)b::timestamptz[],
        %(recalled)b::timestamptz[], %(due)b::timestamptz[], %(desks)b::text[],
        %(returned)b::timestamptz[], %(transferred)b::timestamptz[], %(came_from)b::uuid[]
    ) AS new (id, version, restaurant_id, place, sequence, service_day, token_number,
              position_at_join, minutes_low, minutes_high, status, updated_at, calls_count,
              called_at, recalled_at, due_at, desk, returned_at, transferred_at, came_from)
), moved AS (
    SELECT restaurant_id, place, 1 AS change FROM new WHERE status = 'WAITING'
    UNION ALL
    SELECT before.restaurant_id, before.place, -1
    FROM new, LATERAL (SELECT * FROM tickets WHERE tickets.id = new.id OFFSET 0) AS before
    WHERE before.status = 'WAITING'
), {COUNT_MOVED}
UPDATE tickets
SET version = new.version, restaurant_id = new.restaurant_id, place = new.place,
    sequence = new.sequence, service_day = new.service_day, token_number = new.token_number,
    position_at_join = new.position_at_join, minutes_low = new.minutes_low,
    minutes_high = new.minutes_high, status = new.status, updated_at = new.updated_at,
    calls_count = new.calls_count, called_at = new.called_at, recalled_at = new.recalled_at,
    due_at = new.due_at, desk = new.desk, returned_at = new.returned_at,
    transferred_at = new.transferred_at, came_from = new.came_from
FROM new
WHERE {equals_by_key_lookup("tickets.id", "new.id")}
"""
DELETE_TICKETS = f"""
WITH moved AS (
    SELECT restaurant_id, place, -1 AS change
    FROM (SELECT * FROM tickets WHERE id = ANY(%(ids)b::uuid[]) OFFSET 0) AS before
    WHERE status = 'WAITING'
), {COUNT_MOVED}
DELETE FROM tickets WHERE id = ANY(%(ids)b::uuid[])
"""

_STATUSES = {status.value: status for status in TicketStatus}


class LiveTickets(LiveTable[Ticket]):
    decider = TICKET
    name = "tickets"
    select = SELECT_TICKETS
    lock = LOCK_TICKETS
    insert = INSERT_TICKETS
    update = UPDATE_TICKETS
    delete = DELETE_TICKETS
    side_tables = ("ticket_counts",)

    def pick_statements(self, among: UUID, limit: int) -> Sequence[tuple[str, Parameters]]:
        """`among` is the restaurant's id."""
        return [(PICK_FIRST_TICKETS, {"restaurant": among.bytes, "limit": limit})]

    def side_row(self, state: Ticket) -> None:  # noqa: ARG002 (ended tickets count in no stretch)
        return

    def load(self, row: TupleRow) -> Ticket:
        return Ticket(
            id=row[0],
            version=row[1],
            restaurant_id=row[2],
            token=Token(place=row[3], sequence=row[4], service_day=row[5], number=row[6]),
            guest=Guest(subject_id=row[7], sealed=row[8], pseudonym=row[9]),
            party_size=row[10],
            seating_type=row[11],
            position_at_join=row[12],
            estimate=Wait(row[13], row[14]),
            status=_STATUSES[row[15]],
            created_at=row[16],
            updated_at=row[17],
            calls_count=row[18],
            called_at=row[19],
            recalled_at=row[20],
            due_at=row[21],
            desk=row[22],
            returned_at=row[23],
            transferred_at=row[24],
            came_from=row[25],
        )

    def insert_parameters(self, states: Sequence[Ticket]) -> Parameters:
        return {
            **self.update_parameters(states),
            "subjects": arrays.uuids([one.guest.subject_id for one in states]),
            "sealed": arrays.texts([one.guest.sealed for one in states]),
            "pseudonyms": arrays.texts([one.guest.pseudonym for one in states]),
            "sizes": arrays.smallints([one.party_size for one in states]),
            "seatings": arrays.texts([one.seating_type for one in states]),
            "created": arrays.timestamps([one.created_at for one in states]),
        }

    def update_parameters(self, states: Sequence[Ticket]) -> Parameters:
        tokens = [one.token for one in states]
        return {
            "ids": arrays.uuids([one.id for one in states]),
            "versions": arrays.bigints([one.version for one in states]),
            "restaurants": arrays.uuids([one.restaurant_id for one in states]),
            "places": arrays.bigints([one.place for one in tokens]),
            "sequences": arrays.bigints([one.sequence for one in tokens]),
            "days": arrays.dates([one.service_day for one in tokens]),
            "tokens": arrays.texts([one.number for one in tokens]),
            "joined_at": arrays.bigints([one.position_at_join for one in states]),
            "minutes_low": arrays.integers([one.estimate.minutes_low for one in states]),
            "minutes_high": arrays.integers([one.estimate.minutes_high for one in states]),
            "statuses": arrays.texts([one.status for one in states]),
            "updated": arrays.timestamps([one.updated_at for one in states]),
            "calls": arrays.integers([one.calls_count for one in states]),
            "called": arrays.timestamps([one.called_at for one in states]),
            "recalled": arrays.timestamps([one.recalled_at for one in states]),
            "due": arrays.timestamps([one.due_at for one in states]),
            "desks": arrays.texts([one.desk for one in states]),
            "returned": arrays.timestamps([one.returned_at for one in states]),
            "transferred": arrays.timestamps([one.transferred_at for one in states]),
            "came_from": arrays.uuids([one.came_from for one in states]),
        }
