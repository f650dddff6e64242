"""Query plans of guests' and desks' reads: rows found by an index, however long the waitlist is."""

import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest
from uuid_utils.compat import uuid7

from daybook.domain.tickets.commands import CancelTicket
from daybook.domain.tickets.ticket import Ticket
from daybook.eventlog.postgres.connections import reader_conninfo
from daybook.projections.snapshot import PLAN_BY_INDEX
from daybook.projections.tickets.finished_tickets import (
    READ_FINISHED_TICKETS,
    READ_GUESTS_FINISHED_TICKETS,
)
from daybook.projections.tickets.ticket_list import READ_GUESTS_TICKETS, READ_LINE, READ_TICKET
from tests.support.committer import rows
from tests.support.tickets import SLUG, fold_finished_tickets, open_counter

pytestmark = pytest.mark.anyio

GUESTS = 3_000
# A ticket, its restaurant, and at most 63 rows of each level of ticket_counts.
TOUCHED_MAX = 2 + 5 * 63


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", []):
        yield from nodes(inner)


def explain(conninfo: str, query: str, wanted: dict[str, Any]) -> list[dict[str, Any]]:
    """Explains a query with the settings of lists."""
    with psycopg.connect(reader_conninfo(conninfo)) as connection:
        connection.execute(PLAN_BY_INDEX)
        found = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {query}".encode(), wanted)
        ((plans,),) = found.fetchall()
    return [*nodes(plans[0]["Plan"])]


def touched(plan: list[dict[str, Any]]) -> int:
    return sum(
        (one["Actual Rows"] + one.get("Rows Removed by Filter", 0)) * one["Actual Loops"]
        for one in plan
        if "Scan" in one["Node Type"] and "Relation Name" in one
    )


async def join_many(conninfo: str) -> list[Ticket]:
    async with open_counter(conninfo) as counter:
        tickets = await asyncio.gather(
            *(counter.join(f"+4917{n:08d}", uuid7()) for n in range(GUESTS))
        )
        for ticket in tickets[:200]:
            await counter.do(CancelTicket(slug=SLUG, ticket_id=ticket.id))
    await fold_finished_tickets(conninfo)
    rows(conninfo, "ANALYZE daybook.tickets, daybook.ticket_counts, daybook.restaurants")
    return list(tickets)


# S2-22 S2-26 S2-27
async def test_a_ticket_and_its_position_are_read_without_scanning_the_waitlist(
    database: str,
) -> None:
    tickets = await join_many(database)
    last = max(tickets, key=lambda ticket: ticket.token.place)

    assert touched(explain(database, READ_TICKET, {"id": last.id})) < TOUCHED_MAX


# S2-22 S2-24 S2-25
async def test_a_list_of_tickets_reads_only_the_rows_it_shows(database: str) -> None:
    tickets = await join_many(database)
    wanted: dict[str, Any] = {
        "restaurant": tickets[0].restaurant_id,
        "subject": tickets[-1].guest.subject_id,
        "after": 1000,
        "before": 1000,
        "except": list[UUID](),
        "limit": 5,
    }
    for query, status, shown in (
        (READ_LINE, "WAITING", 5),
        (READ_FINISHED_TICKETS, "CANCELLED", 5),
        (READ_GUESTS_FINISHED_TICKETS, None, 0),
    ):
        plan = explain(database, query, {**wanted, "status": status})
        assert touched(plan) == shown, query
    plan = explain(database, READ_GUESTS_TICKETS, wanted)
    assert touched(plan) < TOUCHED_MAX
