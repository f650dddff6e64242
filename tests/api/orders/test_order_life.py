"""The life cycle of an order over HTTP, with processors running."""

from contextlib import AsyncExitStack
from typing import Any
from uuid import UUID

import pytest

from daybook.api.app import App
from daybook.api.runtime.service import Service
from daybook.processors.processor import OrderRules
from tests.support.asgi_client import Api, some_settings
from tests.support.committer import eventually
from tests.support.running.service import completed

pytestmark = pytest.mark.anyio

DELAY_SECONDS = 0.4


async def open_restaurant(stack: AsyncExitStack, conninfo: str) -> Api:
    """A service with all that it does by itself."""
    service = Service(conninfo, order_rules=OrderRules(delay_seconds=DELAY_SECONDS))
    await stack.enter_async_context(service)
    return Api(App(service, some_settings(processing_delay_seconds=DELAY_SECONDS)), service)


async def seen(api: Api, order: dict[str, Any]) -> Any:
    return (await api.get(f"/api/orders/{order['id']}")).json["order"]


async def test_a_vips_order_is_created_claimed_cooked_and_followed_by_the_next(
    database: str,
) -> None:
    # S0-68
    async with AsyncExitStack() as stack:
        api, other = [await open_restaurant(stack, database) for _ in range(2)]
        normal, vip, bot = await api.order(), await api.order("VIP"), await api.bot()
        listed = (await other.get("/api/orders")).json["orders"]
        assert [order["id"] for order in listed] == [vip["id"], normal["id"]]

        claim = await api.post(f"/api/bots/{bot['id']}/claim")
        assert claim.json["order"]["id"] == vip["id"]
        assert await seen(other, vip) == claim.json["order"]
        busy = (await other.get(f"/api/bots/{bot['id']}")).json["bot"]
        assert (busy["status"], busy["currentOrderId"]) == ("PROCESSING", vip["id"])

        await eventually(lambda: completed(database) == [UUID(vip["id"])])
        done = await seen(other, vip)
        assert (done["status"], done["botId"]) == ("COMPLETE", bot["id"])
        assert done["completedAt"] >= done["dueAt"]
        following = await other.post(f"/api/bots/{bot['id']}/claim")
        assert following.json["order"]["id"] == normal["id"]
