"""A counter for tests: a restaurant on a real database, and short ways to send it guests."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid5

from uuid_utils.compat import uuid7

from daybook.domain.command import Command
from daybook.domain.tickets.commands import (
    CallNext,
    JoinLine,
    OpenedRestaurant,
    OpenRestaurant,
    TicketResult,
)
from daybook.domain.tickets.restaurant import Profile, Reset, Restaurant, restaurant_id
from daybook.domain.tickets.ticket import Guest, Ticket
from daybook.eventlog.reading.follower import Follower
from daybook.eventlog.writing.committer import Committer
from daybook.projections.registry import LIVE_TABLES
from daybook.projections.tickets.finished_tickets import FinishedTickets
from tests.support.committer import MAPPER, origin, rows

SLUG = "trattoria"
PROFILE = Profile(
    name="Trattoria",
    token_prefix="DEMO123",
    minutes_per_party=10,
    reset=Reset.NEVER,
    time_zone="Europe/Berlin",
    no_show_seconds=300,
)
_SUBJECTS = UUID("00000000-0000-5000-8000-000000000000")


def guest(mobile: str = "+491701234567") -> Guest:
    return Guest(subject_id=uuid5(_SUBJECTS, mobile), sealed="AQID", pseudonym=f"p:{mobile}")


class Counter:
    def __init__(self, committer: Committer, slug: str = SLUG) -> None:
        self.committer = committer
        self.slug = slug

    async def do(self, command: Command[Any]) -> Any:
        answer = (await self.committer.submit(command, origin())).result
        return answer.ticket if isinstance(answer, TicketResult) else answer

    async def open(self, **changes: Any) -> Restaurant:
        profile = Profile(**{**_fields(PROFILE), **changes})
        opened: OpenedRestaurant = await self.do(OpenRestaurant(slug=self.slug, profile=profile))
        return opened.restaurant

    async def join(self, mobile: str = "+491701234567", ticket_id: UUID | None = None) -> Ticket:
        join = JoinLine(
            slug=self.slug, ticket_id=ticket_id or uuid7(), guest=guest(mobile), party_size=2
        )
        ticket: Ticket = await self.do(join)
        return ticket

    async def call_next(self, **says: Any) -> Ticket | None:
        ticket: Ticket | None = await self.do(CallNext(slug=self.slug, **says))
        return ticket


async def fold_finished_tickets(conninfo: str) -> None:
    """Work that a service does by itself a moment later."""
    follower = Follower(conninfo, FinishedTickets(), MAPPER)
    await follower.catch_up()
    await follower.close()


def _fields(profile: Profile) -> dict[str, Any]:
    return {name: getattr(profile, name) for name in profile.__struct_fields__}


@asynccontextmanager
async def open_counter(conninfo: str, slug: str = SLUG, **changes: Any) -> AsyncIterator[Counter]:
    async with Committer(conninfo, tables=LIVE_TABLES, mapper=MAPPER, writers=2) as committer:
        counter = Counter(committer, slug)
        await counter.open(**changes)
        yield counter


COUNT_AGAIN = """
SELECT restaurant_id, level::smallint, place >> (6 * level), count(*)
FROM tickets, generate_series(1, 4) AS level
WHERE status = 'WAITING'
GROUP BY 1, 2, 3
ORDER BY 1, 2, 3
"""
READ_COUNTS = """
SELECT restaurant_id, level, stretch, waiting FROM ticket_counts ORDER BY 1, 2, 3
"""


def counts(conninfo: str) -> tuple[list[Any], list[Any]]:
    """As they are kept, and as the tickets that are there say."""
    return rows(conninfo, READ_COUNTS), rows(conninfo, COUNT_AGAIN)


def line_of(conninfo: str, slug: str = SLUG) -> list[str]:
    query = """
    SELECT token_number FROM tickets
    WHERE restaurant_id = %(id)s AND status = 'WAITING' ORDER BY place
    """
    return [row[0] for row in rows(conninfo, query, {"id": restaurant_id(slug)})]
