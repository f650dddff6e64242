"""Explanations: reasons for a state, and the next step."""

from typing import Any

import pytest
from uuid_utils.compat import uuid7

from tests.api.jobs.test_commands import claim, create, say
from tests.support.asgi_client import Api

pytestmark = pytest.mark.anyio


async def explained(api: Api, kind: str, wanted: dict[str, Any]) -> dict[str, Any]:
    answer = await api.get(f"/api/{kind}/{wanted['id']}/explain")
    assert answer.status == 200, answer.body
    body: dict[str, Any] = answer.json
    assert all(reason["detail"] for reason in body["reasons"])
    return body


def codes(explanation: dict[str, Any]) -> list[str]:
    return [reason["code"] for reason in explanation["reasons"]]


async def test_an_order_without_a_bot_explains_the_orders_ahead(api: Api) -> None:
    # S4-41
    first, second = await api.order(), await api.order("VIP")
    explanation = await explained(api, "orders", first)
    assert codes(explanation) == ["NoIdleBot", "BehindPriority"]
    assert explanation["reasons"][1]["ahead"] == 1
    assert [event["topic"] for event in explanation["events"]] == ["order.created"]
    assert (await explained(api, "orders", second))["reasons"][1]["ahead"] == 0


async def test_an_order_waits_for_a_bot_that_claims_by_itself(api: Api) -> None:
    order = await api.order()
    await api.post("/api/bots", {"autoClaim": False})
    explanation = await explained(api, "orders", order)
    assert codes(explanation) == ["NoIdleBot", "BehindPriority"]
    assert explanation["reasons"][0]["detail"] == "No bot in service claims by itself."


async def test_an_order_that_is_being_cooked_names_its_bot_and_when_it_is_due(api: Api) -> None:
    order, bot = await api.cooking()
    explanation = await explained(api, "orders", order)
    assert codes(explanation) == ["HeldByBot"]
    assert explanation["reasons"][0]["botId"] == bot["id"]
    assert explanation["next"]["at"] == order["dueAt"]
    assert codes(await explained(api, "bots", bot)) == ["WorksOn"]


async def test_a_finished_aggregate_names_the_actor_that_ended_it(api: Api) -> None:
    order, bot = await api.cooking()
    await api.patch(f"/api/orders/{order['id']}", {"status": "COMPLETE"})
    assert codes(await explained(api, "orders", order)) == ["Done"]
    assert codes(await explained(api, "bots", bot)) == ["ClaimsOnlyWhenAsked"]
    await api.delete(f"/api/bots/{bot['id']}")
    assert codes(await explained(api, "bots", bot)) == ["Deleted"]


async def test_a_dead_order_explains_its_error_and_the_remedy(api: Api) -> None:
    order, _ = await api.cooking()
    failure = {"claimId": order["claimId"], "error": "burnt", "retryable": False}
    await api.post(f"/api/orders/{order['id']}/fail", failure)
    explanation = await explained(api, "orders", order)
    assert codes(explanation) == ["InDeadLetters"]
    assert explanation["reasons"][0]["error"] == "burnt"
    assert f"/api/orders/{order['id']}/requeue" in explanation["next"]["what"]


async def test_a_disabled_bot_lists_its_errors_and_the_pending_order_names_it(
    api: Api,
) -> None:  # SX-01
    bot = (await api.post("/api/bots", {"failuresMax": 1})).json["bot"]
    await api.order()
    order = (await api.post(f"/api/bots/{bot['id']}/claim")).json["order"]
    failure = {"claimId": order["claimId"], "error": "the fryer is off"}
    await api.post(f"/api/orders/{order['id']}/fail", failure)

    explanation = await explained(api, "bots", bot)
    assert (explanation["status"], codes(explanation)) == ("DEAD", ["OutOfService"])
    assert explanation["reasons"][0]["errors"] == ["the fryer is off"]
    assert "the fryer is off" in explanation["reasons"][0]["detail"]
    assert f"/api/bots/{bot['id']}/restore" in explanation["next"]["what"]

    explanation = await explained(api, "orders", order)
    assert codes(explanation) == ["NoIdleBot", "BotsOutOfService", "BehindPriority"]
    assert explanation["reasons"][1]["botIds"] == [bot["id"]]
    assert f"/api/bots/{bot['id']}/restore" in explanation["next"]["what"]
    assert explanation["events"][-1]["topic"] == "order.failed"

    await api.post(f"/api/bots/{bot['id']}/restore", {"reason": "switched on"})
    assert codes(await explained(api, "orders", order)) == ["NoIdleBot", "BehindPriority"]
    assert codes(await explained(api, "bots", bot)) == ["ClaimsOnlyWhenAsked"]


async def test_a_job_in_backoff_explains_its_failure_and_retry_time(api: Api) -> None:
    job = await create(api)
    ((claimed),) = await claim(api)
    assert codes(await explained(api, "jobs", job)) == ["LeaseHeld"]
    await say(api, claimed, "fail", error="timeout", retryAfterSeconds=60)
    explanation = await explained(api, "jobs", job)
    assert codes(explanation) == ["WaitingBackoff"]
    assert explanation["reasons"][0]["error"] == "timeout"
    assert explanation["next"]["at"] == explanation["reasons"][0]["until"]


async def test_a_job_in_a_paused_or_limited_queue_names_the_reason(api: Api) -> None:
    await api.ask("PUT", "/api/queues/email", {"paused": True})
    first, second = await create(api), await create(api, subject="s")
    assert codes(await explained(api, "jobs", second)) == ["PausedQueue", "BehindPriority"]
    limits = {"paused": False, "concurrency": 1, "rate": {"count": 1, "seconds": 60}}
    await api.ask("PUT", "/api/queues/email", limits)
    assert len(await claim(api)) == 1
    explanation = await explained(api, "jobs", second)
    assert codes(explanation) == ["ConcurrencyReached", "RateLimited", "BehindPriority"]
    assert explanation["next"]["at"] == explanation["reasons"][1]["until"]
    await api.post(f"/api/jobs/{first['id']}/cancel")
    assert codes(await explained(api, "jobs", first)) == ["Cancelled"]


async def test_blocked_jobs_do_not_count_as_ahead_of_a_ready_one(api: Api) -> None:
    await api.ask("PUT", "/api/queues/email", {"perSubject": {"concurrency": 2}})
    for _ in range(30):
        await create(api, subject="a")
    assert len(await claim(api)) == 1
    blocked = await create(api, subject="a")
    last = await create(api, subject="b")
    explanation = await explained(api, "jobs", last)
    assert [(one["code"], one["ahead"]) for one in explanation["reasons"]] == [
        ("BehindPriority", 1)
    ]
    assert len(await claim(api)) == 1
    explanation = await explained(api, "jobs", last)
    assert [(one["code"], one["ahead"]) for one in explanation["reasons"]] == [
        ("BehindPriority", 0)
    ]
    explanation = await explained(api, "jobs", blocked)
    assert codes(explanation) == ["ConcurrencyReached", "BehindPriority"]
    assert (explanation["reasons"][0]["subject"], explanation["reasons"][1]["ahead"]) == ("a", 28)


async def test_a_job_without_a_subject_does_not_wait_for_one(api: Api) -> None:
    per_subject = {"rate": {"count": 1, "seconds": 6000}}
    limits = {"rate": {"count": 10, "seconds": 600}, "perSubject": per_subject}
    await api.ask("PUT", "/api/queues/email", limits)
    await create(api)
    assert len(await claim(api)) == 1
    assert codes(await explained(api, "jobs", await create(api))) == ["BehindPriority"]


async def test_an_order_asked_for_as_a_job_is_not_found(api: Api) -> None:
    order = await api.order()
    assert (await api.get(f"/api/jobs/{order['id']}/explain")).problem == (404, "not-found")
    assert (await api.get(f"/api/orders/{uuid7()}/explain")).problem == (404, "not-found")
