"""A called guest is a no-show when the grace period is over, not before."""

import asyncio

import pytest

from daybook.api.runtime.service import Service
from daybook.domain.tickets.commands import RecallTicket, ReturnTicket, SeatTicket
from daybook.processors.ticket_no_shows import NoShows
from tests.support.committer import eventually, fold_of_the_log, live_rows, rows
from tests.support.tickets import SLUG, Counter

pytestmark = pytest.mark.anyio


def service(database: str) -> Service:
    return Service(database, read_models=(), processors=(NoShows(),))


def no_shows(database: str) -> list[str]:
    query = "SELECT data ->> 'via' FROM log WHERE topic = 'ticket.no_show' ORDER BY position"
    return [row[0] for row in rows(database, query)]


async def test_a_guest_who_does_not_come_within_the_grace_is_a_no_show(database: str) -> None:
    async with service(database) as running:
        counter = Counter(running.committer)
        await counter.open(no_show_seconds=0.5)
        await counter.join()
        called = await counter.call_next()
        assert called is not None
        await asyncio.sleep(0.3)
        assert no_shows(database) == []
        await eventually(lambda: no_shows(database) == ["grace"], 5)
        # It has not cost the place.
        await counter.do(ReturnTicket(slug=SLUG, ticket_id=called.id))
        again = await counter.call_next()
        assert again is not None
        await eventually(lambda: no_shows(database) == ["grace"] * 2, 5)
    assert live_rows(database) == fold_of_the_log(database)


async def test_a_recall_begins_the_grace_anew_and_a_table_ends_it(database: str) -> None:
    async with service(database) as running:
        counter = Counter(running.committer)
        await counter.open(no_show_seconds=1)
        await counter.join()
        called = await counter.call_next()
        assert called is not None
        for _ in range(4):
            await asyncio.sleep(0.5)
            await counter.do(RecallTicket(slug=SLUG, ticket_id=called.id))
        assert no_shows(database) == []
        await counter.do(SeatTicket(slug=SLUG, ticket_id=called.id))
        await asyncio.sleep(1.5)
        assert no_shows(database) == []


async def test_two_services_end_a_turn_once(database: str) -> None:
    async with service(database) as one, service(database):
        counter = Counter(one.committer)
        await counter.open(no_show_seconds=0.2)
        for _ in range(30):
            await counter.join()
            await counter.call_next()
        await eventually(lambda: len(no_shows(database)) == 30, 8)
        await asyncio.sleep(1.2)
        assert len(no_shows(database)) == 30


async def test_without_a_grace_a_guest_may_take_all_evening(database: str) -> None:
    async with service(database) as running:
        counter = Counter(running.committer)
        await counter.open(no_show_seconds=None)
        await counter.join()
        called = await counter.call_next()
        assert called is not None
        assert called.due_at is None
        await asyncio.sleep(1.5)
        assert no_shows(database) == []
