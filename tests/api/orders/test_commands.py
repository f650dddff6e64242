"""Order endpoints: responses and refusals."""

import asyncio
import re
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest
from uuid_utils.compat import uuid7

from daybook.api.orders import commands as orders_module
from daybook.domain.orders.commands import ClearOrders
from tests.support.asgi_client import Api, open_api
from tests.support.committer import (
    fold_of_the_log,
    live_rows,
    open_submitter,
    rows,
    transactions_count,
)

pytestmark = pytest.mark.anyio

ORDER_MEMBERS = {
    *("id", "orderNumber", "type", "status", "userId", "botId", "claimId", "attempts"),
    *("createdAt", "processingStartedAt", "dueAt", "completedAt", "updatedAt", "deletedAt"),
    "version",
}
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def event_count(database: str) -> int:
    ((count,),) = rows(database, "SELECT count(*) FROM stored_events")
    return int(count)


async def dead(api: Api) -> dict[str, Any]:
    order, _ = await api.cooking()
    failure = {"claimId": order["claimId"], "error": "burnt", "retryable": False}
    failed = await api.post(f"/api/orders/{order['id']}/fail", failure)
    assert failed.json["order"]["status"] == "DEAD"
    return order


async def test_an_order_is_created_with_all_its_members(api: Api) -> None:  # S0-01, S0-58
    answer = await api.post("/api/orders", {"type": "VIP", "userId": "ada"})

    order = answer.json["order"]
    assert (answer.status, answer.json["message"]) == (201, "Order created successfully")
    assert set(order) == ORDER_MEMBERS
    assert UUID(order["id"]).version == 7
    assert (order["type"], order["status"], order["userId"]) == ("VIP", "PENDING", "ada")
    assert (order["orderNumber"], order["attempts"], order["version"]) == (1, 0, 1)
    assert MOMENT.fullmatch(order["createdAt"])
    assert order["updatedAt"] == order["createdAt"]
    assert {order[name] for name in ("botId", "claimId", "dueAt", "completedAt")} == {None}


async def test_a_write_returns_command_id_and_position(api: Api) -> None:
    first, second = await api.post("/api/orders", {"type": "VIP"}), await api.post("/api/bots")

    assert (first.headers["daybook-position"], second.headers["daybook-position"]) == ("1", "2")
    assert first.headers["daybook-command-id"] != second.headers["daybook-command-id"]
    assert "idempotent-replayed" not in first.headers


async def test_how_often_an_order_may_be_tried_is_a_setting(database: str) -> None:
    async with open_api(database, attempts_max=1) as api:
        order, _ = await api.cooking()
        failure = {"claimId": order["claimId"], "error": "burnt", "retryable": True}
        answer = await api.post(f"/api/orders/{order['id']}/fail", failure)

    assert answer.json["order"]["status"] == "DEAD"


async def test_a_batch_is_created_in_its_order(api: Api) -> None:
    kinds = ["VIP", "NORMAL", "VIP"]
    answer = await api.post("/api/orders/batch", {"orders": [{"type": kind} for kind in kinds]})

    assert answer.status == 201
    assert [order["type"] for order in answer.json["orders"]] == kinds
    assert [order["orderNumber"] for order in answer.json["orders"]] == [1, 2, 3]
    assert answer.headers["daybook-position"] == "3"


async def test_a_batch_of_a_thousand_is_created(api: Api) -> None:
    answer = await api.post("/api/orders/batch", {"orders": [{"type": "VIP"}] * 1000})

    assert len(answer.json["orders"]) == 1000


@pytest.mark.parametrize(
    ("orders", "path"),
    [
        ([], "$.orders"),
        ([{"type": "VIP"}] * 1001, "$.orders"),
        ([{"type": "VIP"}, {"type": "BOSS"}], "$.orders[1].type"),
        ([{"type": "VIP"}, {"type": "VIP", "userId": 7}], "$.orders[1].userId"),
    ],
)
async def test_of_a_batch_with_a_bad_item_nothing_is_created(
    api: Api, database: str, orders: list[Any], path: str
) -> None:
    answer = await api.post("/api/orders/batch", {"orders": orders})

    assert answer.problem == (422, "schema")
    assert path in answer.json["error"]
    assert event_count(database) == 0


async def test_an_order_is_given_to_a_bot_by_hand(api: Api) -> None:  # S0-16, S0-59
    order, bot = await api.order(), await api.bot()

    answer = await api.patch(
        f"/api/orders/{order['id']}", {"status": "PROCESSING", "botId": bot["id"]}
    )

    given = answer.json["order"]
    assert answer.status == 200
    assert (given["status"], given["botId"], given["attempts"]) == ("PROCESSING", bot["id"], 1)
    started, due = given["processingStartedAt"], given["dueAt"]
    assert (datetime.fromisoformat(due) - datetime.fromisoformat(started)).total_seconds() == 10


async def test_giving_an_order_to_the_bot_that_has_it_changes_nothing(api: Api) -> None:  # S0-17
    order, bot = await api.cooking()

    answer = await api.patch(
        f"/api/orders/{order['id']}", {"status": "PROCESSING", "botId": bot["id"]}
    )

    assert (answer.status, answer.json["order"]) == (200, order)
    assert "daybook-position" not in answer.headers


async def test_by_hand_only_an_idle_bot_that_exists_gets_an_order(api: Api) -> None:  # S0-17
    _, busy = await api.cooking()
    order, gone = await api.order(), await api.bot()
    await api.delete(f"/api/bots/{gone['id']}")
    path = f"/api/orders/{order['id']}"

    problems = [
        (await api.patch(path, {"status": "PROCESSING", "botId": str(bot_id)})).problem
        for bot_id in (busy["id"], uuid7(), gone["id"])
    ]

    assert problems == [(409, "bot-busy"), (404, "not-found"), (410, "bot-deleted")]


async def test_an_order_cannot_be_taken_from_another_bot(api: Api) -> None:  # S0-18
    (order, _), other = await api.cooking(), await api.bot()

    answer = await api.patch(
        f"/api/orders/{order['id']}", {"status": "PROCESSING", "botId": other["id"]}
    )

    assert answer.problem == (409, "order-taken")


async def test_an_order_is_put_back_into_the_queue(api: Api) -> None:  # S0-59
    order, bot = await api.cooking()

    answer = await api.patch(f"/api/orders/{order['id']}", {"status": "PENDING"})
    again = await api.post(f"/api/bots/{bot['id']}/claim")

    assert (answer.json["order"]["status"], answer.json["order"]["attempts"]) == ("PENDING", 0)
    assert again.json["order"]["id"] == order["id"]


async def test_an_order_is_completed_and_its_bot_is_free_in_one_transaction(
    api: Api, database: str
) -> None:  # S0-31, S0-59
    order, bot = await api.cooking()
    await api.order()

    answer = await api.patch(f"/api/orders/{order['id']}", {"status": "COMPLETE"})
    freed = (await api.get(f"/api/bots/{bot['id']}")).json["bot"]
    again = await api.post(f"/api/bots/{bot['id']}/claim")

    assert answer.json["order"]["status"] == "COMPLETE"
    assert MOMENT.fullmatch(answer.json["order"]["completedAt"])
    assert (freed["status"], freed["currentOrderId"]) == ("IDLE", None)
    assert again.json["message"] == "Order claimed"
    assert transactions_count(database, "order.completed", "bot.completed") == 1


async def test_a_bot_that_lost_its_claim_cannot_complete_with_it(api: Api) -> None:
    order, bot = await api.cooking()
    await api.patch(f"/api/bots/{bot['id']}", {"status": "IDLE"})
    again = (await api.post(f"/api/bots/{bot['id']}/claim")).json["order"]
    path = f"/api/orders/{order['id']}"

    late = await api.patch(path, {"status": "COMPLETE", "claimId": order["claimId"]})
    current = await api.patch(path, {"status": "COMPLETE", "claimId": again["claimId"]})

    assert again["id"] == order["id"]
    assert late.problem == (409, "claim-lost")
    assert current.json["order"]["status"] == "COMPLETE"


@pytest.mark.parametrize("status", ["PENDING", "COMPLETE"])
async def test_an_unclaimed_order_is_neither_completed_nor_released(api: Api, status: str) -> None:
    order = await api.order()

    answer = await api.patch(f"/api/orders/{order['id']}", {"status": status})

    assert answer.problem == (409, "order-not-processing")


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"status": "PROCESSING"},
        {"status": "DEAD"},
        {"status": "PENDING", "botId": str(uuid7())},
        {"status": "COMPLETE", "botId": str(uuid7())},
        {"botId": str(uuid7())},
        {"status": "PROCESSING", "botId": str(uuid7()), "claimId": str(uuid7())},
        {"status": "PROCESSING", "botId": "{" + str(uuid7()) + "}"},
        {"status": None},
    ],
)
async def test_any_other_change_is_refused(api: Api, change: dict[str, Any]) -> None:
    order = await api.order()

    assert (await api.patch(f"/api/orders/{order['id']}", change)).problem == (422, "schema")


async def test_a_failed_order_is_tried_again_until_it_is_dead(api: Api) -> None:
    order, bot = await api.cooking()
    statuses = []
    for _ in range(3):
        failure = {"claimId": order["claimId"], "error": "burnt", "retryable": True}
        failed = await api.post(f"/api/orders/{order['id']}/fail", failure)
        statuses.append(failed.json["order"]["status"])
        order = (await api.post(f"/api/bots/{bot['id']}/claim")).json["order"] or order

    assert statuses == ["PENDING", "PENDING", "DEAD"]


async def test_only_the_claim_that_holds_an_order_can_fail_it(api: Api) -> None:
    order, _ = await api.cooking()

    failure = {"claimId": str(uuid7()), "error": "burnt", "retryable": True}
    answer = await api.post(f"/api/orders/{order['id']}/fail", failure)

    assert answer.problem == (409, "claim-lost")


async def test_a_dead_order_is_requeued_once(api: Api) -> None:
    order = await dead(api)

    first = await api.post(f"/api/orders/{order['id']}/requeue")
    second = await api.post(f"/api/orders/{order['id']}/requeue")

    assert (first.json["order"]["status"], first.json["order"]["attempts"]) == ("PENDING", 0)
    assert second.problem == (409, "order-not-dead")


async def test_a_deleted_order_frees_its_bot_and_can_be_restored(
    api: Api, database: str
) -> None:  # S0-60, S0-42
    order, bot = await api.cooking()
    path = f"/api/orders/{order['id']}"

    deleted = await api.delete(path)
    nothing = await api.post(f"/api/bots/{bot['id']}/claim")
    twice = await api.delete(path)
    restored = await api.post(f"{path}/restore")
    not_deleted = await api.post(f"{path}/restore")

    assert (deleted.status, deleted.json["message"]) == (200, "Order deleted successfully")
    assert MOMENT.fullmatch(deleted.json["order"]["deletedAt"])
    assert nothing.json["message"] == "No pending orders"
    assert twice.problem == (410, "order-deleted")
    assert restored.json["order"]["status"] == "PENDING"
    assert restored.json["order"]["orderNumber"] == order["orderNumber"]
    assert not_deleted.problem == (409, "order-not-deleted")
    assert live_rows(database) == fold_of_the_log(database)


async def test_a_deleted_order_is_restored_by_the_body_that_the_source_prints(api: Api) -> None:
    # S0-60
    order = await api.order()
    path = f"/api/orders/{order['id']}"
    recovery = {"deletedAt": None, "status": "PENDING"}
    assert (await api.patch(path, recovery)).problem == (409, "order-not-deleted")
    await api.delete(path)
    assert (await api.patch(path, {"status": "PENDING"})).status == 409
    answer = await api.patch(path, {**recovery, "reason": "by mistake"})
    assert (answer.status, answer.json["order"]["status"]) == (200, "PENDING")
    assert answer.json["order"]["deletedAt"] is None
    for wrong in ({"status": "COMPLETE"}, {"botId": order["id"]}, {"deletedAt": "2026-01-01"}):
        assert (await api.patch(path, {**recovery, **wrong})).status == 422, wrong


async def test_clearing_deletes_open_orders_and_frees_the_bots(
    api: Api, database: str
) -> None:  # S0-62
    done, _ = await api.cooking()
    await api.patch(f"/api/orders/{done['id']}", {"status": "COMPLETE"})
    _, bot = await api.cooking()
    await api.order("VIP")

    answer = await api.delete("/api/orders/clear")
    after = await api.order()
    claimed = await api.post(f"/api/bots/{bot['id']}/claim")

    assert answer.json == {
        "message": "All orders cleared successfully",
        "cleared": 2,
        "completed": 1,
    }
    shown = (await api.get("/api/orders")).json["orders"]
    assert [order["id"] for order in shown] == [after["id"]]
    history = (await api.get(f"/api/orders/{done['id']}/history")).json["events"]
    assert [event["topic"] for event in history][-2:] == ["order.completed", "order.deleted"]
    assert transactions_count(database, "order.deleted", "bot.released") == 1
    assert after["orderNumber"] == 4
    assert claimed.json["order"]["id"] == after["id"]
    assert live_rows(database) == fold_of_the_log(database)


async def test_clearing_takes_any_number_of_complete_orders_and_a_replay_takes_no_more(
    api: Api, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # S0-62, D-09
    monkeypatch.setattr(orders_module, "CLEARED_AT_ONCE_MAX", 2)
    for _ in range(5):
        order, _ = await api.cooking()
        await api.patch(f"/api/orders/{order['id']}", {"status": "COMPLETE"})
    await api.cooking()
    key = {"idempotency_key": "clear-1", "daybook_reason": "end of the day"}
    answer = await api.delete("/api/orders/clear", **key)
    assert (answer.json["cleared"], answer.json["completed"]) == (1, 5)
    assert (await api.get("/api/orders")).json["orders"] == []
    reasons = rows(database, "SELECT data ->> 'because' FROM log WHERE topic = 'order.deleted'")
    assert reasons == [("end of the day",)] * 6

    order, _ = await api.cooking()
    await api.patch(f"/api/orders/{order['id']}", {"status": "COMPLETE"})
    again = await api.delete("/api/orders/clear", **key)
    assert again.json == answer.json
    assert len((await api.get("/api/orders?status=COMPLETE")).json["orders"]) == 1
    assert live_rows(database) == fold_of_the_log(database)


async def test_an_order_that_is_completed_while_all_are_cleared_is_cleared_too(
    database: str,
) -> None:
    async with open_submitter(database) as submitter:
        bot = await submitter.bot()
        await submitter.order()
        order = await submitter.claim(bot)
        assert order is not None
        # It was being cooked when the complete ones were looked for.
        await submitter.complete(order)
        cleared = (await submitter.submit(ClearOrders(complete=[order.id]))).result
    assert (cleared.open_count, cleared.complete_count) == (0, 1)


async def test_clearing_without_orders_records_no_event(api: Api, database: str) -> None:
    answer = await api.delete("/api/orders/clear")

    assert (answer.status, answer.json["cleared"]) == (200, 0)
    assert event_count(database) == 0


@pytest.mark.parametrize(
    ("method", "rest", "body"),
    [
        ("PATCH", "", {"status": "PENDING"}),
        ("PATCH", "", {"status": "PROCESSING", "botId": str(uuid7())}),
        ("DELETE", "", None),
        ("POST", "/restore", None),
        ("POST", "/requeue", None),
        ("POST", "/fail", {"claimId": str(uuid7()), "error": "", "retryable": True}),
    ],
)
async def test_there_is_nothing_to_do_with_an_unknown_order(
    api: Api, method: str, rest: str, body: Any
) -> None:
    order_id = uuid7()

    answer = await api.ask(method, f"/api/orders/{order_id}{rest}", body)

    assert answer.problem == (404, "not-found")
    assert answer.json["error"] == f"There is no order {order_id}."


async def test_concurrent_requests_get_their_own_orders(api: Api) -> None:
    answers = await asyncio.gather(
        *(api.post("/api/orders", {"type": "NORMAL", "userId": str(n)}) for n in range(50))
    )

    assert [answer.json["order"]["userId"] for answer in answers] == [*map(str, range(50))]
    assert len({answer.json["order"]["orderNumber"] for answer in answers}) == 50
