"""Waitlists in the database: tokens without gaps, exact positions, calls in order."""

import asyncio

import pytest
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from daybook.domain.tickets.commands import (
    CancelTicket,
    MarkNoShow,
    ReturnTicket,
    SeatTicket,
    TransferTicket,
)
from daybook.domain.tickets.ticket import Ticket, TicketStatus
from daybook.eventlog.postgres.connections import connect, reader_conninfo
from daybook.projections.tickets.ticket_list import one_ticket
from tests.support.committer import fold_of_the_log, live_rows, rows
from tests.support.tickets import SLUG, counts, line_of, open_counter

pytestmark = pytest.mark.anyio


async def position_of(connection: AsyncConnection[TupleRow], ticket: Ticket) -> int | None:
    view = await one_ticket(connection, ticket.id)
    assert view is not None
    return view.position


# S2-03 S2-11 S2-12 S2-13 S2-36
async def test_joins_at_the_same_time_draw_numbers_without_gaps(database: str) -> None:
    async with open_counter(database) as one, open_counter(database) as other:
        joined = await asyncio.gather(
            *(counter.join() for _ in range(200) for counter in (one, other))
        )

    numbers = sorted(ticket.token.number for ticket in joined)
    assert numbers == [f"RDEMO123-{n:06d}" for n in range(1, 401)]
    assert all(ticket.position_at_join == ticket.token.place for ticket in joined)
    assert live_rows(database) == fold_of_the_log(database)
    kept, counted = counts(database)
    assert kept == counted


# S2-08 S2-10 S2-17 S2-18 D-30 D-31
async def test_two_desks_call_every_guest_once_and_in_order(database: str) -> None:
    async with open_counter(database) as one, open_counter(database) as other:
        for _ in range(60):
            await one.join()
        called = await asyncio.gather(
            *(counter.call_next() for _ in range(31) for counter in (one, other))
        )

    assert sum(ticket is None for ticket in called) == 2
    assert len({ticket.id for ticket in called if ticket}) == 60
    in_log = rows(
        database,
        "SELECT (data->>'place')::int FROM log WHERE topic = 'restaurant.guest_called' "
        "ORDER BY position",
    )
    assert [row[0] for row in in_log] == [*range(1, 61)]
    assert counts(database) == ([], [])


async def test_a_guest_who_returns_in_the_same_batch_is_called_before_later_guests(
    database: str,
) -> None:
    """The ticket picked when the batch began is no longer the head of the waitlist."""
    async with open_counter(database) as counter:
        first, second = await counter.join(), await counter.join()
        assert (await counter.call_next()) is not None
        back = ReturnTicket(slug=SLUG, ticket_id=first.id)
        _, called = await asyncio.gather(counter.do(back), counter.call_next())
        _, last = await asyncio.gather(
            counter.do(CancelTicket(slug=SLUG, ticket_id=second.id)), counter.call_next()
        )

    assert called is not None
    assert called.id == first.id
    assert last is None


async def test_positions_are_exact_after_guests_leave_and_return(database: str) -> None:
    async with open_counter(database) as counter:
        tickets = [await counter.join() for _ in range(200)]
        for ticket in tickets[3:150:2]:
            await counter.do(CancelTicket(slug=SLUG, ticket_id=ticket.id))
        called = await counter.call_next()
        assert called is not None
        async with await connect(reader_conninfo(database)) as reader:
            waiting = {
                ticket.token.number: await position_of(reader, ticket)
                for ticket in tickets
                if ticket.token.number in line_of(database)
            }
            assert waiting == {number: n for n, number in enumerate(line_of(database), start=1)}
            assert await position_of(reader, called) is None
            await counter.do(ReturnTicket(slug=SLUG, ticket_id=called.id))
            assert await position_of(reader, called) == 1
            last = await position_of(reader, tickets[-1])

    assert last == len(waiting) + 1
    kept, counted = counts(database)
    assert kept == counted


async def test_a_guest_who_did_not_show_up_returns_to_the_old_position(database: str) -> None:
    async with open_counter(database) as counter:
        first, _ = await counter.join(), await counter.join()
        await counter.call_next()

        missed = await counter.do(MarkNoShow(slug=SLUG, ticket_id=first.id))
        assert missed.status is TicketStatus.NO_SHOW
        assert live_rows(database).get(first.id) is None
        await counter.do(ReturnTicket(slug=SLUG, ticket_id=first.id))
        again = await counter.call_next()

    assert again is not None
    assert (again.id, again.calls_count) == (first.id, 2)
    assert live_rows(database) == fold_of_the_log(database)


async def test_a_transferred_ticket_joins_the_end_of_the_other_waitlist(
    database: str,
) -> None:
    async with open_counter(database) as counter, open_counter(database, "osteria") as other:
        await other.join()
        ticket = await counter.join()
        moved = await counter.do(TransferTicket(slug=SLUG, ticket_id=ticket.id, to_slug="osteria"))
        await counter.join()
        called = await other.call_next()
        assert called is not None
        await other.do(SeatTicket(slug="osteria", ticket_id=called.id))

    assert (moved.token.place, moved.position_at_join) == (2, 2)
    assert line_of(database) == ["RDEMO123-000002"]
    assert line_of(database, "osteria") == [moved.token.number]
    kept, counted = counts(database)
    assert kept == counted
    assert live_rows(database) == fold_of_the_log(database)
