"""Waitlists, decided purely: numbers, calls and days against a simple model."""

from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from daybook.domain.command import Command, Lock, PickReady
from daybook.domain.errors import GraceNotOverError, Refusal
from daybook.domain.tickets import restaurant as restaurants
from daybook.domain.tickets.commands import (
    CallNext,
    CallTicket,
    CancelTicket,
    ChangeRestaurant,
    JoinLine,
    MarkNoShow,
    OpenRestaurant,
    ReturnTicket,
    SeatTicket,
    TicketResult,
)
from daybook.domain.tickets.restaurant import RESTAURANT, Reset, Restaurant, restaurant_id, wait_at
from daybook.domain.tickets.ticket import TICKET, NoShowVia, Ticket, TicketStatus
from daybook.eventlog.codec import EventMapper
from daybook.eventlog.writing.unit_of_work import BatchUnitOfWork
from tests.support.tickets import PROFILE, SLUG, guest

MAPPER = EventMapper([RESTAURANT, TICKET])
NOON = datetime(2026, 3, 28, 12, tzinfo=UTC)
WAITLIST = restaurant_id(SLUG)


def restaurant(**changes: Any) -> Restaurant:
    opened = restaurants.open_(slug=SLUG, profile=replace(PROFILE, **changes), now=NOON)
    return restaurants.evolve(None, opened)


class MemoryStore:
    """In-memory states, with a unit of work for each command."""

    def __init__(self) -> None:
        self.now = NOON
        self.states: dict[UUID, Any] = {}
        self.events: list[tuple[UUID, Any]] = []

    def do(self, command: Command[Any]) -> Any:
        waiting = sorted(
            (one for one in self.states.values() if isinstance(one, Ticket) and one.is_waiting),
            key=lambda one: one.token.place,
        )
        named = [one for need in command.needs if isinstance(need, Lock) for one in need.ids]
        limit = sum(need.limit for need in command.needs if isinstance(need, PickReady))
        unit_of_work = BatchUnitOfWork(
            now=self.now,
            encode=MAPPER.encode_checked,
            locked=[self.states[one] for one in named if one in self.states],
            absent=[one for one in named if one not in self.states],
            ready={(TICKET.name, WAITLIST): waiting[:limit]},
            numbers={},
        )
        answer = command.decide(unit_of_work)
        for entry in chain.from_iterable(unit_of_work.changes.values()):
            assert entry.state is not None
            self.states[entry.state.id] = entry.state
        self.events += [(one.originator_id, one.event) for one in unit_of_work.accept()]
        return answer


class WaitlistMachine(RuleBasedStateMachine):
    """Random commands, against a waitlist that is a list of numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.room = MemoryStore()
        self.room.do(OpenRestaurant(slug=SLUG, profile=PROFILE))
        self.waitlist: list[int] = []
        self.tickets: dict[int, UUID] = {}
        self.status: dict[int, TicketStatus] = {}

    @rule()
    def join(self) -> None:
        ticket_id = UUID(int=len(self.tickets) + 1)
        join = JoinLine(slug=SLUG, ticket_id=ticket_id, guest=guest(), party_size=2)
        ticket = self.room.do(join).ticket
        number = len(self.tickets) + 1
        assert ticket.token.number == f"RDEMO123-{number:06d}"
        self.waitlist.append(number)
        assert ticket.position_at_join == len(self.waitlist)
        self.tickets[number], self.status[number] = ticket_id, TicketStatus.WAITING

    @rule()
    def call_next(self) -> None:
        called: TicketResult | None = self.room.do(CallNext(slug=SLUG))
        if not self.waitlist:
            assert called is None
            return
        first = min(self.waitlist)
        assert called is not None
        assert called.ticket.id == self.tickets[first]
        self._moved(first, TicketStatus.CALLED)

    @precondition(lambda self: self.tickets)
    @rule(data=st.data(), kind=st.sampled_from([CallTicket, CancelTicket, SeatTicket, MarkNoShow]))
    def act(self, data: st.DataObject, kind: type[Any]) -> None:
        number = data.draw(st.sampled_from(sorted(self.tickets)))
        try:
            served = self.room.do(kind(slug=SLUG, ticket_id=self.tickets[number]))
        except Refusal:
            return
        self._moved(number, served.ticket.status)

    @precondition(lambda self: self.tickets)
    @rule(data=st.data())
    def bring_back(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.tickets)))
        may = self.status[number] in (TicketStatus.CALLED, TicketStatus.NO_SHOW)
        command = ReturnTicket(slug=SLUG, ticket_id=self.tickets[number])
        if not may:
            with pytest.raises(Refusal):
                self.room.do(command)
            return
        self.room.do(command)
        self.waitlist.append(number)
        self.status[number] = TicketStatus.WAITING

    def _moved(self, number: int, status: TicketStatus) -> None:
        if number in self.waitlist:
            self.waitlist.remove(number)
        self.status[number] = status

    @invariant()
    def as_many_wait_as_the_restaurant_says(self) -> None:
        assert self.room.states[WAITLIST].waiting_count == len(self.waitlist)

    @invariant()
    def every_ticket_stands_as_it_should(self) -> None:
        for number, ticket_id in self.tickets.items():
            assert self.room.states[ticket_id].status is self.status[number]

    @invariant()
    def replaying_the_log_gives_the_same(self) -> None:
        for aggregate_id, state in self.room.states.items():
            decider: Any = RESTAURANT if aggregate_id == WAITLIST else TICKET
            own = [event for whose, event in self.room.events if whose == aggregate_id]
            assert decider.fold(own) == state


TestLine = WaitlistMachine.TestCase
TestLine.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


# D-32
def test_a_number_that_needs_more_digits_has_them() -> None:
    full = replace(restaurant(), sequence=999_999, issued_count=999_999)

    assert restaurants.draw(full, now=NOON).number == "RDEMO123-1000000"


# D-32
def test_numbers_restart_with_the_restaurant_s_day_and_positions_do_not() -> None:
    room = MemoryStore()
    room.do(OpenRestaurant(slug=SLUG, profile=replace(PROFILE, reset=Reset.DAILY)))
    found: list[tuple[int, int, str]] = []
    # In Berlin the 29th begins at 23:00 UTC, and clocks change that night.
    for hours in (0, 10.9, 11.1, 13, 34.9):
        room.now = NOON + timedelta(hours=hours)
        join = JoinLine(slug=SLUG, ticket_id=UUID(int=len(found) + 1), guest=guest(), party_size=1)
        token = room.do(join).ticket.token
        found.append((token.place, token.sequence, token.service_day.isoformat()[-2:]))

    assert found == [(1, 1, "28"), (2, 2, "28"), (3, 1, "29"), (4, 2, "29"), (5, 1, "30")]


def test_a_day_is_never_repeated() -> None:
    """No token repeats, for any change of the clock, the time zone or the policy."""
    room = MemoryStore()
    room.do(OpenRestaurant(slug=SLUG, profile=replace(PROFILE, reset=Reset.DAILY)))
    tokens = []
    steps: list[tuple[float, dict[str, Any]]] = [
        (0, {}),
        (0, {"time_zone": "Pacific/Kiritimati"}),
        (0, {"time_zone": "Pacific/Pago_Pago"}),
        (-48, {}),
        (0, {"reset": Reset.NEVER}),
        (1, {"reset": Reset.DAILY}),
        (1, {"reset": Reset.NEVER}),
    ]
    for n, (hours, changes) in enumerate(steps):
        room.now = NOON + timedelta(hours=hours)
        room.do(ChangeRestaurant(slug=SLUG, **changes))
        join = JoinLine(slug=SLUG, ticket_id=UUID(int=n + 1), guest=guest(), party_size=1)
        token = room.do(join).ticket.token
        tokens.append((token.service_day, token.sequence))

    assert len(set(tokens)) == len(tokens)
    assert [number for day, number in tokens if day is None] == [1, 2]


def test_a_wait_is_a_range_that_grows_with_the_waitlist() -> None:
    first, tenth = wait_at(1, 10), wait_at(10, 10)

    assert (first.minutes_low, first.minutes_high) == (0, 13)
    assert (tenth.minutes_low, tenth.minutes_high) == (67, 125)


def test_the_clock_marks_no_no_show_before_the_grace_period_is_over() -> None:
    room = MemoryStore()
    room.do(OpenRestaurant(slug=SLUG, profile=PROFILE))
    room.do(JoinLine(slug=SLUG, ticket_id=UUID(int=1), guest=guest(), party_size=1))
    room.do(CallNext(slug=SLUG))
    miss = MarkNoShow(slug=SLUG, ticket_id=UUID(int=1), via=NoShowVia.GRACE)
    room.now = NOON + timedelta(seconds=299)

    with pytest.raises(GraceNotOverError):
        room.do(miss)
    room.now = NOON + timedelta(seconds=300)
    assert room.do(miss).ticket.status is TicketStatus.NO_SHOW
