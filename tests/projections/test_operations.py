"""Operations at random, and the tables that follow from them."""

import random

import pytest
from uuid_utils.compat import uuid7

from domain.errors import Refusal
from domain.messages import MESSAGE_TYPE, message_key
from domain.operation import Operation
from domain.operations import (
    CancelOperation,
    CarryOut,
    FailOperation,
    Push,
    Queued,
    RetryOperation,
    Standing,
)
from domain.queue import Lanes
from domain.workshop import ConfigureQueue, NewJob
from projections.rebuild import replay
from tests.kitchen import fold_of_the_log, live_rows, rows
from tests.projections.rebuilds import follow, make_anew, verify, wrong
from tests.workshop import Workshop, new_job, open_workshop

pytestmark = pytest.mark.anyio

SKIPPING = "skipping"


def message(queue: str, partition: str) -> NewJob:
    key = message_key(partition, str(uuid7()))
    return new_job(queue, MESSAGE_TYPE, partition=partition, unique_key=key)


class Rush:
    """Pushes of which some are accepted for later, carried out, fail, and are looked after."""

    def __init__(self, workshop: Workshop) -> None:
        self.workshop = workshop
        self.chance = random.Random(7)
        self.operations: list[Operation] = []

    async def go_on(self, count: int) -> None:
        deeds = [self.push, self.push, self.carry_out, self.fail, self.fail, self.look_after]
        for _ in range(count):
            try:
                await self.chance.choice(deeds)()
            except Refusal:
                continue

    async def push(self) -> None:
        queues, lanes = ("mail", SKIPPING), "abc"
        new = [
            message(self.chance.choice(queues), self.chance.choice(lanes))
            for _ in range(self.chance.randrange(1, 4))
        ]
        is_busy = self.chance.random() < 0.5
        command = Push(new=new, operation_id=uuid7(), is_busy=is_busy, standing=Standing())
        answer = (await self.workshop.submit(command)).answer
        if isinstance(answer, Queued):
            self.operations.append(answer.operation)

    async def carry_out(self) -> None:
        one = self.chance.choice(self.operations)
        await self.workshop.submit(CarryOut(operation_id=one.id, items=one.items))

    async def fail(self) -> None:
        one = self.chance.choice(self.operations)
        command = FailOperation(operation_id=one.id, queues=one.queues, error="boom", jitter=0)
        await self.workshop.submit(command)

    async def look_after(self) -> None:
        kind = self.chance.choice([RetryOperation, RetryOperation, CancelOperation])
        await self.workshop.submit(kind(self.chance.choice(self.operations).id))


async def rush(database: str) -> None:
    async with open_workshop(database) as workshop:
        await workshop.submit(ConfigureQueue(name=SKIPPING, lanes=Lanes.SKIP))
        one = Rush(workshop)
        await one.push()
        while not one.operations:
            await one.push()
        await one.go_on(250)
    await follow(database)


async def test_whatever_became_of_operations_the_tables_are_what_the_log_says(
    own_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # S3-13, S3-15, S3-17
    await rush(own_database)
    assert live_rows(own_database) == fold_of_the_log(own_database)
    standings = dict(rows(own_database, "SELECT status, count(*) FROM operations GROUP BY status"))
    assert {*standings} == {"pending", "failed"}
    for chunk in (3, 40, 20_000):
        monkeypatch.setattr(replay, "CHUNK", chunk)
        assert wrong(await verify(own_database, "jobs", "operations", "ended_operations")) == []
    await make_anew(own_database, "jobs", "operations", "ended_operations")
    assert live_rows(own_database) == fold_of_the_log(own_database)


async def test_what_has_ended_is_counted_by_the_minute(own_database: str) -> None:
    # S3-44
    await rush(own_database)
    happened = dict(rows(own_database, "SELECT topic, count(*) FROM log GROUP BY topic"))
    counted = "SELECT status, sum(count)::bigint FROM ended_operations GROUP BY status"
    assert dict(rows(own_database, counted)) == {
        "completed": happened["operation.completed"],
        "cancelled": happened["operation.cancelled"],
    }
