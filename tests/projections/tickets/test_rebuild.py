"""Tickets and their counts can be rebuilt from the log."""

import random
from typing import Any

import pytest

from daybook.domain.command import Command
from daybook.domain.errors import Refusal
from daybook.domain.tickets.commands import (
    CancelTicket,
    MarkNoShow,
    ReturnTicket,
    SeatTicket,
    TransferTicket,
)
from daybook.projections.rebuild import replay
from tests.support.committer import fold_of_the_log, live_rows, rows
from tests.support.rebuilds import make_anew, verify, wrong
from tests.support.tickets import SLUG, Counter, counts, fold_finished_tickets, open_counter

pytestmark = pytest.mark.anyio

OTHER = "osteria"


async def an_evening(counter: Counter, chance: random.Random) -> None:
    """Guests join; tickets get most of the possible events."""
    tickets = [await counter.join(f"+4917012345{n:02d}") for n in range(70)]
    for _ in range(40):
        await counter.call_next()
    for ticket in chance.sample(tickets, k=60):
        deeds: list[Command[Any]] = [
            CancelTicket(slug=SLUG, ticket_id=ticket.id),
            MarkNoShow(slug=SLUG, ticket_id=ticket.id),
            SeatTicket(slug=SLUG, ticket_id=ticket.id),
            ReturnTicket(slug=SLUG, ticket_id=ticket.id),
            TransferTicket(slug=SLUG, ticket_id=ticket.id, to_slug=OTHER),
        ]
        for deed in chance.sample(deeds, k=2):
            try:
                await counter.do(deed)
            except Refusal:
                continue


@pytest.mark.parametrize("chunk", [7, 20_000])
async def test_tickets_and_counts_equal_the_fold_of_the_log(
    own_database: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "CHUNK", chunk)
    async with open_counter(own_database) as counter, open_counter(own_database, OTHER):
        await an_evening(counter, random.Random(1))
    await fold_finished_tickets(own_database)

    comparisons = await verify(own_database)
    assert wrong(comparisons) == []
    names = ("restaurants", "tickets", "finished_tickets")
    assert all(comparisons[name].rows_count for name in names)

    rows(own_database, "UPDATE ticket_counts SET waiting = waiting + 1 WHERE level = 2")
    assert "waiting is" in str(wrong(await verify(own_database))[0])
    await make_anew(own_database)
    kept, counted = counts(own_database)
    assert kept == counted
    assert kept
    assert live_rows(own_database) == fold_of_the_log(own_database)
