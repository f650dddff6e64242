"""`GET /api/board`: a consistent snapshot."""

import pytest

from daybook.domain.orders.order import OrderStatus
from daybook.projections.orders import board as boards
from tests.support.asgi_client import Api

pytestmark = pytest.mark.anyio


async def test_the_board_matches_the_lists(api: Api) -> None:  # S0-46, S0-57
    for kind in ("NORMAL", "VIP", "NORMAL"):
        await api.order(kind)
    done, bot = await api.cooking()
    await api.patch(f"/api/orders/{done['id']}", {"status": "COMPLETE", "claimId": done["claimId"]})
    await api.post(f"/api/bots/{bot['id']}/claim")
    await api.bot()

    body = (await api.get("/api/board")).json

    assert [order["status"] for order in body["orders"]] == ["PENDING"] * 2 + [
        "PROCESSING",
        "COMPLETE",
    ]
    assert body["orders"] == (await api.get("/api/orders")).json["orders"]
    assert body["bots"] == (await api.get("/api/bots")).json["bots"]
    assert body["cut"] == []


async def test_the_position_is_that_of_the_newest_event_that_is_in_it(api: Api) -> None:
    assert (await api.get("/api/board")).json["position"] == 0

    written = await api.post("/api/orders", {"type": "VIP"})

    body = (await api.get("/api/board")).json
    assert body["position"] == int(written.headers["daybook-position"])
    assert len(body["orders"]) == 1


async def test_truncated_statuses_are_reported(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(boards.SHOWN_MAX, OrderStatus.PENDING, 2)
    for _ in range(2):
        await api.order()
    assert (await api.get("/api/board")).json["cut"] == []

    await api.order()

    body = (await api.get("/api/board")).json
    assert [order["orderNumber"] for order in body["orders"]] == [1, 2]
    assert body["cut"] == ["PENDING"]


async def test_the_dead_are_on_the_board(api: Api) -> None:
    order, _ = await api.cooking()
    failure = {"claimId": order["claimId"], "error": "burnt", "retryable": False}
    await api.post(f"/api/orders/{order['id']}/fail", failure)

    assert [one["status"] for one in (await api.get("/api/board")).json["orders"]] == ["DEAD"]
