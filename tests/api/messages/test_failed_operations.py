"""Accepted pushes that cannot be executed fail after their attempts and are never lost.

The fault is real: a database trigger refuses some messages.
"""

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from daybook.eventlog.postgres.connections import connect, reader_conninfo
from daybook.processors.operation_executor import OperationExecutor
from daybook.projections.doctor.doctor import examine
from tests.api.messages.test_operations import (
    BUSY,
    CALM,
    assert_tables_are_what_the_log_says,
    drained_lane,
    make_busy,
    opened,
    push,
    until_done,
)
from tests.api.messages.test_push_and_ack import item, pop
from tests.support.asgi_client import Answer, Api
from tests.support.committer import rows

pytestmark = pytest.mark.anyio

REFUSE_MESSAGES = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF convert_from(NEW.payload, 'UTF8') = '"bad"' THEN
        RAISE EXCEPTION 'this message is refused';
    ELSIF convert_from(NEW.payload, 'UTF8') = '"no room"' THEN
        RAISE EXCEPTION 'the disk is full' USING ERRCODE = 'disk_full';
    ELSIF convert_from(NEW.payload, 'UTF8') = '"no right"' THEN
        RAISE EXCEPTION 'not allowed' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END $$
"""
SET_TRAP = "CREATE TRIGGER trap BEFORE INSERT ON jobs FOR EACH ROW EXECUTE FUNCTION refuse()"


@pytest.fixture
def repair(database: str) -> Iterator[Callable[[], None]]:
    """The database refuses some messages until this is called."""
    rows(database, REFUSE_MESSAGES)
    rows(database, SET_TRAP)

    def remove_trap() -> None:
        rows(database, "DROP FUNCTION IF EXISTS refuse CASCADE")

    yield remove_trap
    remove_trap()


async def accepted(api: Api, *items: dict[str, Any]) -> str:
    await make_busy(api)
    answer = await push(api, *items)
    assert answer.status == 202, answer.body
    return str(answer.json["operationId"])


async def until_failed(api: Api, operation_id: str) -> dict[str, Any]:
    body: dict[str, Any] = (
        await api.get(f"/api/v1/operations/{operation_id}?wait=true&timeout=10000")
    ).json
    assert body["status"] == "failed", body
    return body


async def act(api: Api, operation_id: str, deed: str) -> Answer:
    return await api.post(f"/api/v1/operations/{operation_id}/{deed}", {"reason": "looked at"})


@contextmanager
def processor_log(caplog: pytest.LogCaptureFixture) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """The log records of the processor."""
    records: list[tuple[str, dict[str, Any]]] = []
    with caplog.at_level(logging.INFO, "daybook.operations"):
        yield records
    records += [
        (record.getMessage(), vars(record)["context"])
        for record in caplog.records
        if record.name == "daybook.operations"
    ]


@pytest.mark.usefixtures("repair")
async def test_an_operation_that_keeps_failing_ends_as_failed_and_is_listed(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    # S3-13, S3-15, S3-28, S3-29, S3-35, S3-44, D-61
    async with opened(database, BUSY) as api:
        good = await accepted(api, item("good", partition="b"))
        bad = await accepted(api, item("bad"))
        with processor_log(caplog) as records:
            async with opened(database, CALM, [OperationExecutor()]):
                failed = await until_failed(api, bad)
                await until_done(api, good)
        assert (failed["retryCount"], failed["attemptsMax"]) == (3, 3)
        assert failed["errorMessage"] == "this message is refused"
        assert failed["lastErrorAt"] is not None
        assert (failed["processedAt"], "result" in failed) == (None, False)
        kinds = (await api.get("/api/v1/operations/stats")).json["operations"]
        (kind,) = [one for one in kinds if one["status"] == "failed"]
        assert (kind["operationType"], kind["count"]) == ("PUSH", 1)
        assert kind["averageLatencySeconds"] > 0
        topics = [topic for (topic,) in rows(database, "SELECT topic FROM log ORDER BY position")]
        assert topics.count("operation.failed") == 2
        assert topics.count("operation.given_up") == 1
    assert [context["lookMs"] for event, context in records if event == "operations.begun"] == [100]
    (done,) = [context for _, context in records if context.get("operationId") == good]
    assert (done["type"], done["ms"] > 0) == ("PUSH", True)
    failures = [event for event, context in records if context.get("operationId") == bad]
    assert failures == ["operation.failed", "operation.failed", "operation.given_up"]
    await assert_tables_are_what_the_log_says(database)


@pytest.mark.parametrize("trouble", ["no room", "no right"])
async def test_a_database_that_cannot_write_is_waited_for_and_is_no_attempt(
    database: str, repair: Callable[[], None], trouble: str
) -> None:
    # S3-29: only the operation's own failures count.
    async with opened(database, BUSY) as api, opened(database, CALM, [OperationExecutor()]):
        delayed = await accepted(api, item(trouble))
        path = f"/api/v1/operations/{delayed}"
        body = (await api.get(f"{path}?wait=true&timeout=2000")).json
        assert (body["status"], body["retryCount"]) == ("pending", 0)
        repair()
        assert (await until_done(api, delayed))["retryCount"] == 0


@pytest.mark.usefixtures("repair")
async def test_doctor_reports_a_failed_operation_and_explain_names_the_fix(
    database: str,
) -> None:
    # S3-49, S3-61, D-43
    async with opened(database, BUSY) as api, opened(database, CALM, [OperationExecutor()]) as calm:
        bad = await accepted(api, item("bad"))
        await until_failed(api, bad)
        job = {"queue": "mail", "type": "message", "partition": "a", "uniqueKey": "a/job"}
        behind = (await calm.post("/api/jobs", job)).json["job"]["id"]
        why = (await calm.get(f"/api/jobs/{behind}/explain")).json
        assert why["reasons"][0]["code"] == "BlockedByOperation"
        assert f"/api/v1/operations/{bad}/retry" in str(why["next"])
    async with await connect(reader_conninfo(database)) as reader:
        found = {one.what: one async for one in examine(reader)}
    finding = found["failed operations"]
    assert finding.health == "bad"
    assert bad in finding.sentence
    assert "this message is refused" in finding.sentence
    assert "/retry" in finding.next_step


async def test_doctor_and_metrics_report_operations_without_an_executor(database: str) -> None:
    # S3-49, S3-61: alerts look at the same numbers.
    async with opened(database, BUSY) as api:
        stuck = await accepted(api, item(1))
        rows(database, "UPDATE operations SET created_at = created_at - interval '1 hour'")
        metrics = (await api.get("/metrics")).body.decode()
        (age,) = re.findall(r'daybook_queue_age_seconds{kind="operation",queue=""} (.+)', metrics)
        assert 3600 <= float(age) < 3700
    async with await connect(reader_conninfo(database)) as reader:
        found = {one.what: one async for one in examine(reader)}
    assert stuck in found["operations"].sentence
    per_lane = "SELECT queue, partition, count(*) FROM operation_lanes GROUP BY 1, 2"
    assert ("mail", "a", 1) in rows(database, per_lane)


async def test_a_retried_operation_keeps_its_position(
    database: str, repair: Callable[[], None]
) -> None:
    # D-43: later operations waited.
    async with opened(database, BUSY) as api, opened(database, CALM, [OperationExecutor()]) as calm:
        bad = await accepted(api, item("first"), item("bad"))
        await until_failed(api, bad)
        after = await push(calm, item("after"))
        assert (after.status, after.json["reason"]) == (202, "maintaining_order")
        await until_done(calm, after.json["operationId"])
        assert await pop(calm, "a") == []
        await assert_tables_are_what_the_log_says(database)
        repair()
        assert (await act(calm, bad, "retry")).json["status"] == "pending"
        await until_done(calm, bad)
        assert await drained_lane(calm, 3) == ["first", "bad", "after"]
        again = await act(calm, bad, "retry")
        assert again.problem == (409, "operation-not-failed")
    await assert_tables_are_what_the_log_says(database)


@pytest.mark.usefixtures("repair")
async def test_a_failed_operation_that_is_cancelled_lets_its_lane_go_on(database: str) -> None:
    async with opened(database, BUSY) as api, opened(database, CALM, [OperationExecutor()]) as calm:
        bad = await accepted(api, item("bad"))
        await until_failed(api, bad)
        after = await push(calm, item("after"))
        await until_done(calm, after.json["operationId"])
        cancelled = (await act(calm, bad, "cancel")).json
        assert (cancelled["status"], "result" in cancelled) == ("cancelled", False)
        assert cancelled["processedAt"] is not None
        assert await drained_lane(calm, 1) == ["after"]
        assert (await act(calm, bad, "cancel")).problem == (409, "operation-over")
        why = "SELECT data ->> 'because' FROM log WHERE topic = 'operation.cancelled'"
        assert rows(database, why) == [("looked at",)]
    await assert_tables_are_what_the_log_says(database)


async def test_where_a_queue_skips_its_lanes_go_on_and_a_retry_comes_in_last(
    database: str, repair: Callable[[], None]
) -> None:
    # D-43
    async with opened(database, BUSY) as api, opened(database, CALM, [OperationExecutor()]) as calm:
        await calm.ask("PUT", "/api/queues/mail", {"lanes": "skip"})
        bad = await accepted(api, item("bad"))
        await until_failed(api, bad)
        assert (await push(calm, item("after"))).status == 201
        await assert_tables_are_what_the_log_says(database)
        repair()
        await act(calm, bad, "retry")
        await until_done(calm, bad)
        assert await drained_lane(calm, 2) == ["after", "bad"]
    await assert_tables_are_what_the_log_says(database)


async def test_failed_operations_do_not_count_as_pending(
    database: str, repair: Callable[[], None]
) -> None:
    # They would make every later push look as if it had to wait for ever.
    async with opened(database, BUSY) as api, opened(database, CALM, [OperationExecutor()]) as calm:
        bad = await accepted(api, item("bad"))
        await until_failed(api, bad)
        for number in range(5):
            await until_done(api, await accepted(api, item(number, partition="b")))
        async with opened(database, CALM) as fresh:
            health = (await fresh.get("/api/v1/operations/stats")).json["systemHealth"]
            assert health["queueDepth"] == 0
        repair()
        await act(calm, bad, "retry")
        await until_done(calm, bad)
