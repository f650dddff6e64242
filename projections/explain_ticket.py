"""Why a guest still waits, and what comes next."""

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from domain.ticket import Ticket, TicketStatus
from eventlog.mapper import RecordedEvent
from projections import reasons
from projections.reasons import Next, Reason
from projections.ticket_list import COUNT_AHEAD


async def explain_ticket(
    connection: AsyncConnection[TupleRow], ticket: Ticket, events: list[RecordedEvent]
) -> tuple[str, list[Reason], Next]:
    status = ticket.status.value
    if ticket.status.is_over:
        over = reasons.TicketOver(status=status, at=ticket.ended_at, by=events[-1].actor)
        return status, [over], Next(_after(ticket.status))
    if ticket.status is TicketStatus.CALLED:
        until = ticket.due_at
        called = reasons.Called(calls=ticket.calls_count, desk=ticket.desk, until=until)
        return status, [called], Next("The desk seats the guest, or says no-show.", until)
    place = {"restaurant": ticket.restaurant_id, "place": ticket.token.place}
    ((ahead,),) = await (await connection.execute(COUNT_AHEAD, place)).fetchall()
    return status, [reasons.BehindPriority(ahead=ahead)], Next("A desk calls the next guest.")


def _after(status: TicketStatus) -> str:
    if status is TicketStatus.NO_SHOW:
        return "The desk may return the guest to the line."
    return "Nothing: it is over."
