"""The commands of the counter: what restaurants and tickets decide together.

Every command holds the restaurant: its line has one order, and whoever is called is called in it,
however many desks and processes there are. What a ticket goes through and what that does to the
line are recorded by one command, so that neither side can ever say otherwise.
"""

from datetime import datetime
from uuid import UUID

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from daybook.domain.command import Needs, NotLoadedError, UnitOfWork
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
    """What the counter answers about a ticket."""

    ticket: Ticket
    restaurant: Restaurant
    """The one whose line it is in."""

    was: TicketStatus | None = None
    """The status that it had before; None for a new one."""


class OpenedRestaurant(Struct, frozen=True, gc=False):
    restaurant: Restaurant
    is_new: bool


class OpenRestaurant(Struct, frozen=True, kw_only=True, gc=False):
    """Asked for twice, it is opened once; another one under the same slug is refused."""

    slug: str
    profile: Profile

    @property
    def needs(self) -> Needs:
        return _reads(self.slug)

    def decide(self, work: UnitOfWork) -> OpenedRestaurant:
        existing = work.get(RESTAURANT, restaurant_id(self.slug))
        if existing is None:
            opened = restaurants.open_(slug=self.slug, profile=self.profile, now=work.now)
            return OpenedRestaurant(work.record(RESTAURANT, restaurant_id(self.slug), opened), True)
        if existing.profile != self.profile:
            raise RestaurantExistsError(self.slug)
        return OpenedRestaurant(existing, False)


class ChangeRestaurant(Struct, frozen=True, kw_only=True, gc=False):
    """What is not set stays as it is."""

    slug: str
    name: str | UnsetType = UNSET
    token_prefix: str | UnsetType = UNSET
    minutes_per_party: float | UnsetType = UNSET
    reset: Reset | UnsetType = UNSET
    time_zone: str | UnsetType = UNSET
    no_show_seconds: float | UnsetType | None = UNSET

    @property
    def needs(self) -> Needs:
        return _reads(self.slug)

    def decide(self, work: UnitOfWork) -> Restaurant:
        restaurant = _restaurant(work, self.slug)
        given = {name: getattr(self, name) for name in Profile.__struct_fields__}
        changes = {name: value for name, value in given.items() if value is not UNSET}
        profile = replace(restaurant.profile, **changes)
        for event in restaurants.change(restaurant, profile=profile, now=work.now):
            restaurant = work.record(RESTAURANT, restaurant.id, event)
        return restaurant


class JoinLine(Struct, frozen=True, kw_only=True, gc=False):
    """A guest joins the line, at its end."""

    slug: str
    ticket_id: UUID
    guest: Guest
    party_size: int
    seating_type: str | None = None
    hourly_max: int | None = None

    @property
    def needs(self) -> Needs:
        return _reads(self.slug)

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
    """Calls whoever is first in the line; the answer is None when nobody waits."""

    slug: str
    desk: str | None = None
    after_token: str | UnsetType | None = UNSET
    """Only if this one was the last to be called; None, if nobody was."""

    @property
    def needs(self) -> Needs:
        among = restaurant_id(self.slug)
        return Needs(lock=((RESTAURANT, among),), pick=TICKET, pick_count=1, pick_selector=among)

    def decide(self, work: UnitOfWork) -> TicketResult | None:
        restaurant = _restaurant(work, self.slug)
        if self.after_token is not UNSET and self.after_token != restaurant.last_called:
            raise ConcurrentCallError(restaurant.last_called)
        first = _first(work, restaurant)
        if first is None:
            return None
        return _call(work, restaurant, first, self.desk, out_of_turn=False)


class CallTicket(Struct, frozen=True, kw_only=True, gc=False):
    """The desk chooses whom to call."""

    slug: str
    ticket_id: UUID
    desk: str | None = None

    @property
    def needs(self) -> Needs:
        return _reads(self.slug, self.ticket_id)

    def decide(self, work: UnitOfWork) -> TicketResult:
        restaurant, ticket = _both(work, self.slug, self.ticket_id)
        return _call(work, restaurant, ticket, self.desk, out_of_turn=True)


class RecallTicket(Struct, frozen=True, kw_only=True, gc=False):
    slug: str
    ticket_id: UUID
    desk: str | None = None

    @property
    def needs(self) -> Needs:
        return _reads(self.slug, self.ticket_id)

    def decide(self, work: UnitOfWork) -> TicketResult:
        restaurant, ticket = _both(work, self.slug, self.ticket_id)
        grace_seconds = restaurant.profile.no_show_seconds
        recalled = tickets.recall(ticket, desk=self.desk, grace_seconds=grace_seconds, now=work.now)
        return _serve(work, restaurant, ticket, recalled)


class SeatTicket(Struct, frozen=True, kw_only=True, gc=False):
    slug: str
    ticket_id: UUID

    @property
    def needs(self) -> Needs:
        return _reads(self.slug, self.ticket_id)

    def decide(self, work: UnitOfWork) -> TicketResult:
        restaurant, ticket = _both(work, self.slug, self.ticket_id)
        return _serve(work, restaurant, ticket, tickets.seat(ticket, now=work.now))


class MarkNoShow(Struct, frozen=True, kw_only=True, gc=False):
    """The guest did not show up."""

    slug: str
    ticket_id: UUID
    via: NoShowVia = NoShowVia.DESK
    due_at: datetime | None = None
    """The end of the grace that has elapsed, as the caller measured it; None to ask the clock."""

    @property
    def needs(self) -> Needs:
        return _reads(self.slug, self.ticket_id)

    def decide(self, work: UnitOfWork) -> TicketResult:
        restaurant, ticket = _both(work, self.slug, self.ticket_id)
        missed = tickets.miss(ticket, via=self.via, elapsed=self.due_at, now=work.now)
        return _serve(work, restaurant, ticket, missed)


class ReturnTicket(Struct, frozen=True, kw_only=True, gc=False):
    """Back into the line, to the place that was the guest's: the line's order is its numbers'."""

    slug: str
    ticket_id: UUID

    @property
    def needs(self) -> Needs:
        return _reads(self.slug, self.ticket_id)

    def decide(self, work: UnitOfWork) -> TicketResult:
        restaurant, ticket = _both(work, self.slug, self.ticket_id)
        returned = tickets.return_(ticket, now=work.now)
        place = ticket.token.place
        told = Restaurant.GuestReturned(at=work.now, ticket_id=ticket.id, place=place)
        restaurant = work.record(RESTAURANT, restaurant.id, told)
        return _serve(work, restaurant, ticket, returned)


class CancelTicket(Struct, frozen=True, kw_only=True, gc=False):
    slug: str
    ticket_id: UUID
    reason: str | None = None

    @property
    def needs(self) -> Needs:
        return _reads(self.slug, self.ticket_id)

    def decide(self, work: UnitOfWork) -> TicketResult:
        restaurant, ticket = _both(work, self.slug, self.ticket_id)
        cancelled = tickets.cancel(ticket, reason=self.reason, now=work.now)
        restaurant = _leave(work, restaurant, ticket)
        return _serve(work, restaurant, ticket, cancelled)


class TransferTicket(Struct, frozen=True, kw_only=True, gc=False):
    """To the end of another restaurant's line. The guest keeps the ticket and gets a new token."""

    slug: str
    ticket_id: UUID
    to_slug: str

    @property
    def needs(self) -> Needs:
        lines = (RESTAURANT, restaurant_id(self.slug)), (RESTAURANT, restaurant_id(self.to_slug))
        return Needs(lock=(*lines, (TICKET, self.ticket_id)))

    def decide(self, work: UnitOfWork) -> TicketResult:
        restaurant, ticket = _both(work, self.slug, self.ticket_id)
        target = _restaurant(work, self.to_slug)
        if target.id == restaurant.id:
            raise SameRestaurantError(self.slug)
        tickets.must_not_be_over(ticket)
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
        return _serve(work, _restaurant(work, self.to_slug), ticket, transferred)


def _reads(slug: str, ticket_id: UUID | None = None) -> Needs:
    line = (RESTAURANT, restaurant_id(slug))
    return Needs(lock=(line,) if ticket_id is None else (line, (TICKET, ticket_id)))


def _restaurant(work: UnitOfWork, slug: str) -> Restaurant:
    restaurant = work.get(RESTAURANT, restaurant_id(slug))
    if restaurant is None:
        raise NotFoundError("restaurant", slug)
    return restaurant


def _both(work: UnitOfWork, slug: str, ticket_id: UUID) -> tuple[Restaurant, Ticket]:
    restaurant = _restaurant(work, slug)
    ticket = work.get(TICKET, ticket_id)
    if ticket is None or ticket.restaurant_id != restaurant.id:
        # Whoever asks at one restaurant learns nothing of another's guests.
        raise NotFoundError("ticket", ticket_id)
    return restaurant, ticket


def _join(work: UnitOfWork, restaurant: Restaurant, ticket_id: UUID) -> tuple[Token, int, Wait]:
    """A place at the end of the line."""
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
    """Who is first in the line now. What was picked is the line as it was when the batch began;
    who came back since, in an earlier command of the batch, may stand before that."""
    picked = work.pick_one(TICKET, restaurant.id)
    if picked is None:
        if restaurant.waiting_count == 0:
            return None
        raise NotLoadedError(f"the first of those who wait at {restaurant.slug}")
    line = [one for one in work.all(TICKET) if one.restaurant_id == restaurant.id]
    return min((one for one in line if one.is_waiting), key=lambda one: one.token.place)


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
    told = Restaurant.GuestCalled(
        at=work.now,
        ticket_id=ticket.id,
        place=ticket.token.place,
        token_number=ticket.token.number,
        desk=at_desk,
    )
    return _serve(work, work.record(RESTAURANT, restaurant.id, told), ticket, called)


def _leave(work: UnitOfWork, restaurant: Restaurant, ticket: Ticket) -> Restaurant:
    """Whoever was called has left the line already."""
    if not ticket.is_waiting:
        return restaurant
    place = ticket.token.place
    left = Restaurant.GuestLeft(at=work.now, ticket_id=ticket.id, place=place)
    return work.record(RESTAURANT, restaurant.id, left)


def _serve(work: UnitOfWork, restaurant: Restaurant, ticket: Ticket, event: Event) -> TicketResult:
    return TicketResult(work.record(TICKET, ticket.id, event), restaurant, ticket.status)
