"""A service in this process, commands to it, and the events it has recorded."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from uuid_utils.compat import uuid7

from daybook.api.runtime.service import Service
from daybook.domain.orders.bot import Bot
from daybook.domain.orders.claim import CompletionMode
from daybook.domain.orders.commands import CreateBot
from daybook.domain.orders.order import Order
from daybook.processors import processor
from daybook.processors.processor import Processor
from daybook.processors.qstash.client import QStash
from daybook.processors.qstash.publisher import GRACE_SECONDS
from tests.support.committer import Submitter, fold_of_the_log, live_rows, rows

READ_EVENTS = """
SELECT aggregate_id, topic, actor, recorded_at, data FROM log WHERE topic = ANY(%(topics)s)
ORDER BY position
"""
READ_LATENESS = """
SELECT done.aggregate_id,
       extract(epoch FROM done.recorded_at - (claim.data ->> 'due_at')::timestamptz)::float8
FROM log AS done
JOIN log AS claim ON claim.data ->> 'claim_id' = done.data ->> 'claim_id'
WHERE done.topic = 'order.completed' AND claim.topic = 'order.claimed'
"""
# Less than any poll interval; more than the goal of 100 ms, because tests share their machine.
PROMPT_SECONDS = 0.5


@asynccontextmanager
async def running(
    conninfo: str,
    *,
    delay_seconds: float = 10,
    qstash: QStash | None = None,
    processors: Sequence[Processor] | None = None,
    callback_grace_seconds: float = GRACE_SECONDS,
) -> AsyncIterator[Submitter]:
    service = Service(
        conninfo,
        order_rules=processor.OrderRules(delay_seconds=delay_seconds),
        qstash=qstash,
        read_models=(),
        processors=processors,
        callback_grace_seconds=callback_grace_seconds,
    )
    async with service:
        yield Submitter(service.committer)


async def auto_bot(submitter: Submitter, completion: CompletionMode = CompletionMode.TIMER) -> Bot:
    create = CreateBot(bot_id=uuid7(), auto_claim=True, completion=completion)
    bot = (await submitter.submit(create)).result
    assert isinstance(bot, Bot)
    return bot


async def claimed(
    submitter: Submitter, seconds: float, completion: CompletionMode = CompletionMode.TIMER
) -> Order:
    """A new bot at work on an order."""
    bot = await submitter.bot(completion)
    await submitter.order()
    order = await submitter.claim(bot, seconds)
    assert order is not None
    return order


def claim_of(order: Order) -> UUID:
    assert order.claim is not None
    return order.claim.id


def events(conninfo: str, *topics: str) -> list[Any]:
    return rows(conninfo, READ_EVENTS, {"topics": list(topics)})


def completed(conninfo: str) -> list[UUID]:
    return [event[0] for event in events(conninfo, "order.completed")]


def busy_bots(conninfo: str) -> int:
    ((count,),) = rows(conninfo, "SELECT count(*) FROM bots WHERE order_id IS NOT NULL")
    assert isinstance(count, int)
    return count


def lateness(conninfo: str) -> dict[UUID, float]:
    """How long after its due time each claim's order was completed, in seconds."""
    found = rows(conninfo, READ_LATENESS)
    return dict(found)


def assert_consistent(conninfo: str) -> None:
    """No stuck state: the tables are the fold of the log, and orders and bots name each other."""
    live = live_rows(conninfo)
    assert live == fold_of_the_log(conninfo)
    bots = {state.id: state for state in live.values() if isinstance(state, Bot)}
    orders = [state for state in live.values() if isinstance(state, Order)]
    from_orders = {
        (order.claim.bot_id, order.id, order.claim.id) for order in orders if order.claim
    }
    from_bots = {(bot.id, bot.order_id, bot.claim_id) for bot in bots.values() if bot.order_id}
    assert from_orders == from_bots
