"""Pushes under overload: deferred, shed, executed later."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from uuid_utils.compat import uuid7

from daybook.api.runtime.load_shedding import Thresholds
from daybook.api.runtime.service import Service
from daybook.audit.invariant import Verdict
from daybook.domain.jobs.create import RESTARTED_BECAUSE
from daybook.eventlog.reading.follower import Projection
from daybook.processors.operation_executor import OperationExecutor
from daybook.processors.processor import Processor
from daybook.projections.messages.ended_operations import EndedOperations
from daybook.projections.rebuild.rebuild import rebuilding
from daybook.projections.rebuild.targets import TARGETS
from tests.api.messages.test_push_and_ack import ack, item, pop
from tests.audit.histories.in_memory import judge, read_log
from tests.support.asgi_client import Answer, Api, api_of
from tests.support.committer import fold_of_the_log, live_rows, rows

pytestmark = pytest.mark.anyio

# Any wait within the last second counts as busy.
BUSY = Thresholds(busy_seconds=10, push_load_max=1e-9, pop_load_max=100)
CALM = Thresholds(busy_seconds=10)


@asynccontextmanager
async def opened(
    conninfo: str,
    thresholds: Thresholds,
    processors: Sequence[Processor] = (),
    read_models: Sequence[Projection] = (),
) -> AsyncIterator[Api]:
    service = Service(
        conninfo, read_models=read_models, processors=processors, thresholds=thresholds
    )
    async with service:
        yield api_of(service)


async def push(api: Api, *items: dict[str, Any]) -> Answer:
    return await api.post("/api/v1/push", {"items": items})


async def make_busy(api: Api) -> None:
    assert (await push(api, item(partition="elsewhere", queue="other"))).status in (201, 202)


async def drained(api: Api, count: int, seconds: float = 20) -> list[Any]:
    """Pops and acknowledges so many messages, one after another."""
    got: list[Any] = []
    deadline = time.monotonic() + seconds
    while len(got) < count:
        assert time.monotonic() < deadline, got
        answer = await api.get("/api/v1/pop/queue/mail?batch=100&wait=true&timeout=500")
        if answer.status == 429:
            await asyncio.sleep(0.1)
            continue
        for message in answer.json["messages"]:
            got.append(message["data"])
            assert (await api.post("/api/v1/ack", ack(message))).status == 200
    return got


async def until_done(api: Api, operation_id: str) -> dict[str, Any]:
    path = f"/api/v1/operations/{operation_id}?wait=true&timeout=10000"
    body: dict[str, Any] = (await api.get(path)).json
    assert body["status"] == "completed", body
    return body


async def assert_tables_are_what_the_log_says(conninfo: str) -> None:
    assert live_rows(conninfo) == fold_of_the_log(conninfo)

    class Silent:
        def begin(self, what: str) -> None: ...

        def reach(self, position: int, goal: int) -> None: ...

    async with rebuilding(conninfo, Silent()) as rebuild:
        targets = [one for one in TARGETS if one.name in ("jobs", "operations")]
        for found in await rebuild.verify(targets):
            assert found.is_equal, [str(one) for one in found.differences]


async def test_an_accepted_push_is_recorded_with_its_messages(database: str) -> None:
    async with opened(database, BUSY) as api:
        await make_busy(api)
        assert (await push(api, item(1, partition="b"))).status == 202
        answer = await api.get("/api/events?topic=operation.created")
    assert answer.status == 200, answer.body
    (body,) = answer.json["events"][-1]["data"]["items"]
    assert (body["queue"], body["payload"]) == ("mail", 1)


async def test_a_wait_for_an_operation_ends_when_the_service_stops(database: str) -> None:
    async with opened(database, BUSY) as api:
        await make_busy(api)
        operation_id = (await push(api, item(1))).json["operationId"]
        path = f"/api/v1/operations/{operation_id}?wait=true&timeout=20000"
        waiting = asyncio.create_task(api.get(path))
        await asyncio.sleep(0.1)
        api.service.job_waiters.end()
        async with asyncio.timeout(2):
            assert (await waiting).json["status"] == "pending"


async def test_a_busy_service_accepts_a_push_and_carries_it_out_later(database: str) -> None:
    # S3-02, S3-19, S3-20, S3-37, S3-45, D-46, D-55
    async with opened(database, BUSY) as api:
        await make_busy(api)
        answer = await push(api, item(1, transactionId="t"), item(2, partition="b"))
        assert answer.status == 202, answer.body
        body = answer.json
        assert (body["status"], body["reason"]) == ("queued", "system_busy")
        # One may have been accepted before it, to make the service busy.
        assert body["queuePosition"] <= 1
        assert body["estimatedWait"] > 0
        path = f"/api/v1/operations/{body['operationId']}"
        assert (await api.get(path)).json["status"] == "pending"
        assert await pop(api) == []
        async with opened(database, CALM, [OperationExecutor()]):
            done = await until_done(api, body["operationId"])
        created = [(one["partition"], one["status"]) for one in done["result"]["messages"]]
        assert created == [("a", "created"), ("b", "created")]
        assert done["latencySeconds"] > 0
        assert {one["data"] for one in await pop(api, batch=10)} == {1, 2}
        assert (await api.get(f"/api/v1/operations/{uuid7()}")).problem == (404, "not-found")
    await assert_tables_are_what_the_log_says(database)


async def test_direct_queued_and_direct_again_come_out_in_the_order_they_came_in(
    database: str,
) -> None:
    # I-24, S3-03, S3-18, S3-46, S3-58, D-42
    async with opened(database, BUSY) as busy, opened(database, CALM) as calm:
        assert (await push(calm, item("X1"), item("X2"))).status == 201
        await make_busy(busy)
        assert (await push(busy, item("Y1"), item("Y2"))).status == 202
        after = await push(calm, item("Z"))
        assert (after.status, after.json["reason"]) == (202, "maintaining_order")
        # Jobs enqueued by other endpoints are not deferred, but still sort after it.
        job = {"queue": "mail", "type": "message", "partition": "a", "payload": "job"}
        named = {"uniqueKey": "a/job", **job}
        assert (await calm.post("/api/jobs", named)).status == 201
        assert (await push(calm, item("elsewhere", partition="b"))).status == 201
        await assert_tables_are_what_the_log_says(database)
        first = await drained_lane(calm, 2)
        assert first == ["X1", "X2"]
        assert await pop(calm, "a") == [], "what was accepted before holds its place"
        (waiting,) = rows(database, "SELECT id FROM jobs WHERE partition = 'a'")
        why = (await calm.get(f"/api/jobs/{waiting[0]}/explain")).json
        assert why["reasons"][0]["code"] == "BlockedByOperation", why
        async with opened(database, CALM, [OperationExecutor()]):
            assert await drained_lane(calm, 4) == ["Y1", "Y2", "Z", "job"]
    await assert_tables_are_what_the_log_says(database)


async def drained_lane(api: Api, count: int) -> list[Any]:
    got: list[Any] = []
    while len(got) < count:
        for message in await pop(api, "a", wait="true", timeout=5000):
            got.append(message["data"])
            done = {"acknowledgments": [ack(message)]}
            if message["data"] == "job":
                return got
            (body,) = (await api.post("/api/v1/ack/batch", done)).json["acknowledgments"]
            assert "code" not in body, body
    return got


async def test_a_message_that_was_pushed_before_is_found_when_it_is_carried_out(
    database: str,
) -> None:
    # S3-11, D-44
    async with (
        opened(database, CALM, [OperationExecutor()]) as calm,
        opened(database, BUSY) as busy,
    ):
        assert (await push(calm, item(1, transactionId="t"))).status == 201
        await make_busy(busy)
        answer = await push(busy, item(2, transactionId="t"))
        done = await until_done(calm, answer.json["operationId"])
        assert [one["status"] for one in done["result"]["messages"]] == ["duplicate"]
        assert await drained(calm, 1) == [1]
        assert await pop(calm) == []
    await assert_tables_are_what_the_log_says(database)


@pytest.mark.parametrize("lanes", ["block", "skip"])
@pytest.mark.parametrize("is_busy", [False, True])
async def test_a_dead_message_is_started_over_with_the_push_that_asks_for_it(
    database: str, is_busy: bool, lanes: str
) -> None:
    # S3-11, D-62: and the audit has nothing against it.
    async with (
        opened(database, CALM, [OperationExecutor()]) as calm,
        opened(database, BUSY) as busy,
    ):
        assert (await calm.ask("PUT", "/api/queues/mail", {"lanes": lanes})).status == 200
        assert (await push(calm, item(1, transactionId="t", attemptsMax=1))).status == 201
        (message,) = await pop(calm)
        failed = await calm.post("/api/v1/ack", ack(message, "failed", error="boom"))
        assert failed.json["status"] == "DEAD"
        refused = await push(calm, item(2, transactionId="t", onDead="bury"))
        assert refused.status == 422
        await make_busy(busy)
        for policy, popped in (("return", []), ("restart", [1])):
            again = item(2, transactionId="t", onDead=policy)
            answer = await push(busy if is_busy else calm, again)
            body = answer.json
            if is_busy:
                body = (await until_done(calm, body["operationId"]))["result"]
            assert [one["status"] for one in body["messages"]] == ["duplicate"]
            got = await pop(calm, partition="a")
            assert [one["data"] for one in got] == popped
        assert (await calm.post("/api/v1/ack", ack(got[0]))).json["status"] == "COMPLETED"
    query = "SELECT data ->> 'because' FROM log WHERE topic = 'job.requeued'"
    assert rows(database, query) == [(RESTARTED_BECAUSE,)]
    await assert_tables_are_what_the_log_says(database)
    log = read_log(database)
    assert [one for one in judge(log).values() if one.verdict is Verdict.INVALID] == []


async def test_a_full_queue_turns_pushes_away_and_takes_them_again_when_drained(
    database: str,
) -> None:
    # S3-07, S3-34, S3-38, S3-60, D-50, D-53: absorbed up to a bound, and turned away beyond.
    few = Thresholds(busy_seconds=10, push_load_max=1e-9, push_depth_max=3)
    async with opened(database, few) as api:
        await make_busy(api)
        for number in range(3):
            assert (await push(api, item(number))).status == 202
        answer = await push(api, item("too many"))
        assert answer.problem == (429, "overloaded")
        assert answer.json["queueDepth"] == 3
        assert 1 <= int(answer.headers["retry-after"]) <= 60
        async with opened(database, CALM, [OperationExecutor()]):
            assert await drained(api, 3) == [0, 1, 2]
        await asyncio.sleep(0.6)
        # As long as others are turned away it is done at once or not at all.
        assert (await push(api, item("again"))).status == 201


async def test_a_full_lane_refuses_pushes_and_other_lanes_do_not(database: str) -> None:
    # D-50: rejected first, with a bound for each lane beside that for all.
    few = Thresholds(busy_seconds=10, push_load_max=1e-9, lane_depth_max=2)
    async with opened(database, few) as api, opened(database, CALM) as calm:
        await make_busy(api)
        for number in range(2):
            assert (await push(api, item(number))).status == 202
        refused = {"items": [item("b", partition="b"), item("too many")]}
        answer = await api.post("/api/v1/push", refused, idempotency_key="once")
        assert answer.problem == (429, "overloaded")
        assert answer.json["queueDepth"] == 2
        assert "Lane a of queue mail" in answer.json["detail"]
        assert 1 <= int(answer.headers["retry-after"]) <= 60
        assert (await push(api, item("b", partition="b"))).status == 202
        assert (await push(calm, item(2))).status == 202, "it has room for more"
        async with opened(database, CALM, [OperationExecutor()]):
            assert await drained_lane(calm, 3) == [0, 1, 2]
            again = await api.post("/api/v1/push", refused, idempotency_key="once")
            assert again.status in (201, 202), "what was true for a moment is not kept"


async def test_pops_are_shed_and_acknowledgments_never(database: str) -> None:
    # S3-42, D-52
    strict = Thresholds(busy_seconds=10, pop_load_max=1e-9, push_load_max=1000)
    async with opened(database, strict) as api:
        await push(api, item(1))
        await asyncio.sleep(1.1)
        (message,) = await pop(api)
        refused = await api.get("/api/v1/pop/queue/mail")
        assert refused.problem == (429, "overloaded")
        assert (await api.post("/api/v1/ack", ack(message))).status == 200


async def test_the_stats_report_the_load(database: str) -> None:
    # S3-09, S3-30, S3-32, S3-44
    async with opened(database, BUSY) as api:
        await make_busy(api)
        await push(api, item(1))
        await asyncio.sleep(0.4)
        body = (await api.get("/api/v1/operations/stats")).json
        kind, failed = body["operations"]
        assert (kind["status"], failed["status"]) == ("pending", "failed")
        assert failed["count"] == 0
        assert (kind["operationType"], kind["priority"], kind["count"]) == ("PUSH", 5, 1)
        assert kind["oldestAt"] is not None
        assert body["systemHealth"]["queueDepth"] == 1


async def test_the_stats_count_recently_executed_operations(database: str) -> None:
    # S3-43, S3-44, D-54: it leaves the table at once, is counted, and stays readable for ever.
    async with opened(database, BUSY) as api:
        await make_busy(api)
        accepted = [(await push(api, item(number))).json["operationId"] for number in range(3)]
        async with opened(database, CALM, [OperationExecutor()], [EndedOperations()]):
            for one in accepted:
                await until_done(api, one)
            completed: list[Any] = []
            while sum(one["count"] for one in completed) < 3:
                kinds = (await api.get("/api/v1/operations/stats")).json["operations"]
                completed = [one for one in kinds if one["status"] == "completed"]
        (kind,) = completed
        assert (kind["operationType"], kind["priority"], kind["count"]) == ("PUSH", 5, 3)
        assert kind["averageLatencySeconds"] > 0
        assert kind["oldestAt"] <= kind["newestAt"]
        assert rows(database, "SELECT id FROM operations") == []
        for one in accepted:
            assert (await api.get(f"/api/v1/operations/{one}")).json["status"] == "completed"
