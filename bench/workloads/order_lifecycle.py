"""Life cycles of orders: three commands and five events each."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import uvloop
from uuid_utils.compat import uuid7

from bench.harness.rounds import Round
from daybook.domain.command import AllOrNothing, Command
from daybook.domain.deciders import DECIDERS
from daybook.domain.orders.claim import CompletedVia
from daybook.domain.orders.commands import ClaimOrder, CompleteOrder, CreateBot, CreateOrder
from daybook.domain.orders.order import Order, OrderKind
from daybook.eventlog.codec import EventMapper
from daybook.eventlog.gc_tuning import tune_gc
from daybook.eventlog.origin import Origin, Receipt
from daybook.eventlog.postgres.connections import writer_conninfo
from daybook.eventlog.postgres.pipeline import Pipeline
from daybook.eventlog.writing.batch import Batch
from daybook.eventlog.writing.batch_needs import SubmittedCommand
from daybook.eventlog.writing.committer import Committer
from daybook.projections.registry import LIVE_TABLES

POOL_SIZE = 16
MAPPER = EventMapper(DECIDERS)

Submit = Callable[[Command[Any], Origin], Awaitable[Receipt]]


def origin() -> Origin:
    return Origin(command_id=uuid7(), actor="bench")


@asynccontextmanager
async def committer(conninfo: str, lanes: int) -> AsyncIterator[Submit]:
    running = Committer(conninfo, tables=LIVE_TABLES, mapper=MAPPER, writers=lanes)
    async with running:
        yield running.submit


@asynccontextmanager
async def transaction_per_command(conninfo: str) -> AsyncIterator[Submit]:
    """The same code without the committer: a pool, and one transaction per command."""

    links = [await Pipeline.open(writer_conninfo(conninfo)) for _ in range(POOL_SIZE)]
    pool: asyncio.LifoQueue[Pipeline] = asyncio.LifoQueue()
    for link in links:
        pool.put_nowait(link)

    async def submit(command: Command[Any], origin: Origin) -> Receipt:
        batch = Batch([SubmittedCommand(command, origin)], LIVE_TABLES, MAPPER)
        link = await pool.get()
        try:
            await batch.run(link)
        finally:
            pool.put_nowait(link)
        (outcome,) = batch.outcome
        assert isinstance(outcome, Receipt), outcome
        return outcome

    try:
        yield submit
    finally:
        for link in links:
            await link.close()


async def life_cycles(submit: Submit, callers: int, seconds: float) -> Round:
    latencies: list[float] = []
    deadline = time.perf_counter() + seconds

    async def timed(command: Command[Any]) -> Any:
        began = time.perf_counter()
        receipt = await submit(command, origin())
        latencies.append(time.perf_counter() - began)
        return receipt.result

    async def caller() -> None:
        bot_id = uuid7()
        await submit(CreateBot(bot_id=bot_id), origin())
        while time.perf_counter() < deadline:
            await timed(CreateOrder(order_id=uuid7(), kind=OrderKind.NORMAL))
            order = None
            while order is None:
                claim = ClaimOrder(bot_id=bot_id, claim_id=uuid7(), seconds=10)
                order = (await timed(claim)).order
            await timed(_completion(order))

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(callers)))
    took = time.perf_counter() - began
    return Round(count=len(latencies) // 3, seconds=took, latencies=latencies)


async def batched_life_cycles(submit: Submit, size: int, seconds: float) -> Round:
    """One caller creates, claims and completes batches of `size` orders."""

    async def together(commands: Sequence[Command[Any]]) -> list[Any]:
        answers: list[Any] = (await submit(AllOrNothing(commands), origin())).result
        return answers

    bots: list[UUID] = [uuid7() for _ in range(size)]
    await together([CreateBot(bot_id=bot_id) for bot_id in bots])
    count, began = 0, time.perf_counter()
    while time.perf_counter() < began + seconds:
        await together([CreateOrder(order_id=uuid7(), kind=OrderKind.NORMAL) for _ in range(size)])
        claims = [ClaimOrder(bot_id=bot, claim_id=uuid7(), seconds=10) for bot in bots]
        await together([_completion(claimed.order) for claimed in await together(claims)])
        count += size
    return Round(count=count, seconds=time.perf_counter() - began, latencies=[])


def _completion(order: Order) -> CompleteOrder:
    assert order.claim is not None
    return CompleteOrder(
        order_id=order.id,
        bot_id=order.claim.bot_id,
        claim_id=order.claim.id,
        via=CompletedVia.REPORT,
    )


def run(round_: Coroutine[Any, Any, Round]) -> Round:
    tune_gc()  # As the service does when it has started.
    return uvloop.run(round_)
