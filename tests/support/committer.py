"""A committer on a real database, with short methods for the commands of orders and bots."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import psycopg
from uuid_utils.compat import uuid7

from daybook.domain.command import Command
from daybook.domain.deciders import DECIDERS
from daybook.domain.event import State
from daybook.domain.orders.bot import Bot
from daybook.domain.orders.claim import CompletedVia, CompletionMode
from daybook.domain.orders.commands import (
    ClaimOrder,
    ClaimResult,
    CompleteOrder,
    CreateBot,
    CreateOrder,
)
from daybook.domain.orders.order import Order, OrderKind
from daybook.eventlog.codec import EventMapper
from daybook.eventlog.origin import Origin, Receipt
from daybook.eventlog.postgres.connections import connect_in_thread, owner_conninfo
from daybook.eventlog.writing.committer import Committer, OnCommit, ignore_commit
from daybook.projections.registry import LIVE_TABLES

MAPPER = EventMapper(DECIDERS)


def origin() -> Origin:
    return Origin(command_id=uuid7(), actor="test")


class Submitter:
    def __init__(self, committer: Committer) -> None:
        self.committer = committer

    async def submit(self, command: Command[Any]) -> Receipt:
        return await self.committer.submit(command, origin())

    async def order(
        self, kind: OrderKind = OrderKind.NORMAL, order_id: UUID | None = None
    ) -> Order:
        receipt = await self.submit(CreateOrder(order_id=order_id or uuid7(), kind=kind))
        assert isinstance(receipt.result, Order)
        return receipt.result

    async def bot(self, completion: CompletionMode = CompletionMode.TIMER) -> Bot:
        receipt = await self.submit(CreateBot(bot_id=uuid7(), completion=completion))
        assert isinstance(receipt.result, Bot)
        return receipt.result

    async def claim(self, bot: Bot, seconds: float = 10) -> Order | None:
        receipt = await self.submit(ClaimOrder(bot_id=bot.id, claim_id=uuid7(), seconds=seconds))
        assert isinstance(receipt.result, ClaimResult)
        return receipt.result.order

    async def complete(self, order: Order, claim_id: UUID | None = None) -> Order:
        assert order.claim is not None
        receipt = await self.submit(
            CompleteOrder(
                order_id=order.id,
                bot_id=order.claim.bot_id,
                claim_id=claim_id or order.claim.id,
                via=CompletedVia.REPORT,
            )
        )
        assert isinstance(receipt.result, Order)
        return receipt.result


@asynccontextmanager
async def open_submitter(
    conninfo: str,
    *,
    writers: int = 1,
    deadline_seconds: float = 5.0,
    on_commit: OnCommit = ignore_commit,
) -> AsyncIterator[Submitter]:
    committer = Committer(
        conninfo,
        tables=LIVE_TABLES,
        mapper=MAPPER,
        writers=writers,
        deadline_seconds=deadline_seconds,
        on_commit=on_commit,
    )
    async with committer:
        yield Submitter(committer)


def rows(conninfo: str, query: str, parameters: dict[str, Any] | None = None) -> list[Any]:
    """Runs a query as the owner of the database."""
    with psycopg.connect(owner_conninfo(conninfo), autocommit=True) as connection:
        found = connection.execute(query.encode(), parameters or {})
        return found.fetchall() if found.description else []


def transactions_count(conninfo: str, *topics: str) -> int:
    """In how many transactions the events of these topics were recorded; each topic has some."""
    query = "SELECT topic, xmin::text FROM stored_events WHERE topic = ANY(%(topics)s)"
    found = rows(conninfo, query, {"topics": list(topics)})
    assert {topic for topic, _ in found} == set(topics)
    return len({transaction for _, transaction in found})


def fold_of_the_log(conninfo: str) -> dict[UUID, State]:
    """Every unfinished aggregate, replayed from its events."""
    states: dict[UUID, State] = {}
    finished: set[UUID] = set()
    query = "SELECT originator_id, topic, state FROM stored_events ORDER BY notification_id"
    for aggregate_id, topic, state in rows(conninfo, query):
        decider = MAPPER.decider_of(topic)
        after = decider.evolve(states.get(aggregate_id), MAPPER.decode(topic, state))
        states[aggregate_id] = after
        (finished.add if decider.finished(after) else finished.discard)(aggregate_id)
    return {i: state for i, state in states.items() if i not in finished}


def live_rows(conninfo: str) -> dict[UUID, State]:
    """Every row of the live tables."""
    states: dict[UUID, State] = {}
    with connect_in_thread(owner_conninfo(conninfo)) as connection:
        for table in LIVE_TABLES:
            for row in connection.execute(table.select.encode()).fetchall():
                state = table.load(row)
                states[state.id] = state
    return states


async def eventually(check: Any, seconds: float = 10.0) -> None:
    """Waits until `check()` is true."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not check():
        assert asyncio.get_running_loop().time() < deadline, f"{check} did not become true"
        await asyncio.sleep(0.02)
