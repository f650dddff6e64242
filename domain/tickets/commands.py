"""Commands on restaurants and their waitlists.

Each command locks the restaurant, which serialises calls across desks and processes. One command
records both the ticket's event and its effect on the waitlist, so that the two cannot disagree.
"""

from datetime import datetime
from uuid import UUID

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from daybook.domain.command import Lock, Needs, NotLoadedError, PickReady, UnitOfWork
from daybook.domain.errors import (
    ConcurrentCallError,
    NotFoundError,
    RestaurantExistsError,
    SameRestaurantError,
)
from daybook.domain.event import Event
from daybook.domain.tickets import restaurant as restaurants
from daybook.domain.tickets import ticket as tickets
from daybook.domain.tickets.restaurant import (
    RESTAURANT,
    Profile,
    Reset,
    Restaurant,
    Token,
    Wait,
    restaurant_id,
    wait_at,
)
from daybook.domain.tickets.ticket import TICKET, Guest, NoShowVia, Ticket, TicketStatus


class TicketResult(Struct, frozen=True, gc=False):
    ticket: Ticket
    restaurant: Restaurant  # The restaurant whose waitlist it is on
    was: TicketStatus | None = None  # Status before the command; None for a new ticket


class OpenedRestaurant(Struct, frozen=True, gc=False):
    restaurant: Restaurant
    is_new: bool


class RestaurantCommand(Struct, frozen=True, kw_only=True, gc=False):
    slug: str

    @property
    def needs(self) -> Needs:
        return [Lock(RESTAURANT, [restaurant_id(self.slug)])]


class TicketCommand(RestaurantCommand, frozen=True, kw_only=True, gc=False):
    ticket_id: UUID

    @property
    def needs(self) -> Needs:
        return [*super().needs, Lock(TICKET, [self.ticket_id])]


class OpenRestaurant(RestaurantCommand, frozen=True, kw_only=True, gc=False):
    """Idempotent; refuses a different profile under an existing slug."""

    profile: Profile

    def decide(self, work: UnitOfWork) -> OpenedRestaurant:
        existing = work.get(RESTAURANT, restaurant_id(self.slug))
        if existing is None:
            opened = restaurants.open_(slug=self.slug, profile=self.profile, now=work.now)
            return OpenedRestaurant(work.record(RESTAURANT, restaurant_id(self.slug), opened), True)
        if existing.profile != self.profile:
            raise RestaurantExistsError(self.slug)
        return OpenedRestaurant(existing, False)


class ChangeRestaurant(RestaurantCommand, frozen=True, kw_only=True, gc=False):
    """Fields left unset do not change."""

    name: str | UnsetType = UNSET
    token_prefix: str | UnsetType = UNSET
    minutes_per_party: float | UnsetType = UNSET
    reset: Reset | UnsetType = UNSET
    time_zone: str | UnsetType = UNSET
    no_show_seconds: float | UnsetType | None = UNSET

    def decide(self, work: UnitOfWork) -> Restaurant:
        restaurant = _restaurant(work, self.slug)
        given = {name: getattr(self, name) for name in Profile.__struct_fields__}
        changes = {name: value for name, value in given.items() if value is not UNSET}
        profile = replace(restaurant.profile, **changes)
        for event in restaurants.change(restaurant, profile=profile, now=work.now):
            restaurant = work.record(RESTAURANT, restaurant.id, event)
        return restaurant


class JoinLine(RestaurantCommand, frozen=True, kw_only=True, gc=False):
    """Adds a guest at the end of the waitlist."""

    ticket_id: UUID
    guest: Guest
    party_size: int
    seating_type: str | None = None
    hourly_max: int | None = None

    def decide(self, work: UnitOfWork) -> TicketResult:
        restaurant = _restaurant(work, self.slug)
        token, position, estimate = _join(work, restaurant, self.ticket_id)
        created = Ticket.Created(
            at=work.now,
            ticket_id=self.ticket_id,
            restaurant_id=restaurant.id,
            token_number=token.number,
            sequence=token.sequence,
            service_day=token.service_day,
            place=token.place,
            subject_id=self.guest.subject_id,
            sealed=self.guest.sealed,
            pseudonym=self.guest.pseudonym,
            party_size=self.party_size,
            seating_type=self.seating_type,
            position_at_join=position,
            estimate=estimate,
            hourly_max=self.hourly_max,
        )
        ticket = work.record(TICKET, self.ticket_id, created)
        return TicketResult(ticket, _restaurant(work, self.slug))


class CallNext(Struct, frozen=True, kw_only=True, gc=False):
    """Calls the first waiting guest; returns None if the waitlist is empty."""

    slug: str
    desk: str | None = None
    after_token: str | UnsetType | None = UNSET
    """Only if this token was called last; None if no call was made yet."""

    @property
    def needs(self) -> Needs:
        one = restaurant_id(self.slug)
        return [Lock(RESTAURANT, [one]), PickReady(TICKET, one, 1)]

    def decide(self, work: UnitOfWork) -> TicketResult | None:
        restaurant = _restaurant(work, self.slug)
        if self.after_token is not UNSET and self.after_token != restaurant.last_called:
            raise ConcurrentCallError(restaurant.last_called)
        first = _first(work, restaurant)
        if first is None:
            return None
        return _call(work, restaurant, first, self.desk, out_of_turn=False)


class CallTicket(TicketCommand, frozen=True, kw_only=True, gc=False):
    """Calls a guest of the desk's choice."""

    desk: str | None = None

    def decide(self, work: UnitOfWork) -> TicketResult:
        restaurant, ticket = _restaurant_and_ticket(work, self.slug, self.ticket_id)
        return _call(work, restaurant, ticket, self.desk, out_of_turn=True)


class RecallTicket(TicketCommand, frozen=True, kw_only=True, gc=False):
    desk: str | None = None

    def decide(self, work: UnitOfWork) -> TicketResult:
        restaurant, ticket = _restaurant_and_ticket(work, self.slug, self.ticket_id)
        grace_seconds = restaurant.profile.no_show_seconds
        recalled = tickets.recall(ticket, desk=self.desk, grace_seconds=grace_seconds, now=work.now)
        return _record(work, restaurant, ticket, recalled)


class SeatTicket(TicketCommand, frozen=True, kw_only=True, gc=False):
    def decide(self, work: UnitOfWork) -> TicketResult:
        restaurant, ticket = _restaurant_and_ticket(work, self.slug, self.ticket_id)
        return _record(work, restaurant, ticket, tickets.seat(ticket, now=work.now))


class MarkNoShow(TicketCommand, frozen=True, kw_only=True, gc=False):
    via: NoShowVia = NoShowVia.DESK
    due_at: datetime | None = None
    """End of the elapsed grace period, as the caller measured it; None compares with the clock."""

    def decide(self, work: UnitOfWork) -> TicketResult:
        restaurant, ticket = _restaurant_and_ticket(work, self.slug, self.ticket_id)
        missed = tickets.miss(ticket, via=self.via, elapsed=self.due_at, now=work.now)
        return _record(work, restaurant, ticket, missed)


class ReturnTicket(TicketCommand, frozen=True, kw_only=True, gc=False):
    """Returns the guest to their former position: the waitlist is ordered by number."""

    def decide(self, work: UnitOfWork) -> TicketResult:
        restaurant, ticket = _restaurant_and_ticket(work, self.slug, self.ticket_id)
        returned = tickets.return_(ticket, now=work.now)
        place = ticket.token.place
        event = Restaurant.GuestReturned(at=work.now, ticket_id=ticket.id, place=place)
        restaurant = work.record(RESTAURANT, restaurant.id, event)
        return _record(work, restaurant, ticket, returned)


class CancelTicket(TicketCommand, frozen=True, kw_only=True, gc=False):
    reason: str | None = None

    def decide(self, work: UnitOfWork) -> TicketResult:
        restaurant, ticket = _restaurant_and_ticket(work, self.slug, self.ticket_id)
        cancelled = tickets.cancel(ticket, reason=self.reason, now=work.now)
        restaurant = _leave(work, restaurant, ticket)
        return _record(work, restaurant, ticket, cancelled)


class TransferTicket(TicketCommand, frozen=True, kw_only=True, gc=False):
    """Moves the guest to the end of another waitlist. The ticket stays, with a new token."""

    to_slug: str

    @property
    def needs(self) -> Needs:
        return [*super().needs, Lock(RESTAURANT, [restaurant_id(self.to_slug)])]

    def decide(self, work: UnitOfWork) -> TicketResult:
        restaurant, ticket = _restaurant_and_ticket(work, self.slug, self.ticket_id)
        target = _restaurant(work, self.to_slug)
        if target.id == restaurant.id:
            raise SameRestaurantError(self.slug)
        tickets.require_not_over(ticket)
        _leave(work, restaurant, ticket)
        token, position, estimate = _join(work, target, ticket.id)
        transferred = Ticket.Transferred(
            at=work.now,
            restaurant_id=target.id,
            token_number=token.number,
            sequence=token.sequence,
            service_day=token.service_day,
            place=token.place,
            position_at_join=position,
            estimate=estimate,
        )
        return _record(work, _restaurant(work, self.to_slug), ticket, transferred)


def _restaurant(work: UnitOfWork, slug: str) -> Restaurant:
    restaurant = work.get(RESTAURANT, restaurant_id(slug))
    if restaurant is None:
        raise NotFoundError("restaurant", slug)
    return restaurant


def _restaurant_and_ticket(
    work: UnitOfWork, slug: str, ticket_id: UUID
) -> tuple[Restaurant, Ticket]:
    restaurant = _restaurant(work, slug)
    ticket = work.get(TICKET, ticket_id)
    if ticket is None or ticket.restaurant_id != restaurant.id:
        # A caller at one restaurant learns nothing about guests of another.
        raise NotFoundError("ticket", ticket_id)
    return restaurant, ticket


def _join(work: UnitOfWork, restaurant: Restaurant, ticket_id: UUID) -> tuple[Token, int, Wait]:
    """Draws the next token at the end of the waitlist."""
    token = restaurants.draw(restaurant, now=work.now)
    joined = Restaurant.GuestJoined(
        at=work.now,
        ticket_id=ticket_id,
        place=token.place,
        sequence=token.sequence,
        service_day=token.service_day,
    )
    position = work.record(RESTAURANT, restaurant.id, joined).waiting_count
    return token, position, wait_at(position, restaurant.profile.minutes_per_party)


def _first(work: UnitOfWork, restaurant: Restaurant) -> Ticket | None:
    """The first waiting ticket. The pick shows the waitlist as of the start of the batch; a guest
    who returned in an earlier command of the batch may precede it."""
    picked = work.pick_one(TICKET, restaurant.id)
    if picked is None:
        if restaurant.waiting_count == 0:
            return None
        raise NotLoadedError(f"the first waiting ticket of {restaurant.slug}")
    loaded = [one for one in work.all(TICKET) if one.restaurant_id == restaurant.id]
    return min((one for one in loaded if one.is_waiting), key=lambda one: one.token.place)


def _call(
    work: UnitOfWork,
    restaurant: Restaurant,
    ticket: Ticket,
    at_desk: str | None,
    *,
    out_of_turn: bool,
) -> TicketResult:
    called = tickets.call(
        ticket,
        desk=at_desk,
        grace_seconds=restaurant.profile.no_show_seconds,
        out_of_turn=out_of_turn,
        now=work.now,
    )
    event = Restaurant.GuestCalled(
        at=work.now,
        ticket_id=ticket.id,
        place=ticket.token.place,
        token_number=ticket.token.number,
        desk=at_desk,
    )
    return _record(work, work.record(RESTAURANT, restaurant.id, event), ticket, called)


def _leave(work: UnitOfWork, restaurant: Restaurant, ticket: Ticket) -> Restaurant:
    """A called guest has left the waitlist already."""
    if not ticket.is_waiting:
        return restaurant
    place = ticket.token.place
    left = Restaurant.GuestLeft(at=work.now, ticket_id=ticket.id, place=place)
    return work.record(RESTAURANT, restaurant.id, left)


def _record(work: UnitOfWork, restaurant: Restaurant, ticket: Ticket, event: Event) -> TicketResult:
    return TicketResult(work.record(TICKET, ticket.id, event), restaurant, ticket.status)
