"""Explains the current status of a ticket."""

from datetime import datetime
from typing import ClassVar

from daybook.domain.tickets.ticket import Ticket, TicketStatus
from daybook.eventlog.codec import RecordedEvent
from daybook.eventlog.postgres.pipeline import Connection
from daybook.projections.explain.reasons import Cancelled, Ended, Next, Reason
from daybook.projections.tickets.ticket_list import one_ticket


class InLine(Reason, frozen=True, kw_only=True, tag=True):
    position: int
    restaurant: str

    @property
    def sentence(self) -> str:
        others = "no party" if self.position == 1 else str(self.position - 1)
        return f"It is on the waitlist of {self.restaurant}, with {others} before it."


class WasCalled(Reason, frozen=True, kw_only=True, tag=True):
    at: datetime
    desk: str | None
    round: int

    @property
    def sentence(self) -> str:
        where = f" to {self.desk}" if self.desk else ""
        return f"The guest was called{where} (call {self.round}) and is expected."


class Seated(Ended, frozen=True, kw_only=True, tag=True):
    verb: ClassVar[str] = "seated"


class Missed(Ended, frozen=True, kw_only=True, tag=True):
    verb: ClassVar[str] = "given up, since the guest did not show up,"


async def explain_ticket(
    connection: Connection, ticket: Ticket, events: list[RecordedEvent]
) -> tuple[str, list[Reason], Next]:
    status, last = ticket.status.value, events[-1]
    match ticket.status:
        case TicketStatus.WAITING:
            return status, *await _waiting(connection, ticket)
        case TicketStatus.CALLED:
            assert ticket.called_at is not None, "a CALLED ticket has called_at"
            called = WasCalled(at=ticket.called_at, desk=ticket.desk, round=ticket.calls_count)
            left = "seat the guest" if ticket.due_at is None else "a no-show unless the guest comes"
            return status, [called], Next(f"The desk waits: {left}.", ticket.due_at)
        case TicketStatus.SEATED:
            return status, [Seated(at=last.event.at, by=last.actor)], Next("Nothing: it is over.")
        case TicketStatus.CANCELLED:
            why = Cancelled(at=last.event.at, by=last.actor)
            return status, [why], Next("Nothing: it is over.")
    missed = Missed(at=last.event.at, by=last.actor)
    return status, [missed], Next("The desk can return it to its old place on the waitlist.")


async def _waiting(connection: Connection, ticket: Ticket) -> tuple[list[Reason], Next]:
    view = await one_ticket(connection, ticket.id)
    following = Next("A desk calls the first guest: POST /api/restaurants/…/call-next.")
    if view is None or view.position is None:
        # Called since its history was read.
        return [], following
    return [InLine(position=view.position, restaurant=view.slug)], following
