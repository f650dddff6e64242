"""Marks called tickets as no-shows when their grace period is over.

The desk can still return the guest to the old waitlist position. A recall starts a new grace
period, and a command that names the previous one is refused.
"""

import logging
from typing import Any, ClassVar, cast
from uuid import UUID

from daybook.domain.command import Command
from daybook.domain.tickets.commands import MarkNoShow, TicketResult
from daybook.domain.tickets.restaurant import RESTAURANT
from daybook.domain.tickets.ticket import TICKET, NoShowVia, TicketStatus
from daybook.eventlog.origin import Origin, Receipt
from daybook.processors.deadlines import Deadline, Deadlines
from daybook.processors.processor import (
    AGAIN_SECONDS,
    POLL_SECONDS,
    Processor,
    Runtime,
    Session,
    WakesOn,
)

ACTOR = "system:no_shows"

# The logger of the API's events, which this package may not import.
_event_log = logging.getLogger("daybook.happenings")

# Grace periods that are over, the first that is not, and any with more time left than its length,
# which began while the clock was ahead. After a jump, all of them. Only called tickets have one;
# updated_at is its start, because only another call changes a ticket in between.
FIND_DUE_TICKETS = """
WITH moment AS MATERIALIZED (
    SELECT clock_timestamp() AS now
), called AS MATERIALIZED (
    SELECT tickets.id, due_at, slug,
           extract(epoch FROM due_at - now)::float8 AS seconds,
           extract(epoch FROM due_at - tickets.updated_at)::float8 AS length_seconds
    FROM tickets JOIN restaurants ON restaurants.id = tickets.restaurant_id, moment
    WHERE due_at IS NOT NULL
)
SELECT now, id, due_at, seconds, length_seconds, slug
FROM moment LEFT JOIN called
    ON %(all)s
    OR seconds <= - %(grace)s::float8
    OR seconds > length_seconds + %(jump_seconds_min)s
    OR seconds = (SELECT min(seconds) FROM called WHERE seconds > - %(grace)s::float8)
ORDER BY seconds
LIMIT %(limit)s
"""


class NoShows(Processor):
    name: ClassVar[str] = "no_shows"
    wakes_on: ClassVar[WakesOn] = (TICKET, RESTAURANT)
    pause_seconds: ClassVar[float] = 0.1
    # Grace periods are longer than 1 s, and a delay of up to 1 s is acceptable.
    min_interval_seconds: ClassVar[float] = POLL_SECONDS

    def __init__(self) -> None:
        self._deadlines = Deadlines()

    async def work(self, runtime: Runtime, session: Session) -> float:
        due = await self._deadlines.find_due(session, FIND_DUE_TICKETS)
        receipts = await runtime.send_all(_miss(runtime, one) for one in due.deadlines)
        for receipt in receipts:
            if receipt is not None:
                _log_no_show(receipt)
        return AGAIN_SECONDS if None in receipts else due.next_seconds


def _miss(runtime: Runtime, grace: Deadline) -> tuple[Command[Any], Origin]:
    (slug,) = grace.extra_columns
    ticket_id = cast("UUID", grace.owner_id)
    command = MarkNoShow(slug=slug, ticket_id=ticket_id, via=NoShowVia.GRACE, due_at=grace.until)
    return command, runtime.origin(ACTOR, ticket_id, f"miss {grace.until.isoformat()}")


def _log_no_show(receipt: Receipt) -> None:
    result = receipt.result
    assert isinstance(result, TicketResult)
    ticket = result.ticket
    context = {
        "restaurantId": ticket.restaurant_id,
        "entryId": ticket.id,
        "tokenNumber": ticket.token.number,
        "from": TicketStatus.CALLED,
        "to": ticket.status,
    }
    _event_log.info("queue.status_changed", extra={"context": context})
