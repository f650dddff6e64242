"""Order and bot queries: current, sorted, free of side effects."""

import asyncio

import pytest
from uuid_utils.compat import uuid7

from daybook.api.runtime.service import Service
from daybook.eventlog.reading.follower import Follower
from daybook.projections.orders.finished_orders import FinishedOrders
from tests.support.asgi_client import Api, api_of, open_api
from tests.support.committer import MAPPER, rows
from tests.support.databases.tcp_proxy import proxy_to

pytestmark = pytest.mark.anyio

ORDER_MEMBERS = [
    "id",
    "orderNumber",
    "type",
    "status",
    "userId",
    "botId",
    "claimId",
    "attempts",
    "createdAt",
    "processingStartedAt",
    "dueAt",
    "completedAt",
    "updatedAt",
    "deletedAt",
    "version",
]


async def cook(api: Api) -> str:
    """The most urgent order is complete afterwards."""
    bot = await api.bot()
    claimed = (await api.post(f"/api/bots/{bot['id']}/claim")).json["order"]
    done = await api.patch(f"/api/orders/{claimed['id']}", {"status": "COMPLETE"})
    assert done.status == 200, done.body
    order_id: str = claimed["id"]
    return order_id


async def test_the_list_is_in_the_order_of_the_board(api: Api) -> None:  # S0-08, S0-28, S0-57
    first, vip = await api.order(), await api.order("VIP")
    await cook(api)
    order, bot = await api.cooking()
    second = await api.order()
    urgent = await api.order("VIP")

    answer = await api.get("/api/orders")

    listed = answer.json["orders"]
    assert list(answer.json) == ["orders", "nextCursor", "serverNow"]
    waiting = [listed[0]["id"], listed[1]["id"], listed[2]["id"]]
    assert order["id"] == first["id"]
    assert waiting[0] == urgent["id"]
    assert waiting[2] == second["id"]
    assert [one["status"] for one in listed] == [*["PENDING"] * 3, "PROCESSING", "COMPLETE"]
    assert (listed[3]["id"], listed[3]["botId"]) == (first["id"], bot["id"])
    assert listed[4]["id"] == vip["id"]
    assert all(list(one) == ORDER_MEMBERS for one in listed)
    assert answer.json["nextCursor"] is None
    assert answer.json["serverNow"] >= listed[0]["createdAt"]


async def test_one_order_equals_its_list_entry(api: Api) -> None:  # S0-01
    await api.order()
    await api.cooking()
    await api.order("VIP")
    await cook(api)

    for listed in (await api.get("/api/orders")).json["orders"]:
        assert (await api.get(f"/api/orders/{listed['id']}")).json == {"order": listed}


@pytest.mark.parametrize("is_followed", [False, True])
async def test_a_complete_order_keeps_its_bot_and_times(
    api: Api, database: str, is_followed: bool
) -> None:  # S0-01
    cooking, bot = await api.cooking()
    completed = await api.patch(f"/api/orders/{cooking['id']}", {"status": "COMPLETE"})
    if is_followed:
        follower = Follower(database, FinishedOrders(), MAPPER)
        await follower.catch_up()
        await follower.close()

    shown = [
        completed.json["order"],
        (await api.get(f"/api/orders/{cooking['id']}")).json["order"],
        *(await api.get("/api/orders")).json["orders"],
    ]

    assert [one["status"] for one in shown] == ["COMPLETE"] * 3
    for one in shown:
        kept = {name: one[name] for name in ("botId", "claimId", "processingStartedAt", "dueAt")}
        assert kept == {name: cooking[name] for name in kept}
    assert shown[0]["botId"] == bot["id"]
    assert (await api.get(f"/api/bots/{bot['id']}")).json["bot"]["currentOrderId"] is None


async def test_a_deleted_order_is_in_no_list_and_still_found_by_its_id(api: Api) -> None:
    order = await api.order()
    await api.delete(f"/api/orders/{order['id']}")

    assert (await api.get("/api/orders")).json["orders"] == []
    found = (await api.get(f"/api/orders/{order['id']}")).json["order"]
    assert found["deletedAt"] is not None


async def test_a_list_is_read_page_by_page(api: Api) -> None:
    for _ in range(5):
        await api.order()

    first = (await api.get("/api/orders?limit=2&status=PENDING")).json
    second = (
        await api.get(f"/api/orders?limit=2&status=PENDING&cursor={first['nextCursor']}")
    ).json
    third = (
        await api.get(f"/api/orders?limit=9&status=PENDING&cursor={second['nextCursor']}")
    ).json

    pages = [[order["orderNumber"] for order in page["orders"]] for page in (first, second, third)]
    assert pages == [[1, 2], [3, 4], [5]]
    assert third["nextCursor"] is None


async def test_bots_are_listed_newest_first_and_found_by_id(api: Api) -> None:  # S0-04, S0-63
    made = [await api.bot() for _ in range(3)]
    await api.delete(f"/api/bots/{made[1]['id']}")

    assert (await api.get("/api/bots")).json == {"bots": [made[2], made[0]]}
    assert (await api.get(f"/api/bots/{made[0]['id']}")).json == {"bot": made[0]}
    assert (await api.get(f"/api/bots/{made[1]['id']}")).json["bot"]["deletedAt"] is not None


@pytest.mark.parametrize("kind", ["orders", "bots"])
async def test_an_unknown_id_is_not_found(api: Api, kind: str) -> None:
    order, bot = await api.order(), await api.bot()
    other = bot if kind == "orders" else order

    assert (await api.get(f"/api/{kind}/{uuid7()}")).problem == (404, "not-found")
    assert (await api.get(f"/api/{kind}/{other['id']}")).problem == (404, "not-found")
    assert (await api.get(f"/api/{kind}/17")).problem == (400, "bad-id")


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("limit=0", "bad-parameter"),
        ("limit=5001", "bad-parameter"),
        ("limit=-1", "bad-parameter"),
        ("limit=%D9%A3", "bad-parameter"),
        ("limit=" + "9" * 5000, "bad-parameter"),
        ("limit=", "bad-parameter"),
        ("status=pending", "bad-parameter"),
        ("status=", "bad-parameter"),
        ("limit=1&limit=2", "duplicate-parameter"),
        ("page=2", "unknown-parameter"),
        ("cursor=", "bad-cursor"),
        ("cursor=x", "bad-cursor"),
        ("cursor=" + "A" * 100_000, "bad-cursor"),
    ],
)
async def test_a_query_that_makes_no_sense_is_refused(api: Api, query: str, problem: str) -> None:
    assert (await api.get(f"/api/orders?{query}")).problem == (400, problem)


async def test_a_cursor_of_another_list_is_refused(api: Api) -> None:
    for _ in range(2):
        await api.order()
    cursor = (await api.get("/api/orders?limit=1")).json["nextCursor"]

    answer = await api.get(f"/api/orders?limit=1&status=PENDING&cursor={cursor}")
    assert answer.problem == (400, "bad-cursor")


@pytest.mark.parametrize("path", ["/api/bots", "/api/bots/{bot}", "/api/orders/{order}"])
async def test_other_reads_take_no_parameters(api: Api, path: str) -> None:
    order, bot = await api.order(), await api.bot()
    where = path.format(order=order["id"], bot=bot["id"])

    assert (await api.get(f"{where}?limit=1")).problem == (400, "unknown-parameter")


async def test_reading_changes_nothing(api: Api, database: str) -> None:  # S0-57, D-04
    order, bot = await api.cooking()
    count = rows(database, "SELECT count(*) FROM stored_events")
    for path in (
        "/api/orders",
        f"/api/orders/{order['id']}",
        "/api/bots",
        f"/api/bots/{bot['id']}",
    ):
        assert (await api.get(path)).status == 200

    assert rows(database, "SELECT count(*) FROM stored_events") == count


async def test_any_number_of_reads_at_once_recover_nothing(database: str) -> None:  # S0-07, D-04
    async with open_api(database, processing_delay_seconds=0.01) as api:
        order, _ = await api.cooking()
        await asyncio.sleep(0.05)
        count = rows(database, "SELECT count(*) FROM stored_events")
        answers = await asyncio.gather(*(api.get("/api/orders") for _ in range(100)))

    assert {answer.json["orders"][0]["status"] for answer in answers} == {"PROCESSING"}
    assert answers[0].json["serverNow"] > order["dueAt"]
    assert rows(database, "SELECT count(*) FROM stored_events") == count


@pytest.mark.parametrize("path", ["/api/orders", "/api/bots", "/api/orders/{id}"])
async def test_an_unreachable_database_gives_503_within_a_second(database: str, path: str) -> None:
    async with proxy_to(database) as proxy, Service(proxy.conninfo, processors=()) as service:
        api, path = api_of(service), path.format(id=uuid7())
        await api.get(path)
        proxy.refusing = True
        proxy.drop_all()
        began = asyncio.get_running_loop().time()
        away = await api.get(path)

        assert asyncio.get_running_loop().time() - began < 1.5
        assert away.problem == (503, "unavailable")
        assert away.headers["retry-after"] == "1"
