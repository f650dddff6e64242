"""Accepted operations are executed soon, in batches, by one process, without delaying others."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from uuid_utils.compat import uuid7

from daybook.api.runtime.load_shedding import Thresholds
from daybook.api.runtime.service import Service
from daybook.domain.messages.commands import _message
from daybook.processors import leader, operation_executor
from daybook.processors.operation_executor import OperationExecutor
from daybook.projections.messages.operations import DueOperation
from tests.api.messages.test_operations import BUSY, CALM, make_busy, opened, push, until_done
from tests.api.messages.test_push_and_ack import item
from tests.projections.messages.test_operations import message
from tests.support.asgi_client import Api
from tests.support.committer import eventually, rows

pytestmark = pytest.mark.anyio

COUNT = 12
FOR_EVER_SECONDS = 60.0


async def accept(api: Api, count: int = COUNT) -> list[str]:
    await make_busy(api)
    answers = [await push(api, item(number, partition=str(number))) for number in range(count)]
    assert {answer.status for answer in answers} == {202}
    return [answer.json["operationId"] for answer in answers]


def completed_count(database: str) -> int:
    ((count,),) = rows(database, "SELECT count(*) FROM log WHERE topic = 'operation.completed'")
    return int(count)


@asynccontextmanager
async def serving(database: str, thresholds: Thresholds) -> AsyncIterator[Service]:
    service = Service(
        database, read_models=(), processors=[OperationExecutor()], thresholds=thresholds
    )
    async with service:
        yield service


async def test_an_accepted_operation_is_executed_upon_its_notification(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # S3-23: an operation does not wait for the next poll.
    monkeypatch.setattr(leader, "POLL_SECONDS", FOR_EVER_SECONDS)
    monkeypatch.setattr(operation_executor, "POLL_SECONDS", FOR_EVER_SECONDS)
    async with opened(database, CALM, [OperationExecutor()]), opened(database, BUSY) as api:
        for _ in range(3):
            await asyncio.sleep(0.3)
            (one,) = await accept(api, 1)
            await until_done(api, one)


async def test_with_more_services_nothing_is_done_more_often(database: str) -> None:
    # S3-05: standby executors do not try an operation that the leader executes.
    async with opened(database, BUSY) as api:
        await accept(api)
    async with (
        serving(database, CALM) as one,
        serving(database, CALM) as two,
        serving(database, CALM) as three,
    ):
        await eventually(lambda: completed_count(database) >= COUNT)
        commands = [service.committer.batch_sizes.sum for service in (one, two, three)]
    accepted = rows(database, "SELECT position FROM log WHERE topic = 'operation.created'")
    assert sorted(commands) == [0, 0, len(accepted)]
    assert completed_count(database) == len(accepted)


CREATED = """
SELECT data ->> 'payload'
FROM log
WHERE topic = 'job.created' AND data ->> 'partition' = %(partition)s
ORDER BY position
"""


async def test_in_a_lane_jobs_are_created_in_the_order_of_acceptance(database: str) -> None:
    # S3-06
    lanes = ("a", "b", "c")
    async with opened(database, BUSY) as api:
        await make_busy(api)
        for number in range(60):
            # Some are for two lanes, so that these depend on each other. They are too many for one
            # batch, and of different sizes, so that some would overtake others.
            wanted = {lanes[number % 3], lanes[number % 3 - (number % 5 == 0)]}
            count = 300 if number % 7 == 0 else 1
            answer = await push(
                api, *(item(number, partition=one) for one in wanted for _ in range(count))
            )
            assert answer.status == 202
    async with opened(database, CALM, [OperationExecutor()]):
        await eventually(lambda: completed_count(database) >= 60, seconds=60)
    for lane in lanes:
        created = [int(number) for (number,) in rows(database, CREATED, {"partition": lane})]
        assert len(created) >= 20
        assert created == sorted(created)


async def test_positions_tell_how_many_were_accepted_in_the_same_moment(database: str) -> None:
    # S3-20
    async with opened(database, BUSY) as api:
        await make_busy(api)
        answers = await asyncio.gather(
            *(push(api, item(number, partition=str(number))) for number in range(10))
        )
        positions = sorted(answer.json["queuePosition"] for answer in answers)
        assert positions == list(range(positions[0], positions[0] + 10))
        assert positions[0] <= 1


def test_operations_stand_in_one_line_if_they_share_a_lane() -> None:
    def due(*partitions: str) -> DueOperation:
        items = [message("mail", partition) for partition in partitions]
        return DueOperation(uuid7(), tuple([_message(one) for one in items]))

    one, two, three, four, five = due("a"), due("b"), due("c"), due("b", "a"), due("a")
    found = operation_executor.chains([one, two, three, four, five])
    assert sorted(found, key=len) == [[three], [one, two, four, five]]
    assert [*operation_executor.parts([one] * (operation_executor.TOGETHER_MAX + 1))] == [
        [one] * operation_executor.TOGETHER_MAX,
        [one],
    ]
