"""A ticket: a walk-in guest on a restaurant's waitlist, from joining to the table.

It holds no name and no phone number: they are encrypted in `sealed` under the guest's own key,
which can be destroyed.
"""

from datetime import date, datetime
from enum import StrEnum
from typing import ClassVar
from uuid import UUID

from msgspec import Struct

from daybook.domain.errors import (
    GraceNotOverError,
    TicketNotCalledError,
    TicketNotReturnableError,
    TicketNotWaitingError,
    TicketOverError,
)
from daybook.domain.event import Decider, Event, State, add_seconds, events_of
from daybook.domain.tickets.restaurant import Token, Wait

# Ticket ids are time-based UUIDs. An id of another version belongs to another aggregate, whose
# history may be as long as a restaurant's: lookups skip it.
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
    """The guest, as far as the log may know."""

    subject_id: UUID
    sealed: str  # Name and mobile number, encrypted under the subject's key
    pseudonym: str
    """Keyed hash of the mobile number: equal for equal numbers, useless without our key."""


class Ticket(State, frozen=True, kw_only=True, gc=False):
    restaurant_id: UUID
    token: Token
    guest: Guest
    party_size: int
    seating_type: str | None
    position_at_join: int
    estimate: Wait  # As announced when the guest joined
    status: TicketStatus
    created_at: datetime
    updated_at: datetime
    calls_count: int = 0  # Rounds of calls; a recall belongs to its round
    called_at: datetime | None = None
    recalled_at: datetime | None = None
    due_at: datetime | None = None  # End of the grace period after a call
    desk: str | None = None
    returned_at: datetime | None = None
    transferred_at: datetime | None = None
    came_from: UUID | None = None  # The previous restaurant, after a transfer
    ended_at: datetime | None = None  # When the guest was seated, missed the call, or cancelled

    class Created(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "ticket.created"
        status_after: ClassVar[TicketStatus] = TicketStatus.WAITING
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
        """Tickets that one mobile number may draw in an hour; None for no limit."""

    class Called(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "ticket.called"
        status_after: ClassVar[TicketStatus] = TicketStatus.CALLED
        round: int
        due_at: datetime | None
        desk: str | None = None
        out_of_turn: bool = False  # Chosen by the desk instead of the order of the waitlist

    class Recalled(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "ticket.recalled"
        status_after: ClassVar[TicketStatus] = TicketStatus.CALLED
        due_at: datetime | None
        desk: str | None = None

    class Seated(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "ticket.seated"
        status_after: ClassVar[TicketStatus] = TicketStatus.SEATED

    class NoShow(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "ticket.no_show"
        status_after: ClassVar[TicketStatus] = TicketStatus.NO_SHOW
        via: NoShowVia

    class Returned(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "ticket.returned"
        status_after: ClassVar[TicketStatus] = TicketStatus.WAITING

    class Cancelled(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "ticket.cancelled"
        status_after: ClassVar[TicketStatus] = TicketStatus.CANCELLED
        reason: str | None = None

    class Transferred(Event, frozen=True, kw_only=True, gc=False):
        """Moved to the end of another restaurant's waitlist, with a new token."""

        topic: ClassVar[str] = "ticket.transferred"
        status_after: ClassVar[TicketStatus] = TicketStatus.WAITING
        restaurant_id: UUID
        token_number: str
        sequence: int
        service_day: date | None
        place: int
        position_at_join: int
        estimate: Wait

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
    """Calls again in the same round; the grace period restarts."""
    _require_called(ticket)
    due_at = _due_at(now, grace_seconds)
    return Ticket.Recalled(at=now, due_at=due_at, desk=desk or ticket.desk)


def seat(ticket: Ticket, *, now: datetime) -> Ticket.Seated:
    _require_called(ticket)
    return Ticket.Seated(at=now)


def miss(
    ticket: Ticket, *, via: NoShowVia, elapsed: datetime | None = None, now: datetime
) -> Ticket.NoShow:
    """Marks a no-show: by the desk at any time, by the clock after the grace period. A caller that
    measures elapsed time passes the end of the `elapsed` grace period, because the clock may jump
    and a recall starts another grace period."""
    _require_called(ticket)
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
    require_not_over(ticket)
    return Ticket.Cancelled(at=now, reason=reason)


def require_not_over(ticket: Ticket) -> None:
    if ticket.status.is_over:
        raise TicketOverError(ticket.token.number, ticket.status)


def _require_called(ticket: Ticket) -> None:
    if ticket.status is not TicketStatus.CALLED:
        raise TicketNotCalledError(ticket.token.number, ticket.status)


def _due_at(now: datetime, grace_seconds: float | None) -> datetime | None:
    return None if grace_seconds is None else add_seconds(now, grace_seconds)


def evolve(ticket: Ticket | None, event: Event) -> Ticket:
    if isinstance(event, Ticket.Created):
        return _apply_created(event)
    assert ticket is not None, f"{event} is the first event of a ticket"
    match event:
        case Ticket.Called():
            return ticket.after(
                event,
                calls_count=event.round,
                called_at=event.at,
                due_at=event.due_at,
                desk=event.desk,
            )
        case Ticket.Recalled():
            return ticket.after(event, recalled_at=event.at, due_at=event.due_at, desk=event.desk)
        case Ticket.Seated() | Ticket.NoShow() | Ticket.Cancelled():
            return ticket.after(event, due_at=None, ended_at=event.at)
        case Ticket.Returned():
            return ticket.after(
                event,
                returned_at=event.at,
                due_at=None,
                ended_at=None,
            )
        case Ticket.Transferred():
            return _apply_transferred(ticket, event)
    raise AssertionError(f"unknown ticket event {event}")


def _apply_created(event: Ticket.Created) -> Ticket:
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
        status=event.status_after,
        created_at=event.at,
        updated_at=event.at,
    )


def _apply_transferred(ticket: Ticket, event: Ticket.Transferred) -> Ticket:
    return ticket.after(
        event,
        restaurant_id=event.restaurant_id,
        came_from=ticket.restaurant_id,
        token=_token(event),
        position_at_join=event.position_at_join,
        estimate=event.estimate,
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
