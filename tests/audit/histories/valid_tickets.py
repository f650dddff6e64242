"""The waitlist part of the valid history."""

import asyncio
from base64 import b64encode
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid5

from uuid_utils.compat import uuid7

from daybook.domain.tickets.commands import (
    CallNext,
    CallTicket,
    CancelTicket,
    ChangeRestaurant,
    JoinLine,
    MarkNoShow,
    OpenRestaurant,
    RecallTicket,
    ReturnTicket,
    SeatTicket,
    TransferTicket,
)
from daybook.domain.tickets.data_subject import EraseSubject
from daybook.domain.tickets.restaurant import Profile, Reset, restaurant_id
from daybook.domain.tickets.ticket import Guest, NoShowVia, Ticket

if TYPE_CHECKING:
    from tests.audit.histories.valid import Author

NO_SHOWS = "system:no_shows"
SUBJECTS = UUID("00000000-0000-5000-8000-00000000000a")
SEALED = b64encode(b"\x01" + bytes(40)).decode()
SLUG, OTHER = "trattoria", "osteria"
# Shorter than a few commands take, so that a call is soon overdue.
GRACE_SECONDS = 0.02


def pseudonym(mobile: int) -> str:
    return b64encode(sha256(b"%d" % mobile).digest()[:24], b"-_").decode()


def guest(mobile: int) -> Guest:
    subject_id = uuid5(SUBJECTS, str(mobile))
    return Guest(subject_id=subject_id, sealed=SEALED, pseudonym=pseudonym(mobile))


class Guests:
    def __init__(self, author: "Author") -> None:
        self._author = author
        self._mobile = 0

    async def come(self) -> None:
        for slug, reset in ((SLUG, Reset.NEVER), (OTHER, Reset.DAILY)):
            profile = Profile(
                name=slug.title(),
                token_prefix="T",
                minutes_per_party=5,
                reset=reset,
                time_zone="Europe/Berlin",
                no_show_seconds=GRACE_SECONDS,
            )
            await self._author.do(OpenRestaurant(slug=slug, profile=profile))
        await self._author.do(ChangeRestaurant(slug=SLUG, minutes_per_party=7))
        for _ in range(3):
            await self._evening()
        await self._stay_behind()

    async def join(self, slug: str = SLUG, mobile: int | None = None) -> Ticket:
        self._mobile += 1
        command = JoinLine(
            slug=slug,
            ticket_id=uuid7(),
            guest=guest(mobile or self._mobile),
            party_size=2,
            hourly_max=3,
        )
        ticket: Ticket = (await self._author.do(command)).ticket
        return ticket

    async def act(self, kind: type[Any], ticket: Ticket, **says: Any) -> None:
        await self._author.do(kind(slug=SLUG, ticket_id=ticket.id, **says))

    async def call_next(self, slug: str = SLUG) -> Ticket:
        ticket: Ticket = (await self._author.do(CallNext(slug=slug, desk="A"))).ticket
        return ticket

    async def _evening(self) -> None:
        """Every way through the waitlist."""
        tickets = [await self.join() for _ in range(8)]
        await self.act(RecallTicket, await self.call_next())
        await self.act(SeatTicket, tickets[0])
        await self.act(MarkNoShow, await self.call_next())
        await self.act(ReturnTicket, tickets[1])
        late = await self.call_next()
        await asyncio.sleep(2 * GRACE_SECONDS)
        missed = MarkNoShow(slug=SLUG, ticket_id=late.id, via=NoShowVia.GRACE)
        await self._author.do(missed, NO_SHOWS)
        await self.act(CallTicket, tickets[4])
        await self.act(CancelTicket, tickets[4], reason="hungry")
        await self.act(CancelTicket, tickets[5])
        await self.act(TransferTicket, tickets[6], to_slug=OTHER)
        await self.act(TransferTicket, await self.call_next(), to_slug=OTHER)
        for ticket in (tickets[3], tickets[7]):
            assert (await self.call_next()).id == ticket.id
            await self.act(SeatTicket, ticket)
        await self.join(OTHER)
        await self.call_next(OTHER)

    async def _stay_behind(self) -> None:
        cast = self._author.cast
        cast["restaurant"] = restaurant_id(SLUG)
        cast["seated ticket"] = (await self.join()).id
        await self.act(SeatTicket, await self.call_next())
        cast["called ticket"] = (await self.join()).id
        await self.call_next()
        cast["cancelled ticket"] = (cancelled := await self.join()).id
        await self.act(CancelTicket, cancelled)
        cast["waiting ticket"] = (await self.join()).id
        cast["later ticket"] = (await self.join()).id
        for _ in range(3):
            greedy = await self.join(mobile=999)
        cast["greedy ticket"] = greedy.id
        erased = guest(1).subject_id
        cast["erased subject"] = erased
        await self._author.do(EraseSubject(subject_id=erased, reason="asked for", has_key=True))
