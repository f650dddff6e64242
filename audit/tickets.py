"""Invariants on tickets: numbers without gaps, calls in order, exact positions, limits, no personal
data."""

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

# Format of encrypted guest data: a version, a nonce, and at least the tag of a ciphertext.
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

    def check(self, step: ReplayedEvent) -> str | None:
        restaurant_id, event = step.after.restaurant_id, step.event
        restaurant = self.case.replay.get(restaurant_id)
        if not isinstance(restaurant, Restaurant):
            return f"there is no restaurant {restaurant_id}"
        place = self._places.get(restaurant_id, 0) + 1
        number = self._numbers.get((restaurant_id, event.service_day), 0) + 1
        self._places[restaurant_id] = event.place
        self._numbers[restaurant_id, event.service_day] = event.sequence
        if (event.place, event.sequence) != (place, number):
            return f"number {event.sequence} at position {event.place}, not {number} at {place}"
        if restaurant.issued_count != place:
            return f"the restaurant has issued {restaurant.issued_count} positions"
        if not event.token_number.endswith(f"-{number:06d}"):
            return f"token {event.token_number} does not show number {number}"
        return None


# Events allowed by status.
TICKET_MAY: dict[TicketStatus, tuple[type[Event], ...]] = {
    TicketStatus.WAITING: (Ticket.Called, Ticket.Cancelled, Ticket.Transferred),
    TicketStatus.CALLED: (
        *(Ticket.Recalled, Ticket.Seated, Ticket.NoShow, Ticket.Returned),
        *(Ticket.Cancelled, Ticket.Transferred),
    ),
    TicketStatus.NO_SHOW: (Ticket.Returned,),
}


class Turns(Invariant):
    """A call out of turn is allowed: the event says so."""

    id = "I-30"
    statement = (
        "A ticket is called once a round, and the next call goes to the first waiting guest."
    )
    kinds = TICKET.events

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._places: dict[UUID, list[int]] = {}
        self._waiting: dict[UUID, set[int]] = {}

    def check(self, step: ReplayedEvent) -> str | None:
        event, before, after = step.event, step.before, step.after
        if before is not None and not isinstance(event, TICKET_MAY.get(before.status, ())):
            return f"the event cannot happen to a ticket that is {before.status}"
        if isinstance(event, Ticket.Called):
            if event.round != before.calls_count + 1:
                return f"called for round {event.round} after round {before.calls_count}"
            first = self._first(before.restaurant_id)
            if not event.out_of_turn and first != before.token.place:
                return f"called from position {before.token.place}, but {first} is first"
        if before is not None and before.is_waiting:
            self._waiting[before.restaurant_id].discard(before.token.place)
        if after.is_waiting:
            self._waiting.setdefault(after.restaurant_id, set()).add(after.token.place)
            heappush(self._places.setdefault(after.restaurant_id, []), after.token.place)
        return None

    def _first(self, restaurant_id: UUID) -> int | None:
        """The first waiting position. Drops those that wait no longer, once they reach the head or
        outnumber the rest."""
        places = self._places.get(restaurant_id, [])
        waiting = self._waiting.get(restaurant_id, set())
        if len(places) > 2 * len(waiting) + 1000:
            places[:] = waiting
            heapify(places)
        while places and places[0] not in waiting:
            heappop(places)
        return places[0] if places else None


class WaitlistPositions(Invariant):
    id = "I-32"
    statement = "A guest who joins is given a position equal to the number of waiting guests."
    kinds = (*TICKET.events, *RESTAURANT.events)
    sets_seen = True

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._waiting: dict[UUID, int] = {}
        self._last: dict[UUID, ReplayedEvent] = {}

    def check(self, step: ReplayedEvent) -> str | None:
        before, after = step.before, step.after
        if isinstance(after, Restaurant):
            self._last[after.id] = step
            return None
        self.seen = True
        if before is not None and before.is_waiting:
            self._waiting[before.restaurant_id] -= 1
        if not after.is_waiting:
            return self._disagreement(before.restaurant_id)
        restaurant_id = after.restaurant_id
        self._waiting[restaurant_id] = position = self._waiting.get(restaurant_id, 0) + 1
        given = step.event.position_at_join if isinstance(step.event, DRAWN) else position
        if given != position:
            return f"given position {given}, but {position} wait"
        return self._disagreement(restaurant_id)

    def end(self) -> None:
        for restaurant_id, last in self._last.items():
            reason = self._disagreement(restaurant_id)
            if reason is not None and not self.may_continue(last):
                self.report_at(last, reason)

    def _disagreement(self, restaurant_id: UUID) -> str | None:
        """The restaurant's event precedes the ticket's in the same command."""
        restaurant, waiting = (
            self.case.replay.get(restaurant_id),
            self._waiting.get(restaurant_id, 0),
        )
        if isinstance(restaurant, Restaurant) and restaurant.waiting_count != waiting:
            return f"{waiting} wait, but the restaurant counts {restaurant.waiting_count}"
        return None


class TicketLimits(Invariant):
    """An admitted guest may be recorded up to five seconds later. Limits by address are not in the
    log."""

    id = "I-31"
    statement = "No mobile number draws more tickets in an hour than the limit in force allows."
    kinds = (Ticket.Created,)
    sets_seen = True

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._drawn: dict[tuple[UUID, str], deque[datetime]] = {}

    def check(self, step: ReplayedEvent) -> str | None:
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
        return f"ticket {len(drawn)} within the hour, but {event.hourly_max} are allowed"


class Privacy(Invariant):
    id = "I-42"
    statement = "Personal data of guests is in the log as ciphertext only."
    kinds = TICKET.events

    def check(self, step: ReplayedEvent) -> str | None:
        if MOBILE_NUMBER.search(bytes(step.entry.data)):
            return "it holds a mobile number"
        if not isinstance(step.event, Ticket.Created):
            return None
        if not _is_sealed(step.event.sealed):
            return "its guest data is not encrypted"
        if not PSEUDONYM.fullmatch(step.event.pseudonym):
            return "its pseudonym has the wrong format"
        return None


def _is_sealed(text: str) -> bool:
    try:
        sealed = b64decode(text, validate=True)
    except ValueError:
        return False
    return len(sealed) >= SEALED_BYTES_MIN and sealed[0] == SEALED_VERSION


class ErasureIsComplete(Invariant):
    """Checks of old events are left to I-04 and I-33."""

    id = "I-43"
    statement = "An erased guest has no key and no new events."
    kinds = (Subject.Erased, Ticket.Created)
    sets_seen = True

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._erased: set[UUID] = set()

    def check(self, step: ReplayedEvent) -> str | None:
        subject_id = step.event.subject_id
        if isinstance(step.event, Subject.Erased):
            self.seen = True
            if subject_id != step.entry.aggregate:
                return f"it erases subject {subject_id} in another's stream"
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
                self.report(f"subject {subject_id} was erased, but its key still exists")


INVARIANTS = (Tokens, Turns, TicketLimits, WaitlistPositions, Privacy, ErasureIsComplete)
