"""The signed completion callback: authentication and responses."""

import hashlib
import hmac
import time
from base64 import b64encode, urlsafe_b64encode
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from uuid_utils.compat import uuid7

from daybook.api.orders.completion_callback import callback_keys
from daybook.eventlog.errors import SetupError
from tests.support.asgi_client import JSON, Answer, Api, open_api, some_settings
from tests.support.committer import fold_of_the_log, live_rows, rows

pytestmark = pytest.mark.anyio

PATH = "/api/orders/complete"
CURRENT = "sig_current_current_current_1234"
NEXT = "sig_next_next_next_next_next_123"
SECRET = b"a secret that is long enough"
KEYS = {
    "app_base_url": "https://daybook.example/",
    "qstash_current_signing_key": CURRENT,
    "qstash_next_signing_key": NEXT,
    "webhook_secrets": "whsec_" + b64encode(SECRET).decode(),
}
COMPLETED = {"message": "Order completed"}
FINALIZED = {"message": "Order already finalized"}


@pytest.fixture
async def api(database: str) -> AsyncIterator[Api]:
    async with open_api(database, **KEYS) as opened:
        yield opened


def base64url(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def upstash(body: bytes, *, key: str = CURRENT, **changes: Any) -> dict[str, str]:
    seconds = int(time.time())
    claims = {
        "iss": "Upstash",
        "sub": "https://daybook.example/api/orders/complete",
        "exp": seconds + 300,
        "nbf": seconds,
        "iat": seconds,
        "jti": f"jwt_{uuid7()}",
        "body": base64url(hashlib.sha256(body).digest()),
        **changes,
    }
    head = base64url(orjson.dumps({"alg": "HS256", "typ": "JWT"}))
    signed = f"{head}.{base64url(orjson.dumps(claims))}"
    signature = hmac.new(key.encode(), signed.encode(), hashlib.sha256).digest()
    return {**JSON, "Upstash-Signature": f"{signed}.{base64url(signature)}"}


def webhook(body: bytes, message_id: str) -> dict[str, str]:
    seconds = str(int(time.time()))
    signed = f"{message_id}.{seconds}.".encode() + body
    signature = b64encode(hmac.new(SECRET, signed, hashlib.sha256).digest()).decode()
    return {
        **JSON,
        "webhook-id": message_id,
        "webhook-timestamp": seconds,
        "webhook-signature": f"v1,{signature}",
    }


def completion(order: dict[str, Any], **changes: Any) -> bytes:
    fields = {"orderId": order["id"], "botId": order["botId"], "claimId": order["claimId"]}
    return orjson.dumps({k: v for k, v in {**fields, **changes}.items() if v is not None})


async def call_back(api: Api, body: bytes, **changes: Any) -> Answer:
    return await api.send("POST", PATH, [body], upstash(body, **changes))


async def test_a_signed_callback_completes_the_order_and_frees_the_bot(
    api: Api, database: str
) -> None:  # S0-29, S0-31, S0-61
    order, bot = await api.cooking()
    await api.order()

    answer = await call_back(api, completion(order))
    claimed = await api.post(f"/api/bots/{bot['id']}/claim")

    assert (answer.status, answer.json) == (200, COMPLETED)
    assert claimed.json["message"] == "Order claimed"
    assert live_rows(database) == fold_of_the_log(database)


async def test_the_next_key_and_a_webhook_secret_are_believed_too(api: Api) -> None:
    (first, _), (second, _) = await api.cooking(), await api.cooking()
    body = completion(second)

    by_next_key = await call_back(api, completion(first), key=NEXT)
    by_webhook = await api.send("POST", PATH, [body], webhook(body, "msg_1"))

    assert (by_next_key.json, by_webhook.json) == (COMPLETED, COMPLETED)


async def test_without_a_claim_id_the_bot_is_enough(api: Api) -> None:
    order, _ = await api.cooking()

    assert (await call_back(api, completion(order, claimId=None))).json == COMPLETED


async def test_a_callback_that_is_not_signed_by_us_changes_nothing(
    api: Api, database: str
) -> None:  # S0-29
    order, _ = await api.cooking()
    body = completion(order)
    before = rows(database, "SELECT count(*) FROM stored_events")

    answers = [
        await api.send("POST", PATH, [body], JSON),
        await call_back(api, body, key="sig_of_somebody_else_entirely_12"),
        await call_back(api, body, sub="https://elsewhere.example/api/orders/complete"),
        await call_back(api, body, exp=1),
        await api.send("POST", PATH, [body + b" "], upstash(body)),
        await api.send("POST", PATH, [b"no json"], JSON),
    ]

    assert {answer.problem for answer in answers} == {(401, "bad-signature")}
    assert rows(database, "SELECT count(*) FROM stored_events") == before


async def test_without_keys_every_callback_is_refused(database: str) -> None:
    async with open_api(database) as api:
        order, _ = await api.cooking()
        answer = await call_back(api, completion(order))

    assert answer.problem == (401, "bad-signature")


async def test_a_late_callback_changes_nothing_and_is_no_error(
    api: Api, database: str
) -> None:  # S0-30, S0-32
    order, bot = await api.cooking()
    body = completion(order)
    await api.patch(f"/api/bots/{bot['id']}", {"status": "IDLE"})
    await api.post(f"/api/bots/{bot['id']}/claim")

    another_claim = await call_back(api, body)
    # The order is being cooked: only the bot is another's.
    other_bot = await call_back(api, completion(order, botId=str(uuid7()), claimId=None))
    assert (await api.get(f"/api/orders/{order['id']}")).json["order"]["status"] == "PROCESSING"
    await api.delete(f"/api/orders/{order['id']}")
    deleted = await call_back(api, body)
    before = rows(database, "SELECT count(*) FROM stored_events")
    pending = await call_back(api, completion({**await api.order(), "botId": bot["id"]}))
    unknown = await call_back(api, completion(order, orderId=str(uuid7())))

    answers = [another_claim, deleted, pending, unknown, other_bot]
    assert {answer.status for answer in answers} == {200}
    assert [answer.json for answer in answers] == [FINALIZED] * 5
    assert rows(database, "SELECT count(*) FROM stored_events") == [(before[0][0] + 1,)]


async def test_a_callback_for_a_completed_order_gets_200(api: Api) -> None:  # S0-32
    order, _ = await api.cooking()

    first = await call_back(api, completion(order))
    second = await call_back(api, completion(order))

    assert (first.json, second.json) == (COMPLETED, FINALIZED)
    assert "daybook-position" not in second.headers


@pytest.mark.parametrize("profile", ["upstash", "webhook"])
async def test_the_same_message_again_gets_the_same_answer_and_does_nothing(
    api: Api, database: str, profile: str
) -> None:  # S0-15, SEC-11
    order, _ = await api.cooking()
    body = completion(order)
    signed = upstash(body, jti="jwt_1") if profile == "upstash" else webhook(body, "msg_1")

    first = await api.send("POST", PATH, [body], signed)
    events = rows(database, "SELECT count(*) FROM stored_events")
    second = await api.send("POST", PATH, [body], signed)

    assert (first.json, second.body) == (COMPLETED, first.body)
    assert "idempotent-replayed" not in first.headers
    assert second.headers["idempotent-replayed"] == "true"
    assert second.headers["daybook-position"] == first.headers["daybook-position"]
    assert rows(database, "SELECT count(*) FROM stored_events") == events


async def test_a_signed_callback_with_a_bad_body_is_refused(api: Api) -> None:
    order, _ = await api.cooking()

    no_json = await call_back(api, b"{")
    bad_id = await call_back(api, completion(order, orderId="1"))
    unknown_field = await call_back(api, completion(order, status="COMPLETE"))

    assert no_json.problem == (400, "bad-json")
    assert bad_id.problem == (422, "schema")
    assert unknown_field.problem == (422, "unknown-field")


def test_webhook_secrets_are_separated_by_commas() -> None:
    secrets = "whsec_" + b64encode(b"1" * 24).decode(), "whsec_" + b64encode(b"2" * 24).decode()

    keys = callback_keys(some_settings(webhook_secrets=f"{secrets[0]}, {secrets[1]},"))

    assert keys.standard == secrets


def test_a_bad_secret_is_refused_without_being_printed() -> None:
    with pytest.raises(SetupError, match="must be whsec_") as refused:
        callback_keys(some_settings(webhook_secrets="hunter2"))

    assert "hunter2" not in str(refused.value)
