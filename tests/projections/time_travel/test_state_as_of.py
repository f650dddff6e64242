"""The state as of any position equals a fold from the beginning of the log."""

import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from psycopg import AsyncConnection
from uuid_utils.compat import uuid7

from daybook.domain.deciders import DECIDERS
from daybook.domain.jobs.manage import CancelJob, RetryJob
from daybook.domain.jobs.work import Outcome
from daybook.domain.orders.commands import DeleteOrder, RestoreOrder
from daybook.domain.orders.order import Order, OrderKind
from daybook.eventlog.postgres.connections import connect, owner_conninfo, reader_conninfo
from daybook.projections.time_travel.checkpoints import take_checkpoints
from daybook.projections.time_travel.state_as_of import Past, position_of
from tests.support.committer import MAPPER, open_submitter, rows
from tests.support.databases.json_checkpoints import copy_as_json
from tests.support.jobs import Workshop

pytestmark = pytest.mark.anyio

READ_LOG = """
SELECT notification_id, originator_id, topic, state FROM stored_events ORDER BY notification_id
"""


APPEND_LATE = """
INSERT INTO stored_events (originator_id, originator_version, topic, state,
                           command_id, correlation_id, actor)
VALUES (%(id)s, 1, %(topic)s, %(state)s, %(id)s, %(id)s, 'test')
"""


def fold_from_zero(database: str, upto: int) -> dict[UUID, Any]:
    states: dict[UUID, Any] = {}
    for position, aggregate_id, topic, stored in rows(database, READ_LOG):
        if position <= upto:
            decider = MAPPER.decider_of(topic)
            event = MAPPER.decode(topic, stored)
            states[aggregate_id] = decider.evolve(states.get(aggregate_id), event)
    return {
        aggregate_id: state
        for aggregate_id, state in states.items()
        if not any(isinstance(state, d.state) and d.finished(state) for d in DECIDERS)
    }


async def a_day(database: str, seed: int) -> None:
    """Orders complete, are deleted and restored; jobs fail, are cancelled and retried."""
    chance = random.Random(seed)
    async with open_submitter(database) as submitter:
        workshop = Workshop(submitter)
        bots = [await submitter.bot() for _ in range(3)]
        for _ in range(40):
            order = await submitter.order(chance.choice([*OrderKind]))
            if chance.random() < 0.3:
                await submitter.submit(DeleteOrder(order_id=order.id))
                if chance.random() < 0.7:
                    await submitter.submit(RestoreOrder(order_id=order.id))
            taken = await submitter.claim(bot := chance.choice(bots))
            if taken is not None:
                bots = [await submitter.bot() if one is bot else one for one in bots]
                if chance.random() < 0.8:
                    await submitter.complete(taken)
            job = await workshop.job(subject=str(uuid7()))
            if chance.random() < 0.3:
                await workshop.submit(CancelJob(job.id))
                await workshop.submit(RetryJob(job.id))
            for claimed in await workshop.claim(1):
                outcome = chance.choice([Outcome.DONE, Outcome.FAIL, Outcome.RETRY])
                await workshop.finish(claimed, outcome, error="x", retry_delay_seconds=0)


async def copy_natively(database: str) -> None:
    async with await connect(reader_conninfo(database)) as reader:
        ((settled,),) = rows(database, "SELECT max(position) FROM log")
        await take_checkpoints(reader, settled)


async def copy_in_json(database: str) -> None:
    copy_as_json(database)


@pytest.mark.parametrize(
    "copies",
    [
        pytest.param([], id="none"),
        pytest.param([copy_natively] * 3, id="native"),
        pytest.param([copy_in_json, copy_natively, copy_in_json], id="both"),
    ],
)
async def test_the_state_at_a_hundred_positions_equals_a_full_fold(
    database: str, copies: list[Callable[[str], Awaitable[None]]]
) -> None:
    # SX-05
    await a_day(database, 0)
    for seed, copy in enumerate(copies, start=1):
        await copy(database)
        await a_day(database, seed)
    ((head,),) = rows(database, "SELECT max(position) FROM log")
    async with await connect(reader_conninfo(database)) as reader:
        for position in random.Random(7).sample(range(head + 1), 100 if copies else 20):
            past = await Past.at(reader, position)
            assert past.states == fold_from_zero(database, position), position


async def test_an_instant_means_the_last_event_recorded_until_then(database: str) -> None:
    await a_day(database, 1)
    moments = rows(database, "SELECT position, recorded_at FROM log ORDER BY position")
    async with await connect(reader_conninfo(database)) as reader:
        for position, recorded_at in random.Random(1).sample(moments, 30):
            assert await position_of(reader, recorded_at) == position
        first, last = moments[0], moments[-1]
        assert await position_of(reader, first[1] - timedelta(seconds=1)) == 0
        assert await position_of(reader, last[1] + timedelta(days=1)) == last[0]


async def test_events_uncommitted_during_a_checkpoint_are_folded_in(
    database: str,
) -> None:
    """Its position is below the checkpoint's, but its rows were not visible to the copy."""
    late = uuid7()
    created = Order.Created(
        at=datetime.now(UTC), order_id=late, number=900, kind=OrderKind.VIP, attempts_max=3
    )
    topic, state = MAPPER.encode(created)
    async with open_submitter(database) as submitter:
        await submitter.order()
        async with await AsyncConnection.connect(owner_conninfo(database)) as writer:
            await writer.execute(APPEND_LATE, {"id": late, "topic": topic, "state": state})
            await submitter.order()
            async with await connect(reader_conninfo(database)) as reader:
                assert await take_checkpoints(reader, settled=1) == 3
            await writer.commit()
        await submitter.order()
    async with await connect(reader_conninfo(database)) as reader:
        for position in (3, 4):
            past = (await Past.at(reader, position)).states
            assert late in past
            assert past == fold_from_zero(database, position)
