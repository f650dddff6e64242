"""Operators' reasons are recorded, and histories show them with the actor."""

from typing import Any

import pytest

from tests.api.jobs.test_commands import claim, create, say
from tests.support.api_jobs import bury
from tests.support.asgi_client import Api
from tests.support.committer import rows

pytestmark = pytest.mark.anyio

WHY = "Der Fritteuse fehlt Öl."
READ_REASONS = """
SELECT topic, actor, data ->> 'because' FROM log WHERE data ? 'because' ORDER BY position
"""


def reasons(database: str) -> list[str]:
    """The events that have a reason, which must be the test's."""
    found = rows(database, READ_REASONS)
    assert {why for _, _, why in found} <= {WHY}
    assert {actor for _, actor, _ in found} <= {"open"}
    return [topic for topic, _, _ in found]


async def done(api: Api, method: str, path: str, body: Any = None, **headers: str) -> None:
    answer = await api.ask(method, path, body, **headers)
    assert answer.status in (200, 201), answer.body


async def test_operators_commands_on_orders_and_bots_record_a_reason(
    api: Api, database: str
) -> None:
    # N10
    (order, bot), other = await api.cooking(), await api.order()
    reason = {"reason": WHY}
    await done(api, "PATCH", f"/api/orders/{order['id']}", {"status": "PENDING", **reason})
    await done(api, "POST", f"/api/bots/{bot['id']}/claim")
    await done(api, "PATCH", f"/api/bots/{bot['id']}", {"status": "IDLE", **reason})
    await done(api, "DELETE", f"/api/orders/{order['id']}", reason)
    await done(api, "POST", f"/api/orders/{order['id']}/restore", reason)
    await done(api, "DELETE", "/api/orders/clear", reason)
    await done(api, "DELETE", f"/api/bots/{bot['id']}", reason)
    assert reasons(database) == [
        *["bot.released", "order.released"] * 2,
        *["order.deleted", "order.restored"],
        *["order.deleted", "order.deleted", "bot.deleted"],
    ]
    body = (await api.get(f"/api/orders/{other['id']}/explain")).json
    assert body["reasons"][0]["because"] == WHY
    assert body["reasons"][0]["detail"] == f"It was deleted by open (reason: {WHY})."
    assert [event["because"] for event in body["events"]] == [None, WHY]
    history = (await api.get(f"/api/orders/{other['id']}/history")).json["events"]
    assert [event["data"].get("because") for event in history] == [None, WHY]


async def test_a_dead_order_that_is_put_back_says_why(api: Api, database: str) -> None:
    order, _ = await api.cooking()
    failure = {"claimId": order["claimId"], "error": "burnt", "retryable": False}
    await done(api, "POST", f"/api/orders/{order['id']}/fail", failure)
    await done(api, "POST", f"/api/orders/{order['id']}/requeue", {"reason": WHY})
    assert reasons(database) == ["order.requeued"]


async def test_operators_commands_on_jobs_and_queues_record_a_reason(
    api: Api, database: str
) -> None:
    first, second, _ = await bury(api, 3)
    reason = {"reason": WHY}
    await done(api, "POST", f"/api/jobs/{first['id']}/retry", reason)
    await done(api, "POST", f"/api/jobs/{second['id']}/cancel", reason)
    await done(api, "POST", "/api/dlq/redrive", reason)
    await done(api, "PUT", "/api/queues/email", {"paused": True, **reason})
    schedule = {"name": "nightly", "cron": "0 3 * * *", "job": {"queue": "email", "type": "send"}}
    await done(api, "POST", "/api/schedules", schedule)
    for verb in ("pause", "resume"):
        await done(api, "POST", f"/api/schedules/nightly/{verb}", reason)
    await done(api, "PATCH", "/api/schedules/nightly", {"cron": "0 4 * * *", **reason})
    await done(api, "DELETE", "/api/schedules/nightly", reason)
    assert reasons(database) == [
        *["job.requeued", "job.cancelled", "job.requeued", "queue.configured"],
        *["schedule.paused", "schedule.resumed", "schedule.changed", "schedule.deleted"],
    ]


async def test_a_reason_may_stand_in_a_header_where_there_is_no_body(
    api: Api, database: str
) -> None:
    order = await api.order()
    sent = [("daybook-reason", WHY.encode().decode("latin-1"))]
    answer = await api.send("DELETE", f"/api/orders/{order['id']}", headers=sent)
    assert answer.status == 200
    assert reasons(database) == ["order.deleted"]


async def test_without_a_reason_nothing_is_stored_of_it(api: Api, database: str) -> None:
    order = await api.order()
    await done(api, "DELETE", f"/api/orders/{order['id']}")
    assert reasons(database) == []


async def test_a_reason_is_neither_empty_nor_endless_nor_unreadable(api: Api) -> None:
    order = await api.order()
    path = f"/api/orders/{order['id']}"
    for body in ({"reason": ""}, {"reason": "x" * 501}, {"reason": 7}):
        assert (await api.ask("DELETE", path, body)).problem == (422, "schema")
    for header in ("", "x" * 501, "\xff", "a\0b"):
        answer = await api.send("DELETE", path, headers=[("daybook-reason", header)])
        assert answer.problem == (400, "bad-reason")


async def test_where_nothing_would_be_recorded_a_reason_is_refused(api: Api) -> None:
    order, _ = await api.cooking()
    body = {"status": "COMPLETE", "reason": WHY}
    assert (await api.patch(f"/api/orders/{order['id']}", body)).problem == (422, "schema")
    job = await create(api)
    (claimed,) = await claim(api)
    assert (await say(api, claimed, "release", reason=WHY)).problem == (422, "unknown-field")
    assert job["id"] == claimed["id"]


async def test_the_same_key_with_another_reason_is_another_request(api: Api) -> None:
    order = await api.order()
    path = f"/api/orders/{order['id']}"
    first = await api.ask("DELETE", path, {"reason": "a"}, idempotency_key="k")
    again = await api.ask("DELETE", path, {"reason": "a"}, idempotency_key="k")
    other = await api.ask("DELETE", path, {"reason": "b"}, idempotency_key="k")
    assert (first.status, again.body) == (200, first.body)
    assert other.problem == (422, "idempotency-key-reused")


async def test_an_order_that_an_operator_gave_to_a_bot_says_so(api: Api, database: str) -> None:
    order, bot = await api.order(), await api.bot()
    await done(
        api, "PATCH", f"/api/orders/{order['id']}", {"status": "PROCESSING", "botId": bot["id"]}
    )
    await api.cooking()
    found = rows(
        database,
        "SELECT data -> 'assigned' FROM log WHERE topic = 'order.claimed' ORDER BY position",
    )
    assert found == [(True,), (False,)]


async def test_a_completion_says_how_many_jobs_it_created(api: Api, database: str) -> None:
    await create(api)
    await create(api)
    first, second = await claim(api, limit=2)
    await say(api, first, "complete", then=[{"type": "a"}, {"type": "b"}])
    await say(api, second, "complete")
    query = "SELECT data -> 'follow_ups_count' FROM log WHERE topic = 'job.completed' ORDER BY 1"
    assert rows(database, query) == [(2,), (None,)]
