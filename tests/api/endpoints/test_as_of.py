"""asOf: lists as of any past moment."""

import asyncio
from datetime import UTC, datetime

import pytest

from tests.api.jobs.test_commands import claim, create, say
from tests.support.asgi_client import Api

pytestmark = pytest.mark.anyio


async def test_orders_and_bots_are_shown_as_of_a_position(api: Api) -> None:
    # SX-05
    first = await api.order()
    created = await api.post("/api/orders", {"type": "VIP"})
    then = created.headers["daybook-position"]
    bot = await api.bot()
    await api.post(f"/api/bots/{bot['id']}/claim")
    await api.patch(f"/api/orders/{created.json['order']['id']}", {"status": "COMPLETE"})
    past = (await api.get(f"/api/orders?asOf={then}")).json
    assert [order["id"] for order in past["orders"]] == [created.json["order"]["id"], first["id"]]
    assert {order["status"] for order in past["orders"]} == {"PENDING"}
    assert past["asOf"]["position"] == int(then)
    assert (await api.get(f"/api/bots?asOf={then}")).json["bots"] == []
    now = (await api.get("/api/orders")).json["orders"]
    head = (await api.post("/api/orders", {"type": "NORMAL"})).headers["daybook-position"]
    as_now = (await api.get(f"/api/orders?asOf={int(head) - 1}")).json["orders"]
    assert as_now == now


async def test_as_of_accepts_an_instant(api: Api) -> None:
    await api.order()
    await asyncio.sleep(0.02)
    between = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    await asyncio.sleep(0.02)
    await api.order()
    assert len((await api.get(f"/api/orders?asOf={between}")).json["orders"]) == 1
    assert (await api.get("/api/orders?asOf=2000-01-01T00:00:00Z")).json["orders"] == []


@pytest.mark.parametrize("text", ["yesterday", "2026-01-01", "2026-01-01T00:00:00", "-1", "999999"])
async def test_an_invalid_as_of_is_refused(api: Api, text: str) -> None:
    await api.order()
    assert (await api.get(f"/api/orders?asOf={text}")).problem == (400, "bad-parameter")


async def test_the_past_has_one_page(api: Api) -> None:
    assert (await api.get("/api/orders?asOf=0&cursor=x")).problem == (400, "bad-parameter")


async def test_jobs_and_queues_are_shown_as_of_a_position(api: Api) -> None:
    first = await create(api, subject="s")
    await create(api, type="other")
    ((claimed),) = await claim(api, types=["send"])
    then = (await say(api, claimed, "complete")).headers["daybook-position"]
    await api.ask("PUT", "/api/queues/email", {"paused": True})
    before = (await api.get(f"/api/jobs?asOf={int(then) - 1}&type=send")).json["jobs"]
    assert [(job["id"], job["status"]) for job in before] == [(first["id"], "PROCESSING")]
    after = (await api.get(f"/api/jobs?asOf={then}&subject=s")).json["jobs"]
    assert [(job["id"], job["status"]) for job in after] == [(first["id"], "COMPLETED")]
    ((queue),) = (await api.get(f"/api/queues?asOf={then}")).json["queues"]
    assert (queue["name"], queue["paused"], queue["pending"]) == ("email", False, 1)


async def test_finished_jobs_that_are_not_asked_for_take_no_room(api: Api) -> None:
    wanted = await create(api, type="send")
    for _ in range(3):
        await create(api, type="other")
    for kind in ("send", "other", "other", "other"):
        (job,) = await claim(api, types=[kind])
        then = (await say(api, job, "complete")).headers["daybook-position"]
    for filters in ("type=send", "type=send&status=COMPLETED"):
        past = (await api.get(f"/api/jobs?asOf={then}&limit=1&{filters}")).json["jobs"]
        assert [(job["id"], job["status"]) for job in past] == [(wanted["id"], "COMPLETED")]
