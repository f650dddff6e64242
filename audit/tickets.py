"""Walk-in tickets: numbers without gaps, one order, exact positions, limits, and nobody's name."""

import re
from base64 import b64decode
from collections import deque
from datetime import date, datetime, timedelta
from heapq import heapify, heappop, heappush
from uuid import UUID

from daybook.audit.invariant import COMMIT_SECONDS_MAX, Case, Invariant
from daybook.audit.replayed_state import ReplayedEvent
from daybook.domain.event import Event
from daybook.domain.tickets.data_subject import Subject
from daybook.domain.tickets.restaurant import RESTAURANT, Restaurant
from daybook.domain.tickets.ticket import TICKET, Ticket, TicketStatus

HOUR = timedelta(hours=1)
DRAWN = (Ticket.Created, Ticket.Transferred)

# How names and numbers are sealed: a version, a nonce, and at least the tag of a ciphertext.
SEALED_VERSION, SEALED_BYTES_MIN = 1, 1 + 12 + 16
PSEUDONYM = re.compile(r"[\w-]{32}=*", re.ASCII)
MOBILE_NUMBER = re.compile(rb"\+[1-9][0-9]{7,14}")


class Tokens(Invariant):
    id = "I-29"
    statement = "Token numbers of a restaurant, or of its day, are 1 to n: unique and gap-free."
    kinds = DRAWN

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._places: dict[UUID, int] = {}
        self._numbers: dict[tuple[UUID, date | None], int] = {}

    def see(self, step: ReplayedEvent) -> str | None:
        line, event = step.after.restaurant_id, step.event
        restaurant = self.case.world.get(line)
        if not isinstance(restaurant, Restaurant):
            return f"there is no restaurant {line}"
        place = self._places.get(line, 0) + 1
        number = self._numbers.get((line, event.service_day), 0) + 1
        self._places[line] = event.place
        self._numbers[line, event.service_day] = event.sequence
        if (event.place, event.sequence) != (place, number):
            return f"number {event.sequence} at place {event.place}, not {number} at {place}"
        if restaurant.issued_count != place:
            return f"the restaurant says that {restaurant.issued_count} places were given"
        if not event.token_number.endswith(f"-{number:06d}"):
            return f"token {event.token_number} does not show number {number}"
        return None


# What may happen to a ticket, by its status.
TICKET_MAY: dict[TicketStatus, tuple[type[Event], ...]] = {
    TicketStatus.WAITING: (Ticket.Called, Ticket.Cancelled, Ticket.Transferred),
    TicketStatus.CALLED: (
        *(Ticket.Recalled, Ticket.Seated, Ticket.NoShow, Ticket.Returned),
        *(Ticket.Cancelled, Ticket.Transferred),
    ),
    TicketStatus.NO_SHOW: (Ticket.Returned,),
}


class Turns(Invariant):
    """Who was chosen out of turn is no fault: the event says so."""

    id = "I-30"
    statement = "A ticket is called once a round, and whoever is called next is first in the line."
    kinds = TICKET.events

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._lines: dict[UUID, list[int]] = {}
        self._waiting: dict[UUID, set[int]] = {}

    def see(self, step: ReplayedEvent) -> str | None:
        event, before, after = step.event, step.before, step.after
        if before is not None and not isinstance(event, TICKET_MAY.get(before.status, ())):
            return f"this cannot happen to a ticket that is {before.status}"
        if isinstance(event, Ticket.Called):
            if event.round != before.calls_count + 1:
                return f"called for round {event.round} after round {before.calls_count}"
            first = self._first(before.restaurant_id)
            if not event.out_of_turn and first != before.token.place:
                return f"called from place {before.token.place}, and {first} is first"
        if before is not None and before.is_waiting:
            self._waiting[before.restaurant_id].discard(before.token.place)
        if after.is_waiting:
            self._waiting.setdefault(after.restaurant_id, set()).add(after.token.place)
            heappush(self._lines.setdefault(after.restaurant_id, []), after.token.place)
        return None

    def _first(self, line: UUID) -> int | None:
        """Who waits no more is still in the heap, until he comes to its head or is in the
        majority."""
        places, waiting = self._lines.get(line, []), self._waiting.get(line, set())
        if len(places) > 2 * len(waiting) + 1000:
            places[:] = waiting
            heapify(places)
        while places and places[0] not in waiting:
            heappop(places)
        return places[0] if places else None


class WaitlistPositions(Invariant):
    id = "I-32"
    statement = "Whoever joins a line is told how many wait there, counting oneself."
    kinds = (*TICKET.events, *RESTAURANT.events)
    is_picky = True

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._waiting: dict[UUID, int] = {}
        self._told: dict[UUID, ReplayedEvent] = {}
        """The last that each restaurant was told."""

    def see(self, step: ReplayedEvent) -> str | None:
        before, after = step.before, step.after
        if isinstance(after, Restaurant):
            self._told[after.id] = step
            return None
        self.seen = True
        if before is not None and before.is_waiting:
            self._waiting[before.restaurant_id] -= 1
        if not after.is_waiting:
            return self._agrees(before.restaurant_id)
        line = after.restaurant_id
        self._waiting[line] = position = self._waiting.get(line, 0) + 1
        told = step.event.position_at_join if isinstance(step.event, DRAWN) else position
        if told != position:
            return f"told position {told}, but {position} wait"
        return self._agrees(line)

    def end(self) -> None:
        for line, told in self._told.items():
            reason = self._agrees(line)
            if reason is not None and not self.may_go_on(told):
                self.accuse_step(told, reason)

    def _agrees(self, line: UUID) -> str | None:
        """The restaurant was told before, in the same command."""
        restaurant, waiting = self.case.world.get(line), self._waiting.get(line, 0)
        if isinstance(restaurant, Restaurant) and restaurant.waiting_count != waiting:
            return f"{waiting} wait, and the restaurant says {restaurant.waiting_count}"
        return None


class TicketLimits(Invariant):
    """Whoever is let in may be recorded up to five seconds later. Addresses are not in the log."""

    id = "I-31"
    statement = "No mobile number draws more tickets in an hour than the limit in force allows."
    kinds = (Ticket.Created,)
    is_picky = True

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._drawn: dict[tuple[UUID, str], deque[datetime]] = {}

    def see(self, step: ReplayedEvent) -> str | None:
        event = step.event
        if event.hourly_max is None:
            return None
        self.seen = True
        drawn = self._drawn.setdefault((event.restaurant_id, event.pseudonym), deque())
        drawn.append(event.at)
        while drawn[0] <= event.at - HOUR + COMMIT_SECONDS_MAX:
            drawn.popleft()
        if len(drawn) <= event.hourly_max:
            return None
        return f"ticket {len(drawn)} within the hour, and {event.hourly_max} are allowed"


class Privacy(Invariant):
    id = "I-42"
    statement = "What guests say about themselves is in the log as ciphertext only."
    kinds = TICKET.events

    def see(self, step: ReplayedEvent) -> str | None:
        if MOBILE_NUMBER.search(bytes(step.entry.data)):
            return "it holds a mobile number"
        if not isinstance(step.event, Ticket.Created):
            return None
        if not _is_sealed(step.event.sealed):
            return "what it holds of the guest is not sealed"
        if not PSEUDONYM.fullmatch(step.event.pseudonym):
            return "its pseudonym is none"
        return None


def _is_sealed(text: str) -> bool:
    try:
        sealed = b64decode(text, validate=True)
    except ValueError:
        return False
    return len(sealed) >= SEALED_BYTES_MIN and sealed[0] == SEALED_VERSION


class ErasureIsComplete(Invariant):
    """That the old events can still be read and folded, I-04 and I-33 say of every event."""

    id = "I-43"
    statement = "Of whoever was erased there is no key, and nothing new."
    kinds = (Subject.Erased, Ticket.Created)
    is_picky = True

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._erased: set[UUID] = set()

    def see(self, step: ReplayedEvent) -> str | None:
        subject_id = step.event.subject_id
        if isinstance(step.event, Subject.Erased):
            self.seen = True
            if subject_id != step.entry.aggregate:
                return f"it erases subject {subject_id}, which is another"
            if step.before is not None:
                return "it was erased before"
            self._erased.add(subject_id)
        elif subject_id in self._erased:
            return f"subject {subject_id} was erased before"
        return None

    def end(self) -> None:
        if self.case.service is None:
            return
        for subject_id in self.case.service.keyed_subjects():
            if subject_id in self._erased:
                self.accuse(f"subject {subject_id} was erased, and its key is still there")


INVARIANTS = (Tokens, Turns, TicketLimits, WaitlistPositions, Privacy, ErasureIsComplete)
