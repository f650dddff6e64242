"""No-shows: a guest who was called and has not come within the grace has lost the turn.

The desk can still bring the guest back into the line, to the old place. A recall begins the grace
anew; whoever looked before it is refused.
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

# The same lines as those of the API, which stands above this.
_happenings = logging.getLogger("daybook.happenings")

# The grace periods that are over, the first that is not, and any with more time left than its
# length: it began while the clock was ahead. After a jump, all of them. Only called guests have
# one, and nothing happens to a ticket between the call and the end of the grace but another call.
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
    OR seconds > length_seconds + %(odd)s
    OR seconds = (SELECT min(seconds) FROM called WHERE seconds > - %(grace)s::float8)
ORDER BY seconds
LIMIT %(limit)s
"""


class NoShows(Processor):
    name: ClassVar[str] = "no_shows"
    wakes_on: ClassVar[WakesOn] = (TICKET, RESTAURANT)
    pause_seconds: ClassVar[float] = 0.1
    # Nobody is called and due within the second, and nobody waits for it to the millisecond.
    min_interval_seconds: ClassVar[float] = POLL_SECONDS

    def __init__(self) -> None:
        self._deadlines = Deadlines()

    async def work(self, runtime: Runtime, session: Session) -> float:
        due = await self._deadlines.find_due(session, FIND_DUE_TICKETS)
        receipts = await runtime.send_all(_miss(runtime, one) for one in due.deadlines)
        for receipt in receipts:
            if receipt is not None:
                _tell(receipt)
        return AGAIN_SECONDS if None in receipts else due.next_seconds


def _miss(runtime: Runtime, grace: Deadline) -> tuple[Command[Any], Origin]:
    (slug,) = grace.rest
    ticket_id = cast("UUID", grace.of)
    command = MarkNoShow(slug=slug, ticket_id=ticket_id, via=NoShowVia.GRACE, due_at=grace.until)
    return command, runtime.origin(ACTOR, ticket_id, f"miss {grace.until.isoformat()}")


def _tell(receipt: Receipt) -> None:
    served = receipt.result
    assert isinstance(served, TicketResult)
    ticket = served.ticket
    context = {
        "restaurantId": ticket.restaurant_id,
        "entryId": ticket.id,
        "tokenNumber": ticket.token.number,
        "from": TicketStatus.CALLED,
        "to": ticket.status,
    }
    _happenings.info("queue.status_changed", extra={"context": context})
