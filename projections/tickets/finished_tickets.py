"""`finished_tickets`: ended tickets, for lists. A no-show that returns leaves the table."""

from collections.abc import Iterable, Sequence
from uuid import UUID

from msgspec import json
from psycopg.rows import TupleRow

from daybook.domain.event import Event
from daybook.domain.ids import key_of
from daybook.domain.tickets.ticket import TICKET, Ticket
from daybook.eventlog.codec import EventMapper, FollowedEvent
from daybook.eventlog.postgres.binary_arrays import bigints, byteas, texts, uuids
from daybook.eventlog.postgres.pipeline import Connection
from daybook.eventlog.reading.fold import fold_histories

UPSERT_FINISHED_TICKETS = """
INSERT INTO finished_tickets (id, restaurant_id, subject_id, place, status, ticket)
SELECT * FROM unnest(
    %(ids)b::uuid[], %(restaurants)b::uuid[], %(subjects)b::uuid[], %(places)b::bigint[],
    %(statuses)b::text[], %(tickets)b::bytea[])
ON CONFLICT (id) DO UPDATE
SET restaurant_id = excluded.restaurant_id, place = excluded.place, status = excluded.status,
    ticket = excluded.ticket
"""
DELETE_FINISHED_TICKETS = "DELETE FROM finished_tickets WHERE id = ANY(%(ids)b::uuid[])"
# Newest first, except tickets with events after the follower's cursor: the caller folds these.
READ_FINISHED_TICKETS = """
SELECT ticket
FROM finished_tickets
WHERE restaurant_id = %(restaurant)s AND status = %(status)s AND place < %(before)s
  AND id <> ALL(%(except)s::uuid[])
ORDER BY place DESC
LIMIT %(limit)s
"""
# Tickets of one guest, of any status.
READ_GUESTS_FINISHED_TICKETS = """
SELECT ticket
FROM finished_tickets
WHERE restaurant_id = %(restaurant)s AND subject_id = %(subject)s
  AND id <> ALL(%(except)s::uuid[])
ORDER BY place DESC
LIMIT %(limit)s
"""
READ_TAIL = """
SELECT DISTINCT originator_id
FROM (
    SELECT originator_id
    FROM stored_events
    WHERE notification_id > %(after)s AND topic = ANY(%(topics)s)
    ORDER BY notification_id
    LIMIT %(limit)s
) AS tail
"""

_MAPPER = EventMapper((TICKET,))
_decode = json.Decoder(Ticket).decode


class FinishedTickets:
    name = "finished_tickets"
    kinds: tuple[type[Event], ...] | None = (
        Ticket.Seated,
        Ticket.NoShow,
        Ticket.Cancelled,
        Ticket.Returned,
    )

    needs_payload = True
    # Lists read the log after the cursor too, so a delay is not visible.
    pause_seconds = 0.25

    async def apply(self, connection: Connection, events: Sequence[FollowedEvent]) -> None:
        touched = {event.originator_id for event in events}
        tickets = await fold_tickets(connection, touched, upto=events[-1].position)
        over = [one for one in tickets if one.status.is_over]
        back = [one.id for one in tickets if not one.status.is_over]
        if over:
            await connection.execute(UPSERT_FINISHED_TICKETS, _columns(over))
        if back:
            await connection.execute(DELETE_FINISHED_TICKETS, {"ids": uuids(back)})


async def fold_tickets(
    connection: Connection, ids: Iterable[UUID], *, upto: int | None = None
) -> list[Ticket]:
    folded = await fold_histories(connection, _MAPPER, [*ids], upto=upto)
    return sorted(folded.values(), key=lambda ticket: key_of(ticket.id))


def load_finished(row: TupleRow) -> Ticket:
    return _decode(row[0])


def tail_topics() -> list[str]:
    return _MAPPER.topics_of(FinishedTickets.kinds or ())


def _columns(tickets: Sequence[Ticket]) -> dict[str, bytes]:
    return {
        "ids": uuids([one.id for one in tickets]),
        "restaurants": uuids([one.restaurant_id for one in tickets]),
        "subjects": uuids([one.guest.subject_id for one in tickets]),
        "places": bigints([one.token.place for one in tickets]),
        "statuses": texts([one.status for one in tickets]),
        "tickets": byteas([json.encode(one) for one in tickets]),
    }
