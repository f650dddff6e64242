"""Cleared orders leave all current views and stay in histories."""

from typing import Any

import orjson
import pytest

from tests.api.admin.test_explain import codes, explained
from tests.api.log.test_sse import StreamedApi, connected
from tests.support.asgi_client import Api
from tests.support.committer import fold_of_the_log, live_rows
from tests.support.rebuilds import follow, verify, wrong

pytestmark = pytest.mark.anyio


async def complete_order(api: Api) -> dict[str, Any]:
    order, bot = await api.cooking()
    done = await api.patch(f"/api/orders/{order['id']}", {"status": "COMPLETE"})
    assert done.json["order"]["status"] == "COMPLETE"
    await api.delete(f"/api/bots/{bot['id']}")
    return order


async def listed(api: Api, path: str) -> list[str]:
    answer = await api.get(path)
    assert answer.status == 200, answer.body
    return [order["id"] for order in answer.json["orders"]]


@pytest.mark.parametrize("is_followed", [False, True])
async def test_cleared_complete_orders_leave_every_view_but_the_past(
    api: Api, database: str, is_followed: bool
) -> None:  # S0-62, D-09
    complete = [await complete_order(api) for _ in range(2)]
    ids = [order["id"] for order in reversed(complete)]
    pending = await api.order()
    if is_followed:
        await follow(database)
    assert await listed(api, "/api/board") == [pending["id"], *ids]
    head = (await api.get("/api/board")).json["position"]
    client = await connected(StreamedApi(api))

    answer = await api.delete("/api/orders/clear", daybook_reason="end of the day")

    assert (answer.json["cleared"], answer.json["completed"]) == (1, 2)
    position = int(answer.headers["daybook-position"])
    if is_followed:
        await follow(database)
    for path in ("/api/board", "/api/orders", "/api/orders?status=COMPLETE"):
        assert await listed(api, path) == [], path

    await client.got(position)
    await client.leave()
    body = [orjson.loads(block["data"]) for block in client.blocks]
    assert sorted(one["id"] for one in body) == sorted([pending["id"], *ids])
    assert {one["topic"] for one in body} == {"order.deleted"}

    assert await listed(api, f"/api/orders?asOf={head}") == [pending["id"], *ids]
    assert await listed(api, f"/api/orders?asOf={head}&status=COMPLETE") == ids
    assert await listed(api, f"/api/orders?asOf={position}") == []

    for order in complete:
        events = (await api.get(f"/api/orders/{order['id']}/history")).json["events"]
        topics = [event["topic"] for event in events]
        assert topics == ["order.created", "order.claimed", "order.completed", "order.deleted"]
        assert events[-1]["data"]["because"] == "end of the day"
        reasons = await explained(api, "orders", order)
        assert codes(reasons) == ["Deleted"]

    assert live_rows(database) == fold_of_the_log(database)
    await follow(database)
    compared = await verify(database)
    assert wrong(compared) == []
    assert [name for name, one in compared.items() if not one.is_equal or one.left_out] == []


async def test_a_cleared_complete_order_comes_back_by_a_restore(api: Api, database: str) -> None:
    order = await complete_order(api)
    cleared = await api.delete("/api/orders/clear")
    restored = await api.post(f"/api/orders/{order['id']}/restore")
    assert (restored.status, restored.json["order"]["status"]) == (200, "COMPLETE")
    then, now = (int(one.headers["daybook-position"]) for one in (cleared, restored))
    assert await listed(api, "/api/board") == [order["id"]]
    assert await listed(api, f"/api/orders?asOf={then}") == []
    assert await listed(api, f"/api/orders?asOf={now}") == [order["id"]]
    await follow(database)
    assert await listed(api, "/api/board") == [order["id"]]
    assert wrong(await verify(database)) == []


async def test_deleted_orders_take_no_room_from_complete_ones_in_the_past(api: Api) -> None:
    kept = await complete_order(api)
    for order in [await complete_order(api) for _ in range(2)]:
        deleted = await api.delete(f"/api/orders/{order['id']}")
    then = deleted.headers["daybook-position"]
    assert await listed(api, "/api/orders?status=COMPLETE&limit=2") == [kept["id"]]
    for limit in (1, 2):
        path = f"/api/orders?asOf={then}&status=COMPLETE&limit={limit}"
        assert await listed(api, path) == [kept["id"]]
