"""No-shows: a guest who was called and has not come within the grace has lost the turn.

The desk can still bring the guest back into the line, to the old place. A recall begins the grace
anew; whoever looked before it is refused.
"""

import logging
from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

from msgspec import Struct

from domain.counter import MissTicket, Served
from domain.desk import Command
from domain.restaurant import RESTAURANT
from domain.ticket import TICKET, NoShowVia, TicketStatus
from eventlog.origin import Origin, Receipt
from processors.runtime import (
    AGAIN_SECONDS,
    BATCH_MAX,
    POLL_SECONDS,
    Hears,
    Processor,
    Runtime,
    Session,
)

ACTOR = "system:no_shows"

# The same lines as those of the API, which stands above this.
_happenings = logging.getLogger("daybook.happenings")

# What is due, and the first that is not: the index has them in this order.
FIND_DUE_TICKETS = """
SELECT tickets.id, slug, due_at,
       extract(epoch FROM due_at - clock_timestamp())::float8 + %(patience)s AS seconds
FROM tickets JOIN restaurants ON restaurants.id = tickets.restaurant_id
WHERE due_at IS NOT NULL
ORDER BY due_at
LIMIT %(limit)s
"""


class DueTicket(Struct, frozen=True, gc=False):
    id: UUID
    slug: str
    due_at: datetime
    seconds: float
    """How long the guest has still time; 0 or less when that is over."""


class NoShows(Processor):
    name: ClassVar[str] = "no_shows"
    hears: ClassVar[Hears] = (TICKET, RESTAURANT)
    pause_seconds: ClassVar[float] = 0.1
    # Nobody is called and due within the second, and nobody waits for it to the millisecond.
    deaf_seconds: ClassVar[float] = POLL_SECONDS

    async def work(self, runtime: Runtime, session: Session) -> float:
        parameters = {"patience": session.patience_seconds, "limit": BATCH_MAX}
        found = await session.connection.execute(FIND_DUE_TICKETS, parameters)
        first = [DueTicket(*row) for row in await found.fetchall()]
        due = [one for one in first if one.seconds <= 0]
        receipts = await runtime.send_all(_miss(runtime, one) for one in due)
        for receipt in receipts:
            if receipt is not None:
                _tell(receipt)
        if None in receipts:
            return AGAIN_SECONDS
        coming = [one.seconds for one in first if one.seconds > 0]
        return 0 if len(due) == BATCH_MAX else min([POLL_SECONDS, *coming])


def _miss(runtime: Runtime, due: DueTicket) -> tuple[Command[Any], Origin]:
    command = MissTicket(slug=due.slug, ticket_id=due.id, via=NoShowVia.GRACE)
    return command, runtime.origin(ACTOR, due.id, f"miss {due.due_at.isoformat()}")


def _tell(receipt: Receipt) -> None:
    served = receipt.answer
    assert isinstance(served, Served)
    ticket = served.ticket
    context = {
        "restaurantId": ticket.restaurant_id,
        "entryId": ticket.id,
        "tokenNumber": ticket.token.number,
        "from": TicketStatus.CALLED,
        "to": ticket.status,
    }
    _happenings.info("queue.status_changed", extra={"context": context})
