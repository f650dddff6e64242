"""Push, pop and acknowledge."""

import asyncio
import time
from typing import Any

import pytest
from uuid_utils.compat import uuid7

from daybook.domain.jobs.lane import lane_id
from tests.support.asgi_client import Api
from tests.support.running.processes import ROOT

pytestmark = pytest.mark.anyio


def item(payload: Any = None, **fields: Any) -> dict[str, Any]:
    return {"queue": "mail", "partition": "a", "payload": payload, **fields}


async def push(api: Api, *items: dict[str, Any]) -> list[dict[str, Any]]:
    answer = await api.post("/api/v1/push", {"items": items})
    assert answer.status == 201, answer.body
    assert answer.json["status"] == "executed"
    messages: list[dict[str, Any]] = answer.json["messages"]
    return messages


async def pop(api: Api, partition: str | None = None, **query: Any) -> list[dict[str, Any]]:
    of_lane = f"/partition/{partition}" if partition else ""
    asked = "&".join(f"{name}={value}" for name, value in query.items())
    answer = await api.get(f"/api/v1/pop/queue/mail{of_lane}?{asked}")
    assert answer.status == 200, answer.body
    messages: list[dict[str, Any]] = answer.json["messages"]
    return messages


def ack(message: dict[str, Any], status: str = "completed", **fields: Any) -> dict[str, Any]:
    named = {name: message[name] for name in ("transactionId", "partitionId", "leaseId")}
    return {**named, "status": status, **fields}


async def test_messages_come_out_of_their_lane_in_the_order_in_which_they_went_in(
    api: Api,
) -> None:
    # S3-06, S3-22, S3-36, S3-39
    await push(api, *(item(number) for number in range(3)))
    for number in range(3):
        (message,) = await pop(api, batch=10)
        assert (message["data"], message["retryCount"]) == (number, 0)
        assert message["partitionId"] == str(lane_id("mail", "a"))
        answer = await api.post("/api/v1/ack", ack(message))
        assert (answer.status, answer.json["status"]) == (200, "COMPLETED")
    assert await pop(api) == []


async def test_a_batch_over_several_lanes_is_handled_whole(api: Api) -> None:
    # S3-40, D-51
    await push(api, *(item(n, partition=lane) for n, lane in enumerate("abab:a")))
    popped = await pop(api, batch=10)
    assert {(one["partition"], one["data"]) for one in popped} == {("a", 0), ("b", 1), (":", 4)}
    acks = {"acknowledgments": [ack(one) for one in popped]}
    answer = await api.post("/api/v1/ack/batch", acks)
    assert [one["status"] for one in answer.json["acknowledgments"]] == ["COMPLETED"] * 3
    assert {one["data"] for one in await pop(api, batch=10)} == {2, 3}


async def test_a_transaction_id_makes_a_push_idempotent_in_its_lane(api: Api) -> None:
    # S3-11, D-44
    first = await push(api, item(1, transactionId="t"), item(2, partition="b", transactionId="t"))
    assert [one["status"] for one in first] == ["created", "created"]
    answer = await api.post("/api/v1/push", {"items": [item(9, transactionId="t")]})
    assert answer.json["messages"][0]["status"] == "duplicate"
    (message,) = await pop(api, "a")
    await api.post("/api/v1/ack", ack(message))
    again = await api.post("/api/v1/push", {"items": [item(9, transactionId="t")]})
    assert again.json["messages"][0]["status"] == "duplicate"
    assert await pop(api, "a") == []


async def test_without_a_partition_a_queue_is_one_lane(api: Api) -> None:
    await push(api, *({"queue": "mail", "payload": n} for n in range(2)))
    (message,) = await pop(api, batch=10)
    assert (message["partition"], message["data"]) == ("Default", 0)


async def test_a_failed_message_is_redelivered_before_later_ones(api: Api) -> None:
    await push(api, item(1, attemptsMax=2), item(2))
    (message,) = await pop(api)
    answer = await api.post("/api/v1/ack", ack(message, "failed", error="boom"))
    assert answer.json["status"] == "PENDING"
    (again,) = await pop(api, batch=10, wait="true", timeout=5000)
    assert (again["data"], again["retryCount"]) == (1, 1)
    answer = await api.post("/api/v1/ack", ack(again, "failed", error="boom"))
    assert answer.json["status"] == "DEAD"
    assert await pop(api) == [], "a dead head blocks its lane"


async def test_a_consumer_waiting_for_one_lane_is_woken_for_that_lane(api: Api) -> None:
    waiting = asyncio.create_task(pop(api, "b", wait="true", timeout=5000))
    await asyncio.sleep(0.1)
    await push(api, item(1))
    await asyncio.sleep(0.3)
    assert not waiting.done()
    began = time.monotonic()
    await push(api, item(2, partition="b"))
    ((message),) = await waiting
    assert message["data"] == 2
    assert time.monotonic() - began < 1


async def test_an_acknowledgment_that_names_a_lost_lease_is_refused_alone(api: Api) -> None:
    # S3-41, D-52: they are decided at once, never put off.
    await push(api, item(1), item(2, partition="b"))
    one, other = await pop(api, batch=2)
    lost = {**ack(one), "leaseId": str(uuid7())}
    answer = await api.post("/api/v1/ack/batch", {"acknowledgments": [lost, ack(other)]})
    body = answer.json["acknowledgments"]
    assert (body[0]["code"], body[1]["status"]) == ("claim_lost", "COMPLETED")
    assert (await api.post("/api/v1/ack", lost)).problem == (409, "claim-lost")


async def test_a_consumer_group_cannot_acknowledge_messages_of_another(api: Api) -> None:
    # S3-41
    await push(api, item(1))
    (message,) = await pop(api, consumerGroup="billing")
    for group, code in (("other", "claim_lost"), ("billing", None)):
        body = {"acknowledgments": [ack(message)], "consumerGroup": group}
        (content,) = (await api.post("/api/v1/ack/batch", body)).json["acknowledgments"]
        assert content.get("code") == code


@pytest.mark.parametrize("group", [None, "kitchen"])
async def test_an_acknowledgment_is_taken_as_clients_of_the_protocol_send_it(
    api: Api, group: str | None
) -> None:
    # S3-41: they name the error and the consumer group with every message, also if there is none.
    asked = {} if group is None else {"consumerGroup": group}
    await push(api, *(item(n, partition=f"p{n}", traceId=None) for n in range(3)))
    popped = await pop(
        api, batch=3, autoAck="false", subscriptionMode="all", subscriptionFrom="now", **asked
    )
    first, second, third = (ack(one, error=None, consumerGroup=group) for one in popped)
    assert (await api.post("/api/v1/ack", first)).json["status"] == "COMPLETED"
    batch = {"acknowledgments": [second], "consumerGroup": group}
    answer = await api.post("/api/v1/ack/batch", batch)
    assert [one["status"] for one in answer.json["acknowledgments"]] == ["COMPLETED"]
    transaction = {
        "acknowledgments": [third],
        "items": [item(traceId="4bf92f35", transactionId=None)],
        "consumerGroup": group,
        "requiredLeases": [third["leaseId"]],
    }
    answer = await api.post("/api/v1/transaction", transaction)
    assert [one["status"] for one in answer.json["acknowledgments"]] == ["COMPLETED"]


async def test_no_ack_endpoint_ends_the_lease_of_another_group(api: Api) -> None:
    await push(api, item(1))
    (message,) = await pop(api, consumerGroup="kitchen")
    wrong = ack(message, consumerGroup="bar")
    assert (await api.post("/api/v1/ack", wrong)).problem == (409, "claim-lost")
    batch = await api.post("/api/v1/ack/batch", {"acknowledgments": [wrong]})
    assert batch.json["acknowledgments"][0]["code"] == "claim_lost"
    for transaction, code in (
        ({"acknowledgments": [wrong]}, "claim-lost"),
        ({"acknowledgments": [ack(message)], "consumerGroup": "bar"}, "claim-lost"),
        ({"acknowledgments": [ack(message)], "requiredLeases": [str(uuid7())]}, "lease-lost"),
    ):
        refused = await api.post("/api/v1/transaction", {**transaction, "items": [item()]})
        assert refused.problem == (409, code), transaction
    assert (await api.post("/api/v1/ack", ack(message))).json["status"] == "COMPLETED"


async def test_responses_stored_before_deferred_pushes_are_replayed_unchanged(
    api: Api,
) -> None:
    # S3-57: and that a push may be queued now, the changelog says.
    answer = await api.post("/api/v1/push", {"items": [item(1)]})
    assert (answer.status, {*answer.json}) == (201, {"status", "messages"})
    (message,) = await pop(api)
    done = await api.post("/api/v1/ack", ack(message))
    assert (done.status, done.json["status"]) == (200, "COMPLETED")
    changes = ROOT.joinpath("CHANGELOG.md").read_text(encoding="utf-8")
    assert "**A push may now be `queued`**" in changes


async def test_a_transaction_acknowledges_and_pushes_all_or_nothing(api: Api) -> None:
    await push(api, item(1), item(2))
    (message,) = await pop(api)
    lost = {**ack(message), "leaseId": str(uuid7())}
    body = {"acknowledgments": [ack(message), lost], "items": [item(3, partition="b")]}
    assert (await api.post("/api/v1/transaction", body)).problem == (409, "claim-lost")
    assert await pop(api, batch=10) == []
    body["acknowledgments"] = [ack(message)]
    answer = await api.post("/api/v1/transaction", body)
    assert answer.json["acknowledgments"][0]["status"] == "COMPLETED"
    assert {one["data"] for one in await pop(api, batch=10)} == {2, 3}


async def test_a_lease_is_extended_until_it_is_lost(api: Api) -> None:
    await push(api, item(1))
    (message,) = await pop(api)
    path = f"/api/v1/lease/{message['leaseId']}/extend"
    answer = await api.post(path, {"seconds": 3600})
    assert answer.json["leaseUntil"] > message["leaseUntil"]
    await api.post("/api/v1/ack", ack(message))
    assert (await api.post(path)).problem == (409, "lease-lost")


async def test_asking_for_the_headers_of_a_pop_takes_nothing(api: Api) -> None:
    await push(api, item(1))
    assert (await api.send("HEAD", "/api/v1/pop/queue/mail")).status == 405
    assert len(await pop(api)) == 1
