"""Idempotency-Key: a retry has no second effect and gets the same response."""

import asyncio
from typing import Any

import pytest
from uuid_utils.compat import uuid7

from tests.support.asgi_client import JSON, Api, open_api
from tests.support.committer import rows
from tests.support.databases.tcp_proxy import proxy_to

pytestmark = pytest.mark.anyio


def order_count(database: str) -> int:
    query = "SELECT count(*) FROM stored_events WHERE topic = 'order.created'"
    return int(rows(database, query)[0][0])


async def test_the_same_request_again_gets_the_same_answer(api: Api, database: str) -> None:
    first = await api.post("/api/orders", {"type": "VIP"}, idempotency_key="k1")
    await api.order()
    second = await api.post("/api/orders", {"type": "VIP"}, idempotency_key="k1")

    assert (second.status, second.body) == (first.status, first.body)
    assert second.headers == {**first.headers, "idempotent-replayed": "true"}
    assert order_count(database) == 2


async def test_the_same_json_written_otherwise_is_the_same_request(api: Api) -> None:
    headers = {**JSON, "Idempotency-Key": "k1"}
    texts = [
        b'{"type":"VIP","userId":"ada"}',
        b' { "userId" : "ad\\u0061",\n "type":"VIP" } ',
    ]

    first, second = [await api.send("POST", "/api/orders", [text], headers) for text in texts]

    assert second.body == first.body
    assert second.headers["idempotent-replayed"] == "true"


async def test_another_request_with_the_same_key_is_refused(api: Api, database: str) -> None:
    await api.post("/api/orders", {"type": "VIP"}, idempotency_key="k1")

    answer = await api.post("/api/orders", {"type": "NORMAL"}, idempotency_key="k1")

    assert answer.problem == (422, "idempotency-key-reused")
    assert order_count(database) == 1


async def test_another_path_is_another_request(api: Api) -> None:
    one, other = await api.order(), await api.order()

    deleted = await api.delete(f"/api/orders/{one['id']}", idempotency_key="k1")
    refused = await api.delete(f"/api/orders/{other['id']}", idempotency_key="k1")

    assert deleted.status == 200
    assert refused.problem == (422, "idempotency-key-reused")


async def test_another_parameter_is_another_request(api: Api) -> None:
    bot = await api.bot()

    await api.delete(f"/api/bots/{bot['id']}", idempotency_key="k1")
    refused = await api.delete(f"/api/bots/{bot['id']}?onlyIfIdle=true", idempotency_key="k1")

    assert refused.problem == (422, "idempotency-key-reused")


async def test_another_route_or_method_is_another_request(api: Api) -> None:
    bot = await api.post("/api/bots", idempotency_key="k1")
    path = f"/api/bots/{bot.json['bot']['id']}"
    await api.post(f"{path}/claim", idempotency_key="k2")

    refused = [
        await api.post("/api/orders", {"type": "VIP"}, idempotency_key="k1"),
        await api.delete(path, idempotency_key="k2"),
        await api.delete(path, idempotency_key="k1"),
        await api.post("/api/bots/claim", {"botIds": [path[-36:]]}, idempotency_key="k2"),
    ]

    assert {answer.problem for answer in refused} == {(422, "idempotency-key-reused")}
    assert (await api.get(path)).json["bot"]["deletedAt"] is None


async def test_bulk_claims_use_no_idempotency_keys_of_other_requests(api: Api) -> None:
    """Each claim has a key of its own, derived from the request's."""
    bot = await api.bot()
    await api.post("/api/bots/claim", {"botIds": [bot["id"]]}, idempotency_key="k1")

    for key in (f"k1-{bot['id']}", f"k1{bot['id']}", bot["id"]):
        assert (await api.post("/api/bots", idempotency_key=key)).status == 201
    assert (await api.post("/api/bots", idempotency_key=f"k1 {bot['id']}")).status == 400


async def test_fifty_at_once_have_one_effect_and_one_answer(api: Api, database: str) -> None:
    answers = await asyncio.gather(
        *(api.post("/api/orders", {"type": "VIP"}, idempotency_key="k1") for _ in range(50))
    )

    assert {(answer.status, answer.body) for answer in answers} == {(201, answers[0].body)}
    assert {answer.headers["daybook-position"] for answer in answers} == {"1"}
    assert sum("idempotent-replayed" in answer.headers for answer in answers) == 49
    assert order_count(database) == 1


async def test_fifty_at_once_at_two_services_have_one_effect(database: str) -> None:
    async with open_api(database) as one, open_api(database) as other:
        answers = await asyncio.gather(
            *(
                api.post("/api/orders", {"type": "VIP"}, idempotency_key="k1")
                for api in [one, other] * 25
            )
        )

    assert {(answer.status, answer.body) for answer in answers} == {(201, answers[0].body)}
    assert order_count(database) == 1


async def test_a_refusal_is_the_answer_of_its_key_too(api: Api) -> None:
    order, bot = await api.cooking()
    path = f"/api/bots/{bot['id']}/claim"

    refused = await api.post(path, idempotency_key="k1")
    await api.patch(f"/api/orders/{order['id']}", {"status": "COMPLETE"})
    again = await api.post(path, idempotency_key="k1")
    anew = await api.post(path, idempotency_key="k2")

    assert refused.problem == again.problem == (409, "bot-busy")
    assert again.body == refused.body
    assert again.headers["idempotent-replayed"] == "true"
    assert anew.status == 200


async def test_an_invalid_request_does_not_use_its_idempotency_key(api: Api) -> None:
    bad = await api.post("/api/orders", {"type": "BOSS"}, idempotency_key="k1")
    good = await api.post("/api/orders", {"type": "VIP"}, idempotency_key="k1")

    assert bad.problem == (422, "schema")
    assert good.status == 201


async def test_a_claim_that_found_nothing_is_replayed_as_such(api: Api) -> None:
    bot = await api.bot()
    path = f"/api/bots/{bot['id']}/claim"

    first = await api.post(path, idempotency_key="k1")
    await api.order()
    second = await api.post(path, idempotency_key="k1")

    assert (first.json["order"], second.body) == (None, first.body)
    assert "daybook-position" not in second.headers


async def test_a_batch_is_created_once(api: Api, database: str) -> None:
    body = {"orders": [{"type": "VIP"}] * 20}

    first = await api.post("/api/orders/batch", body, idempotency_key="k1")
    second = await api.post("/api/orders/batch", body, idempotency_key="k1")

    assert (second.body, order_count(database)) == (first.body, 20)


async def test_many_claims_are_made_once(api: Api) -> None:
    bots = [await api.bot() for _ in range(2)]
    await api.post("/api/orders/batch", {"orders": [{"type": "VIP"}] * 5})
    body: dict[str, Any] = {"botIds": [*(bot["id"] for bot in bots), str(uuid7())]}

    first = await api.post("/api/bots/claim", body, idempotency_key="k1")
    second = await api.post("/api/bots/claim", body, idempotency_key="k1")

    assert second.body == first.body
    assert second.headers == {**first.headers, "idempotent-replayed": "true"}


async def test_other_claims_with_the_same_key_are_refused_as_a_whole(api: Api) -> None:
    one, other = await api.bot(), await api.bot()
    await api.order()

    await api.post("/api/bots/claim", {"botIds": [one["id"]]}, idempotency_key="k1")
    await api.order()
    body = {"botIds": [other["id"]]}
    refused = await api.post("/api/bots/claim", body, idempotency_key="k1")
    claimed = await api.post(f"/api/bots/{other['id']}/claim")

    assert refused.problem == (422, "idempotency-key-reused")
    assert claimed.json["message"] == "Order claimed"


@pytest.mark.parametrize("key", ["", " ", "a b", "k" * 256, "schlüssel", "tab\t", "nul\0"])
async def test_a_key_that_is_not_visible_ascii_is_refused(
    api: Api, database: str, key: str
) -> None:
    answer = await api.post("/api/orders", {"type": "VIP"}, idempotency_key=key)

    assert answer.problem == (400, "idempotency-key-invalid")
    assert order_count(database) == 0


async def test_a_key_may_have_255_characters_and_be_given_once(api: Api) -> None:
    longest = await api.post("/api/bots", {}, idempotency_key="~" * 255)
    pair = ("Idempotency-Key", "k1")
    twice = await api.send("POST", "/api/bots", headers=[pair, pair])

    assert longest.status == 201
    assert twice.problem == (400, "idempotency-key-invalid")


@pytest.mark.slow
async def test_a_request_that_failed_in_an_outage_can_be_retried(database: str) -> None:
    async with proxy_to(database) as proxy, open_api(proxy.conninfo) as api:
        await api.order()
        proxy.refusing = True
        proxy.drop_all()
        away = await api.post("/api/orders", {"type": "VIP"}, idempotency_key="k1")
        proxy.refusing = False
        again = await api.post("/api/orders", {"type": "VIP"}, idempotency_key="k1")

    assert away.problem == (503, "unavailable")
    assert away.headers["retry-after"] == "1"
    assert away.headers["daybook-command-id"] == again.headers["daybook-command-id"]
    assert again.status == 201
    assert order_count(database) == 2
