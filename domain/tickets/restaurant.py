"""A restaurant: its settings and its waitlist.

The waitlist is the restaurant's stream: joining draws the next number, and calls and departures are
recorded by the command that changes the ticket. So numbers are unique and without gaps, and the
number of waiting guests needs no count.
"""

from datetime import date, datetime
from enum import StrEnum
from math import ceil, floor
from typing import ClassVar
from uuid import UUID, uuid5
from zoneinfo import ZoneInfo

from msgspec import Struct
from msgspec.structs import replace

from daybook.domain.event import Decider, Event, State, events_of
from daybook.domain.schedules.cron import check_time_zone

# Calls shown on the board.
LAST_CALLS_MAX = 5
DIGITS = 6
# Parties take more or less time than the average: a wait is estimated as a range.
WAIT_LOW, WAIT_HIGH = 0.75, 1.25

_RESTAURANTS = UUID("3f9d5c16-7b2e-5a48-9c01-d7e4b8a6f253")


class Reset(StrEnum):
    """When token numbers restart at 1."""

    NEVER = "never"
    DAILY = "daily"


class Profile(Struct, frozen=True, kw_only=True, gc=False):
    name: str
    token_prefix: str
    minutes_per_party: float
    reset: Reset
    time_zone: str
    no_show_seconds: float | None  # Grace period after a call; None for unlimited


class Wait(Struct, frozen=True, gc=False):
    minutes_low: int
    minutes_high: int


class Token(Struct, frozen=True, kw_only=True, gc=False):
    """A position on the waitlist and its number."""

    place: int  # Counts every guest who ever joined and orders the waitlist. Never reset.
    sequence: int
    service_day: date | None  # The day of the number; None without a daily reset
    number: str


class Call(Struct, frozen=True, gc=False):
    ticket_id: UUID
    token_number: str
    desk: str | None
    at: datetime


class Restaurant(State, frozen=True, kw_only=True, gc=False):
    slug: str
    profile: Profile
    created_at: datetime
    updated_at: datetime
    issued_count: int = 0  # The last position given
    sequence: int = 0  # The last number without a day
    service_day: date | None = None  # The last day with numbers of its own
    day_sequence: int = 0  # The last number of that day
    waiting_count: int = 0
    last_calls: tuple[Call, ...] = ()  # Newest first

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
        """A waiting guest left without being called."""

        topic: ClassVar[str] = "restaurant.guest_left"
        ticket_id: UUID
        place: int

    class GuestReturned(Event, frozen=True, kw_only=True, gc=False):
        """A guest waits again, at the former position."""

        topic: ClassVar[str] = "restaurant.guest_returned"
        ticket_id: UUID
        place: int

    @property
    def last_called(self) -> str | None:
        return self.last_calls[0].token_number if self.last_calls else None


def restaurant_id(slug: str) -> UUID:
    """Derives the id from the slug. The log accepts one first event for an id, so slugs are
    unique."""
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
    """The next token. A day is never repeated, whatever clocks and time zones do."""
    profile, place = restaurant.profile, restaurant.issued_count + 1
    if profile.reset is Reset.NEVER:
        day, sequence = None, restaurant.sequence + 1
    else:
        today = now.astimezone(ZoneInfo(profile.time_zone)).date()
        last_day = restaurant.service_day
        is_same_day = last_day is not None and today <= last_day
        day = last_day if is_same_day else today
        sequence = restaurant.day_sequence + 1 if is_same_day else 1
    # A longer number gets more digits; it is never truncated.
    number = f"R{profile.token_prefix}-{sequence:0{DIGITS}d}"
    return Token(place=place, sequence=sequence, service_day=day, number=number)


def wait_at(position: int, minutes_per_party: float) -> Wait:
    return Wait(
        minutes_low=floor((position - 1) * minutes_per_party * WAIT_LOW),
        minutes_high=ceil(position * minutes_per_party * WAIT_HIGH),
    )


def evolve(restaurant: Restaurant | None, event: Event) -> Restaurant:
    if isinstance(event, Restaurant.Opened):
        return _apply_opened(event)
    assert restaurant is not None, f"{event} is the first event of a restaurant"
    waiting = restaurant.waiting_count
    match event:
        case Restaurant.Changed():
            return restaurant.after(event, profile=event.profile)
        case Restaurant.GuestJoined():
            return _apply_joined(restaurant, event)
        case Restaurant.GuestCalled():
            call = Call(event.ticket_id, event.token_number, event.desk, event.at)
            calls = (call, *restaurant.last_calls[: LAST_CALLS_MAX - 1])
            return restaurant.after(event, waiting_count=waiting - 1, last_calls=calls)
        case Restaurant.GuestLeft():
            return restaurant.after(event, waiting_count=waiting - 1)
        case Restaurant.GuestReturned():
            return restaurant.after(event, waiting_count=waiting + 1)
    raise AssertionError(f"unknown restaurant event {event}")


def _apply_opened(event: Restaurant.Opened) -> Restaurant:
    return Restaurant(
        id=restaurant_id(event.slug),
        version=1,
        slug=event.slug,
        profile=event.profile,
        created_at=event.at,
        updated_at=event.at,
    )


def _apply_joined(restaurant: Restaurant, event: Restaurant.GuestJoined) -> Restaurant:
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
