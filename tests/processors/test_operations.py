"""How what was accepted is carried out: soon, together, by one, and with regard for others."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from api.admission import Thresholds
from api.service import Service
from processors import duty, operations
from processors.operations import Operations
from tests.api.http import Api
from tests.api.test_messages import item
from tests.api.test_operations import BUSY, CALM, make_busy, opened, push, until_done
from tests.kitchen import eventually, rows

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
    service = Service(database, read_models=(), processors=[Operations()], thresholds=thresholds)
    async with service:
        yield service


async def test_what_was_accepted_is_carried_out_when_the_bell_rings(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # S3-23: nobody has to wait for the next look.
    monkeypatch.setattr(duty, "POLL_SECONDS", FOR_EVER_SECONDS)
    monkeypatch.setattr(operations, "POLL_SECONDS", FOR_EVER_SECONDS)
    async with opened(database, CALM, [Operations()]), opened(database, BUSY) as api:
        for _ in range(3):
            await asyncio.sleep(0.3)
            (one,) = await accept(api, 1)
            await until_done(api, one)


async def test_with_more_services_nothing_is_done_more_often(database: str) -> None:
    # S3-05: what one does, those that stand by do not try.
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
