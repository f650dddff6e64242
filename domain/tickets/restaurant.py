"""A restaurant: how it runs its line, and the line itself.

The line is the restaurant's own stream. Whoever joins it draws the next number there, and who is
called or leaves is told there as well, in the command that tells the ticket: so numbers have no
gaps, none is given twice, and how many wait is known without counting them.
"""

from datetime import date, datetime
from enum import StrEnum
from math import ceil, floor
from typing import Any, ClassVar, Self
from uuid import UUID, uuid5
from zoneinfo import ZoneInfo

from msgspec import Struct
from msgspec.structs import replace

from daybook.domain.event import Decider, Event, events_of
from daybook.domain.schedules.cron import check_time_zone

# How many of the last calls the board shows.
LAST_CALLS_MAX = 5
DIGITS = 6
# Parties stay longer or shorter than the average: a wait is told as a range.
WAIT_LOW, WAIT_HIGH = 0.75, 1.25

_RESTAURANTS = UUID("3f9d5c16-7b2e-5a48-9c01-d7e4b8a6f253")


class Reset(StrEnum):
    """When numbers begin anew at 1."""

    NEVER = "never"
    DAILY = "daily"


class Profile(Struct, frozen=True, kw_only=True, gc=False):
    """What is decided about a restaurant, as a whole."""

    name: str
    token_prefix: str
    minutes_per_party: float
    reset: Reset
    time_zone: str
    no_show_seconds: float | None
    """How long a guest who was called has to show up; None for as long as it takes."""


class Wait(Struct, frozen=True, gc=False):
    minutes_low: int
    minutes_high: int


class Token(Struct, frozen=True, kw_only=True, gc=False):
    """A place in the line, and the number that stands for it."""

    place: int
    """Counts everybody who ever joined here, and orders the line. It never begins anew."""

    sequence: int
    service_day: date | None
    """The day whose numbers these are; None when they go on for ever."""

    number: str


class Call(Struct, frozen=True, gc=False):
    ticket_id: UUID
    token_number: str
    desk: str | None
    at: datetime


class Restaurant(Struct, frozen=True, kw_only=True, gc=False):
    id: UUID
    version: int
    slug: str
    profile: Profile
    created_at: datetime
    updated_at: datetime
    issued_count: int = 0
    """Places that were given: the last one's."""

    sequence: int = 0
    """The last number that belongs to no day."""

    service_day: date | None = None
    """The last day on which numbers were drawn that belong to one."""

    day_sequence: int = 0
    """The last number of that day."""

    waiting_count: int = 0
    last_calls: tuple[Call, ...] = ()
    """The newest first."""

    class Opened(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "restaurant.opened"
        slug: str
        profile: Profile

    class Changed(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "restaurant.changed"
        profile: Profile

    class GuestJoined(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "restaurant.guest_joined"
        ticket_id: UUID
        place: int
        sequence: int
        service_day: date | None

    class GuestCalled(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "restaurant.guest_called"
        ticket_id: UUID
        place: int
        token_number: str
        desk: str | None

    class GuestLeft(Event, frozen=True, kw_only=True, gc=False):
        """Somebody who waited does so no longer, and was not called."""

        topic: ClassVar[str] = "restaurant.guest_left"
        ticket_id: UUID
        place: int

    class GuestReturned(Event, frozen=True, kw_only=True, gc=False):
        """Somebody waits again, at the place that was theirs."""

        topic: ClassVar[str] = "restaurant.guest_returned"
        ticket_id: UUID
        place: int

    def after(self, event: Event, **changes: Any) -> Self:
        return replace(self, version=self.version + 1, updated_at=event.at, **changes)

    @property
    def last_called(self) -> str | None:
        return self.last_calls[0].token_number if self.last_calls else None


def restaurant_id(slug: str) -> UUID:
    """A slug stands for one restaurant: the log, in which an id begins once, sees to it."""
    return uuid5(_RESTAURANTS, slug)


def open_(*, slug: str, profile: Profile, now: datetime) -> Restaurant.Opened:
    check_time_zone(profile.time_zone)
    return Restaurant.Opened(at=now, slug=slug, profile=profile)


def change(restaurant: Restaurant, *, profile: Profile, now: datetime) -> list[Event]:
    check_time_zone(profile.time_zone)
    if profile == restaurant.profile:
        return []
    return [Restaurant.Changed(at=now, profile=profile)]


def draw(restaurant: Restaurant, *, now: datetime) -> Token:
    """The next token. A day never comes twice, whatever becomes of clocks and time zones."""
    profile, place = restaurant.profile, restaurant.issued_count + 1
    if profile.reset is Reset.NEVER:
        day, sequence = None, restaurant.sequence + 1
    else:
        today = now.astimezone(ZoneInfo(profile.time_zone)).date()
        last_day = restaurant.service_day
        is_same_day = last_day is not None and today <= last_day
        day = last_day if is_same_day else today
        sequence = restaurant.day_sequence + 1 if is_same_day else 1
    # A number that needs more digits has them: it is never cut, and never given again.
    number = f"R{profile.token_prefix}-{sequence:0{DIGITS}d}"
    return Token(place=place, sequence=sequence, service_day=day, number=number)


def wait_at(position: int, minutes_per_party: float) -> Wait:
    """How long somebody at that position waits, as far as one can tell."""
    return Wait(
        minutes_low=floor((position - 1) * minutes_per_party * WAIT_LOW),
        minutes_high=ceil(position * minutes_per_party * WAIT_HIGH),
    )


def evolve(restaurant: Restaurant | None, event: Event) -> Restaurant:
    if isinstance(event, Restaurant.Opened):
        return _opened(event)
    assert restaurant is not None, f"{event} is the first event of a restaurant"
    waiting = restaurant.waiting_count
    match event:
        case Restaurant.Changed():
            return restaurant.after(event, profile=event.profile)
        case Restaurant.GuestJoined():
            return _joined(restaurant, event)
        case Restaurant.GuestCalled():
            call = Call(event.ticket_id, event.token_number, event.desk, event.at)
            calls = (call, *restaurant.last_calls[: LAST_CALLS_MAX - 1])
            return restaurant.after(event, waiting_count=waiting - 1, last_calls=calls)
        case Restaurant.GuestLeft():
            return restaurant.after(event, waiting_count=waiting - 1)
        case Restaurant.GuestReturned():
            return restaurant.after(event, waiting_count=waiting + 1)
    raise AssertionError(f"a restaurant does not know {event}")


def _opened(event: Restaurant.Opened) -> Restaurant:
    return Restaurant(
        id=restaurant_id(event.slug),
        version=1,
        slug=event.slug,
        profile=event.profile,
        created_at=event.at,
        updated_at=event.at,
    )


def _joined(restaurant: Restaurant, event: Restaurant.GuestJoined) -> Restaurant:
    joined = restaurant.after(
        event, issued_count=event.place, waiting_count=restaurant.waiting_count + 1
    )
    if event.service_day is None:
        return replace(joined, sequence=event.sequence)
    return replace(joined, service_day=event.service_day, day_sequence=event.sequence)


RESTAURANT: Decider[Restaurant] = Decider(
    name="restaurant",
    state=Restaurant,
    events=events_of(Restaurant),
    evolve=evolve,
    finished=lambda _restaurant: False,
)
