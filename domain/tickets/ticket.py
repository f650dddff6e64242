"""A ticket: a walk-in guest's place in a restaurant's line, from joining it to the table.

It knows no name and no number of a telephone: those are in `sealed`, which only the guest's own
key opens, and that key can be destroyed.
"""

from datetime import date, datetime
from enum import StrEnum
from typing import Any, ClassVar, Self
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from daybook.domain.errors import (
    GraceNotOverError,
    TicketNotCalledError,
    TicketNotReturnableError,
    TicketNotWaitingError,
    TicketOverError,
)
from daybook.domain.event import Decider, Event, add_seconds, events_of
from daybook.domain.tickets.restaurant import Token, Wait

# Tickets have ids drawn by time. One that is derived from a name is something else's, whose history
# may be as long as that of a restaurant: nobody need look there for a ticket.
ID_VERSION = 7


class TicketStatus(StrEnum):
    WAITING = "WAITING"
    CALLED = "CALLED"
    SEATED = "SEATED"
    NO_SHOW = "NO_SHOW"
    CANCELLED = "CANCELLED"

    @property
    def is_over(self) -> bool:
        return self not in (TicketStatus.WAITING, TicketStatus.CALLED)


class NoShowVia(StrEnum):
    DESK = "desk"
    GRACE = "grace"


class Guest(Struct, frozen=True, kw_only=True, gc=False):
    """Who it is, as far as the log may know."""

    subject_id: UUID
    sealed: str
    """Name and mobile number, encrypted under the subject's own key."""

    pseudonym: str
    """The same for the same mobile number, and of no use to anybody without our key."""


class Ticket(Struct, frozen=True, kw_only=True, gc=False):
    id: UUID
    version: int
    restaurant_id: UUID
    token: Token
    guest: Guest
    party_size: int
    seating_type: str | None
    position_at_join: int
    estimate: Wait
    """As it was told when the guest joined."""

    status: TicketStatus
    created_at: datetime
    updated_at: datetime
    calls_count: int = 0
    """Rounds in which it was called: a recall belongs to its round."""

    called_at: datetime | None = None
    recalled_at: datetime | None = None
    due_at: datetime | None = None
    """Until when the guest who was called may show up."""

    desk: str | None = None
    """Where the guest was called to, the last time."""

    returned_at: datetime | None = None
    transferred_at: datetime | None = None
    came_from: UUID | None = None
    """The restaurant whose line it was in before."""

    ended_at: datetime | None = None
    """When the guest was seated, did not show up, or cancelled."""

    class Created(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "ticket.created"
        ticket_id: UUID
        restaurant_id: UUID
        token_number: str
        sequence: int
        service_day: date | None
        place: int
        subject_id: UUID
        sealed: str
        pseudonym: str
        party_size: int
        seating_type: str | None
        position_at_join: int
        estimate: Wait
        hourly_max: int | None = None
        """How many tickets a mobile number might draw within an hour; None for any number."""

    class Called(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "ticket.called"
        round: int
        due_at: datetime | None
        desk: str | None = None
        out_of_turn: bool = False
        """Whether somebody chose it, and not the line."""

    class Recalled(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "ticket.recalled"
        due_at: datetime | None
        desk: str | None = None

    class Seated(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "ticket.seated"

    class NoShow(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "ticket.no_show"
        via: NoShowVia

    class Returned(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "ticket.returned"

    class Cancelled(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "ticket.cancelled"
        reason: str | None = None

    class Transferred(Event, frozen=True, kw_only=True, gc=False):
        """Into another restaurant's line, at its end, under a token of that one."""

        topic: ClassVar[str] = "ticket.transferred"
        restaurant_id: UUID
        token_number: str
        sequence: int
        service_day: date | None
        place: int
        position_at_join: int
        estimate: Wait

    def after(self, event: Event, **changes: Any) -> Self:
        return replace(self, version=self.version + 1, updated_at=event.at, **changes)

    @property
    def is_waiting(self) -> bool:
        return self.status is TicketStatus.WAITING


def call(
    ticket: Ticket,
    *,
    desk: str | None,
    grace_seconds: float | None,
    out_of_turn: bool,
    now: datetime,
) -> Ticket.Called:
    if not ticket.is_waiting:
        raise TicketNotWaitingError(ticket.token.number, ticket.status)
    return Ticket.Called(
        at=now,
        round=ticket.calls_count + 1,
        due_at=_due_at(now, grace_seconds),
        desk=desk,
        out_of_turn=out_of_turn,
    )


def recall(
    ticket: Ticket, *, desk: str | None, grace_seconds: float | None, now: datetime
) -> Ticket.Recalled:
    """Calls once more, in the same round; the guest's time begins anew."""
    _must_be_called(ticket)
    due_at = _due_at(now, grace_seconds)
    return Ticket.Recalled(at=now, due_at=due_at, desk=desk or ticket.desk)


def seat(ticket: Ticket, *, now: datetime) -> Ticket.Seated:
    _must_be_called(ticket)
    return Ticket.Seated(at=now)


def miss(
    ticket: Ticket, *, via: NoShowVia, elapsed: datetime | None = None, now: datetime
) -> Ticket.NoShow:
    """The guest did not show up: the desk may say so at any time, the clock when it is due. A
    caller that has measured the time names the end of the grace that has `elapsed`: the clock may
    have jumped, and a recall begins another grace."""
    _must_be_called(ticket)
    if via is NoShowVia.GRACE:
        is_over = ticket.due_at is not None and (elapsed or now) >= ticket.due_at
        if not is_over:
            raise GraceNotOverError(ticket.token.number)
    return Ticket.NoShow(at=now, via=via)


def return_(ticket: Ticket, *, now: datetime) -> Ticket.Returned:
    if ticket.status not in (TicketStatus.CALLED, TicketStatus.NO_SHOW):
        raise TicketNotReturnableError(ticket.token.number, ticket.status)
    return Ticket.Returned(at=now)


def cancel(ticket: Ticket, *, reason: str | None, now: datetime) -> Ticket.Cancelled:
    must_not_be_over(ticket)
    return Ticket.Cancelled(at=now, reason=reason)


def must_not_be_over(ticket: Ticket) -> None:
    if ticket.status.is_over:
        raise TicketOverError(ticket.token.number, ticket.status)


def _must_be_called(ticket: Ticket) -> None:
    if ticket.status is not TicketStatus.CALLED:
        raise TicketNotCalledError(ticket.token.number, ticket.status)


def _due_at(now: datetime, grace_seconds: float | None) -> datetime | None:
    return None if grace_seconds is None else add_seconds(now, grace_seconds)


def evolve(ticket: Ticket | None, event: Event) -> Ticket:
    if isinstance(event, Ticket.Created):
        return _created(event)
    assert ticket is not None, f"{event} is the first event of a ticket"
    match event:
        case Ticket.Called():
            return ticket.after(
                event,
                status=TicketStatus.CALLED,
                calls_count=event.round,
                called_at=event.at,
                due_at=event.due_at,
                desk=event.desk,
            )
        case Ticket.Recalled():
            return ticket.after(event, recalled_at=event.at, due_at=event.due_at, desk=event.desk)
        case Ticket.Seated():
            return _ended(ticket, event, TicketStatus.SEATED)
        case Ticket.NoShow():
            return _ended(ticket, event, TicketStatus.NO_SHOW)
        case Ticket.Cancelled():
            return _ended(ticket, event, TicketStatus.CANCELLED)
        case Ticket.Returned():
            return ticket.after(
                event,
                status=TicketStatus.WAITING,
                returned_at=event.at,
                due_at=None,
                ended_at=None,
            )
        case Ticket.Transferred():
            return _transferred(ticket, event)
    raise AssertionError(f"a ticket does not know {event}")


def _created(event: Ticket.Created) -> Ticket:
    return Ticket(
        id=event.ticket_id,
        version=1,
        restaurant_id=event.restaurant_id,
        token=_token(event),
        guest=Guest(subject_id=event.subject_id, sealed=event.sealed, pseudonym=event.pseudonym),
        party_size=event.party_size,
        seating_type=event.seating_type,
        position_at_join=event.position_at_join,
        estimate=event.estimate,
        status=TicketStatus.WAITING,
        created_at=event.at,
        updated_at=event.at,
    )


def _ended(ticket: Ticket, event: Event, status: TicketStatus) -> Ticket:
    return ticket.after(event, status=status, due_at=None, ended_at=event.at)


def _transferred(ticket: Ticket, event: Ticket.Transferred) -> Ticket:
    return ticket.after(
        event,
        restaurant_id=event.restaurant_id,
        came_from=ticket.restaurant_id,
        token=_token(event),
        position_at_join=event.position_at_join,
        estimate=event.estimate,
        status=TicketStatus.WAITING,
        transferred_at=event.at,
        due_at=None,
    )


def _token(event: Ticket.Created | Ticket.Transferred) -> Token:
    return Token(
        place=event.place,
        sequence=event.sequence,
        service_day=event.service_day,
        number=event.token_number,
    )


TICKET: Decider[Ticket] = Decider(
    name="ticket",
    state=Ticket,
    events=events_of(Ticket),
    evolve=evolve,
    finished=lambda ticket: ticket.status.is_over,
)
