"""Bot endpoints: responses and refusals."""

import asyncio
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest
from uuid_utils.compat import uuid7

from tests.support.asgi_client import Api, open_api
from tests.support.committer import fold_of_the_log, live_rows, rows, transactions_count

pytestmark = pytest.mark.anyio

BOT_MEMBERS = {
    *("id", "status", "currentOrderId", "autoClaim", "completion", "createdAt", "updatedAt"),
    *("deletedAt", "version", "failuresMax", "failures", "errors", "deadAt"),
}


async def claim(api: Api, bot: dict[str, Any]) -> Any:
    return (await api.post(f"/api/bots/{bot['id']}/claim")).json


async def test_a_bot_is_created_with_all_its_members(api: Api) -> None:  # S0-04, S0-64
    answer = await api.post("/api/bots", {"autoClaim": True, "completion": "ack"})

    bot = answer.json["bot"]
    assert (answer.status, answer.json["message"]) == (201, "Bot created successfully")
    assert set(bot) == BOT_MEMBERS
    assert UUID(bot["id"]).version == 7
    assert (bot["status"], bot["currentOrderId"], bot["version"]) == ("IDLE", None, 1)
    assert (bot["autoClaim"], bot["completion"]) == (True, "ack")


@pytest.mark.parametrize("body", [None, {}])
async def test_a_bot_needs_no_particulars(api: Api, body: Any) -> None:
    bot = (await api.post("/api/bots", body)).json["bot"]

    assert (bot["autoClaim"], bot["completion"]) == (False, "timer")


async def test_a_bot_claims_the_most_urgent_order_in_one_transaction(
    api: Api, database: str
) -> None:  # S0-11, S0-12, S0-66
    await api.order()
    vip, bot = await api.order("VIP"), await api.bot()

    answer = await api.post(f"/api/bots/{bot['id']}/claim")

    order, busy = answer.json["order"], answer.json["bot"]
    assert (answer.status, answer.json["message"]) == (200, "Order claimed")
    assert (order["id"], order["status"], order["botId"]) == (vip["id"], "PROCESSING", bot["id"])
    assert (busy["status"], busy["currentOrderId"]) == ("PROCESSING", vip["id"])
    assert cooking_seconds(order) == 10
    assert transactions_count(database, "order.claimed", "bot.claimed") == 1


async def test_how_long_a_bot_cooks_is_a_setting(database: str) -> None:  # S0-84
    async with open_api(database, processing_delay_seconds=0.25) as api:
        order, _ = await api.cooking()
        config = await api.get("/api/config")

    assert config.json["botProcessingDelaySeconds"] == 0.25
    assert cooking_seconds(order) == 0.25


def cooking_seconds(order: dict[str, Any]) -> float:
    started, due = (datetime.fromisoformat(order[n]) for n in ("processingStartedAt", "dueAt"))
    return (due - started).total_seconds()


async def test_with_aging_a_normal_order_that_waited_goes_before_a_vip(database: str) -> None:
    async with open_api(database, vip_aging_seconds=0.1) as api:
        normal, bot = await api.order(), await api.bot()
        await asyncio.sleep(0.15)
        await api.order("VIP")

        assert (await claim(api, bot))["order"]["id"] == normal["id"]


async def test_a_claim_with_nothing_pending_gives_no_order_and_no_event(
    api: Api, database: str
) -> None:  # S0-13
    bot = await api.bot()

    answer = await api.post(f"/api/bots/{bot['id']}/claim")

    assert (answer.status, answer.json["order"]) == (200, None)
    assert (answer.json["message"], answer.json["bot"]) == ("No pending orders", bot)
    assert "daybook-position" not in answer.headers
    assert rows(database, "SELECT count(*) FROM stored_events") == [(1,)]


async def test_a_busy_an_unknown_and_a_deleted_bot_claim_nothing(api: Api) -> None:  # S0-14
    _, busy = await api.cooking()
    gone = await api.bot()
    await api.delete(f"/api/bots/{gone['id']}")
    await api.order()

    problems = [
        (await api.post(f"/api/bots/{bot_id}/claim")).problem
        for bot_id in (busy["id"], uuid7(), gone["id"])
    ]

    assert problems == [(409, "bot-busy"), (404, "not-found"), (410, "bot-deleted")]


async def test_of_claims_of_one_bot_at_once_one_succeeds_and_the_others_conflict(
    database: str,
) -> None:  # S0-14, D-07
    async with open_api(database) as one, open_api(database) as other:
        bot = await one.bot()
        await one.post("/api/orders/batch", {"orders": [{"type": "NORMAL"}] * 40})
        path = f"/api/bots/{bot['id']}/claim"
        answers = await asyncio.gather(*(api.post(path) for api in (one, other) * 20))

    refused = [answer.problem for answer in answers if answer.status != 200]
    assert refused == [(409, "bot-busy")] * 39
    assert rows(database, "SELECT count(*) FROM log WHERE topic = 'order.claimed'") == [(1,)]


async def test_a_stopped_bot_is_idle_and_its_order_pending(api: Api) -> None:  # S0-43, S0-65
    order, bot = await api.cooking()
    other = await api.bot()

    answer = await api.patch(f"/api/bots/{bot['id']}", {"status": "IDLE"})
    again = await api.patch(f"/api/bots/{bot['id']}", {"status": "IDLE"})

    assert (answer.status, answer.json["bot"]["status"]) == (200, "IDLE")
    assert (await claim(api, other))["order"]["id"] == order["id"]
    assert again.json["bot"] == answer.json["bot"]
    assert "daybook-position" not in again.headers


async def test_a_stuck_bot_is_recovered_by_the_body_that_the_source_prints(api: Api) -> None:
    # S0-65
    order, bot = await api.cooking()
    recovery = {"status": "IDLE", "currentOrderId": None}
    answer = await api.patch(f"/api/bots/{bot['id']}", recovery)
    assert (answer.status, answer.json["bot"]["status"]) == (200, "IDLE")
    assert answer.json["bot"]["currentOrderId"] is None
    assert (await claim(api, await api.bot()))["order"]["id"] == order["id"]
    wrong = {"status": "IDLE", "currentOrderId": order["id"]}
    assert (await api.patch(f"/api/bots/{bot['id']}", wrong)).status == 422


@pytest.mark.parametrize("change", [{}, {"status": "PROCESSING"}, {"status": 1}])
async def test_any_other_change_of_a_bot_is_refused(api: Api, change: dict[str, Any]) -> None:
    bot = await api.bot()

    assert (await api.patch(f"/api/bots/{bot['id']}", change)).problem == (422, "schema")


async def test_a_deleted_bot_returns_its_order_to_its_position(
    api: Api, database: str
) -> None:  # S0-67
    order, bot = await api.cooking()
    await api.order()
    other = await api.bot()

    answer = await api.delete(f"/api/bots/{bot['id']}")
    twice = await api.delete(f"/api/bots/{bot['id']}")

    assert (answer.status, answer.json["message"]) == (200, "Bot deleted successfully")
    assert answer.json["bot"]["deletedAt"] is not None
    assert twice.problem == (410, "bot-deleted")
    assert (await claim(api, other))["order"]["id"] == order["id"]
    assert live_rows(database) == fold_of_the_log(database)


async def test_the_order_of_the_newest_bot_starts_anew_when_that_bot_is_removed(
    api: Api,
) -> None:  # S0-O3
    first, _ = await api.cooking()
    second, newest = await api.cooking()
    listed = (await api.get("/api/bots")).json["bots"]
    assert listed[0]["id"] == newest["id"]

    await api.delete(f"/api/bots/{listed[0]['id']}")
    later = await api.order()
    orders = (await api.get("/api/orders")).json["orders"]
    again = (await claim(api, await api.bot()))["order"]

    assert [order["id"] for order in orders] == [second["id"], later["id"], first["id"]]
    assert (again["id"], again["orderNumber"]) == (second["id"], second["orderNumber"])
    assert (again["attempts"], cooking_seconds(again)) == (1, 10)
    assert again["processingStartedAt"] >= second["processingStartedAt"]


async def test_only_an_idle_bot_is_deleted_if_one_asks_for_that(api: Api) -> None:  # S0-41
    order, bot = await api.cooking()
    path = f"/api/bots/{bot['id']}?onlyIfIdle=true"

    refused = await api.delete(path)
    await api.patch(f"/api/orders/{order['id']}", {"status": "COMPLETE"})
    deleted = await api.delete(path)

    assert refused.problem == (409, "in-use")
    assert refused.json["error"] == "Cannot delete bot currently processing an order"
    assert deleted.status == 200


async def test_a_flag_is_true_or_false(api: Api) -> None:
    bot = await api.bot()

    answer = await api.delete(f"/api/bots/{bot['id']}?onlyIfIdle=yes")

    assert answer.problem == (400, "bad-parameter")


@pytest.mark.parametrize(
    ("method", "rest", "body"),
    [("PATCH", "", {"status": "IDLE"}), ("DELETE", "", None), ("POST", "/claim", None)],
)
async def test_there_is_nothing_to_do_with_an_unknown_bot(
    api: Api, method: str, rest: str, body: Any
) -> None:
    answer = await api.ask(method, f"/api/bots/{uuid7()}{rest}", body)

    assert answer.problem == (404, "not-found")


async def test_of_many_bots_each_gets_its_own_answer(api: Api) -> None:
    _, busy = await api.cooking()
    first, second = await api.order("VIP"), await api.order()
    bots = [await api.bot() for _ in range(3)]
    ids = [busy["id"], *(bot["id"] for bot in bots), str(uuid7())]

    answer = await api.post("/api/bots/claim", {"botIds": ids})

    claims = answer.json["claims"]
    assert answer.status == 200
    assert [one["botId"] for one in claims] == ids
    assert [one.get("code") for one in claims] == ["bot_busy", None, None, None, "not_found"]
    assert claims[0]["error"].startswith(f"Bot {busy['id']} is already processing")
    taken = [one["order"] and one["order"]["id"] for one in claims[1:4]]
    assert taken == [first["id"], second["id"], None]
    assert int(answer.headers["daybook-position"]) == 13
    assert answer.headers["daybook-command-id"]


async def test_many_bots_may_be_a_thousand_and_none_twice(api: Api) -> None:
    ids = [str(uuid7()) for _ in range(1001)]

    most = await api.post("/api/bots/claim", {"botIds": ids[:1000]})
    too_many = await api.post("/api/bots/claim", {"botIds": ids})
    none = await api.post("/api/bots/claim", {"botIds": []})
    twice = await api.post("/api/bots/claim", {"botIds": [ids[0], ids[0]]})

    assert {claim["code"] for claim in most.json["claims"]} == {"not_found"}
    assert {one.problem for one in (too_many, none, twice)} == {(422, "schema")}


async def test_bots_that_claim_at_once_get_different_orders(api: Api) -> None:  # S0-69
    await api.post("/api/orders/batch", {"orders": [{"type": "NORMAL"}] * 30})
    bots = [await api.bot() for _ in range(40)]

    claimed = await asyncio.gather(*(claim(api, bot) for bot in bots))

    taken = [one["order"]["id"] for one in claimed if one["order"]]
    assert len(taken) == len(set(taken)) == 30


async def fail(api: Api, bot: dict[str, Any], error: str = "burnt") -> Any:
    order = (await api.post(f"/api/bots/{bot['id']}/claim")).json["order"]
    failure = {"claimId": order["claimId"], "error": error, "retryable": False}
    return (await api.post(f"/api/orders/{order['id']}/fail", failure)).json


async def dead_bot(api: Api, **given: Any) -> Any:
    bot = (await api.post("/api/bots", {"failuresMax": 2, **given})).json["bot"]
    for number in (1, 2):
        await api.order()
        await fail(api, bot, f"burnt {number}")
    return (await api.get(f"/api/bots/{bot['id']}")).json["bot"]


# SX-01
async def test_a_bot_that_keeps_failing_is_out_of_service_until_it_is_restored(
    api: Api, database: str
) -> None:
    bot = await dead_bot(api)
    assert (bot["status"], bot["failures"], bot["failuresMax"]) == ("DEAD", 2, 2)
    assert (bot["errors"], bot["currentOrderId"]) == (["burnt 1", "burnt 2"], None)
    assert bot["deadAt"] == bot["updatedAt"]
    order = await api.order()

    refused = await api.post(f"/api/bots/{bot['id']}/claim")
    assert refused.problem == (409, "bot-dead")
    assert "burnt 2" in refused.json["detail"]
    assert f"/api/bots/{bot['id']}/restore" in refused.json["detail"]
    many = (await api.post("/api/bots/claim", {"botIds": [bot["id"]]})).json["claims"]
    assert [(one["order"], one["code"]) for one in many] == [(None, "bot_dead")]
    given = {"status": "PROCESSING", "botId": bot["id"]}
    assert (await api.patch(f"/api/orders/{order['id']}", given)).problem == (409, "bot-dead")
    assert (await api.get(f"/api/orders/{order['id']}")).json["order"]["attempts"] == 0

    path = f"/api/bots/{bot['id']}/restore"
    assert (await api.post(path, {})).problem == (422, "schema")
    answer = await api.post(path, {"reason": "The fryer is repaired."})

    restored = answer.json["bot"]
    assert (restored["status"], restored["failures"], restored["errors"]) == ("IDLE", 0, [])
    assert restored["deadAt"] is None
    assert (await claim(api, bot))["order"]["id"] == order["id"]
    assert (await api.post(path, {"reason": "again"})).problem == (409, "bot-not-dead")
    because = rows(database, "SELECT state FROM stored_events WHERE topic = 'bot.restored'")
    assert b"The fryer is repaired." in because[0][0]
    assert live_rows(database) == fold_of_the_log(database)


async def test_by_default_five_failures_take_a_bot_out_of_service(api: Api) -> None:
    bot = await api.bot()
    assert bot["failuresMax"] == 5
    await api.post("/api/orders/batch", {"orders": [{"type": "NORMAL"}] * 6})
    for _ in range(5):
        assert (await claim(api, bot))["bot"]["status"] == "PROCESSING"
        await api.patch(f"/api/bots/{bot['id']}", {"status": "IDLE"})
        await fail(api, bot)
    assert (await api.post(f"/api/bots/{bot['id']}/claim")).problem == (409, "bot-dead")


async def test_the_limit_of_failures_can_be_changed_and_that_is_recorded(
    api: Api, database: str
) -> None:
    bot = await api.bot()
    await api.order()
    await fail(api, bot)

    body = {"failuresMax": 0, "reason": "a new fryer"}
    changed = (await api.patch(f"/api/bots/{bot['id']}", body)).json["bot"]

    assert (changed["failuresMax"], changed["failures"], changed["errors"]) == (0, 0, [])
    same = (await api.patch(f"/api/bots/{bot['id']}", body)).json["bot"]
    assert same["version"] == changed["version"]
    assert rows(database, "SELECT count(*) FROM stored_events WHERE topic = 'bot.configured'") == [
        (1,)
    ]
    assert live_rows(database) == fold_of_the_log(database)


@pytest.mark.parametrize(
    "body", [{}, {"failuresMax": -1}, {"failuresMax": 1001}, {"status": "IDLE", "failuresMax": 1}]
)
async def test_a_change_of_a_bot_that_makes_no_sense_is_refused(api: Api, body: Any) -> None:
    bot = await api.bot()
    assert (await api.patch(f"/api/bots/{bot['id']}", body)).problem == (422, "schema")
