"""Order within lanes, with services and consumers that are killed and stall. I-24"""

import asyncio
import random
from collections import defaultdict

import pytest

from daybook import AsyncClient, DaybookError, NewMessage, Pushed
from tests.support.committer import rows
from tests.support.running.service_process import ServiceProcess

LANES = 10
ATTEMPTS_MAX = 1000
# One service executes pushes directly, the other defers all of them.
CALM = {
    "DAYBOOK_BUSY_SECONDS": "10",
    "DAYBOOK_PUSH_LOAD_MAX": "1000",
    "DAYBOOK_POP_LOAD_MAX": "1000",
}
BUSY = {**CALM, "DAYBOOK_PUSH_LOAD_MAX": "0.000000001"}

# Every message of a lane that was completed before one that had been pushed earlier.
FIND_INVERSIONS = """
WITH done AS (
    SELECT created.data ->> 'partition' AS lane, (created.data ->> 'payload')::bigint AS pushed,
           completed.position
    FROM log AS completed
    JOIN log AS created ON created.aggregate_id = completed.aggregate_id
                       AND created.topic = 'job.created'
    WHERE completed.topic = 'job.completed'
), steps AS (
    SELECT pushed, lag(pushed) OVER (PARTITION BY lane ORDER BY position) AS previous FROM done
)
SELECT * FROM steps WHERE previous >= pushed
"""
COUNT_TOPICS = "SELECT count(*) FROM log WHERE topic = %(topic)s"


class Scene:
    def __init__(self, database: str, triples: int) -> None:
        self.total = 3 * triples * LANES
        self.triples = triples
        self.done = 0
        self.statuses: dict[str, int] = defaultdict(int)
        self.calm, self.busy = ServiceProcess(database, **CALM), ServiceProcess(database, **BUSY)
        self._database = database
        self._chance = random.Random(7)

    async def push(self, lane: int) -> None:
        """X directly, Y for later, Z directly if it may, one after another."""
        async with AsyncClient(self.calm.url, retry_seconds_max=60) as calm:
            for number in range(3 * self.triples):
                message = NewMessage(
                    queue="mail",
                    partition=str(lane),
                    payload=number,
                    transaction_id=f"{lane}-{number}",
                    lease_seconds=1,
                    attempts_max=ATTEMPTS_MAX,
                )
                later = number % 3 == 1
                pushed = await (self._push_busy(message) if later else calm.push([message]))
                self.statuses[f"{'XYZ'[number % 3]} {pushed.status}"] += 1

    async def _push_busy(self, message: NewMessage) -> Pushed:
        """The service may be killed at any moment: then another takes its place."""
        while True:
            try:
                async with AsyncClient(self.busy.url, retry_seconds_max=0) as busy:
                    return await busy.push([message])
            except (DaybookError, AssertionError):
                await asyncio.sleep(0.1)

    async def consume(self) -> None:
        """Some stall: they never acknowledge, and their messages come back."""
        async with AsyncClient(self.calm.url, retry_seconds_max=60) as client:
            while self.done < self.total:
                for message in await client.pop("mail", batch=5, wait_seconds=1):
                    if self._chance.random() < 0.01:
                        continue
                    try:
                        await client.ack(message)
                    except DaybookError:
                        continue
                    self.done += 1

    async def kill(self, times: int) -> None:
        for number in range(times):
            while self.done < self.total * (number + 1) / (times + 2):  # noqa: ASYNC110 (a test)
                await asyncio.sleep(0.05)
            self.busy.kill()
            await asyncio.to_thread(self.busy.restart)

    def end(self) -> None:
        self.calm.end()
        self.busy.end()


@pytest.mark.parametrize("triples", [3, pytest.param(100, marks=pytest.mark.slow)])
def test_direct_queued_and_direct_stay_in_order_whatever_is_killed_or_stalls(
    database: str, triples: int
) -> None:
    # S3-03, S3-08, S3-26, S3-46, S3-48, S3-49, S3-59, D-22, D-42, D-49: so many times X, Y, Z on
    # each of ten lanes.
    scene = Scene(database, triples)
    assert scene.calm.url
    assert scene.busy.url

    async def run() -> None:
        await asyncio.gather(
            *(scene.push(lane) for lane in range(LANES)),
            *(scene.consume() for _ in range(4)),
            scene.kill(1 if triples < 10 else 5),
        )

    try:
        asyncio.run(run())
    finally:
        scene.end()
    assert rows(database, FIND_INVERSIONS) == []
    ((completed,),) = rows(database, COUNT_TOPICS, {"topic": "job.completed"})
    assert completed == scene.total
    assert scene.statuses["Y queued"] > 0
    print(dict(scene.statuses))
