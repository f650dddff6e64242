"""API keys: authentication, and how soon changes take effect."""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from statistics import quantiles
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.types import Message
from uuid_utils.compat import uuid7

from daybook.api.keys.access import ANY_KEY, PUBLIC
from daybook.api.keys.key_cache import PROBE_SECONDS_MAX, STALE_SECONDS_MAX, ApiKeyCache
from daybook.api.keys.key_format import KEY_PATTERN, new_key_text, new_name, read_key_text
from daybook.api.login.authentication import Authenticator
from daybook.api.runtime.load_shedding import Decision, LoadShedder
from daybook.api.settings.public_hosts import KnownHosts
from daybook.projections.api_keys.api_keys import changed_keys
from tests.support.api_keys import Holder, holder, issue, name_of, refresh, revoke, rotate
from tests.support.asgi_client import Answer, Api, open_api, some_settings
from tests.support.committer import eventually, rows
from tests.support.databases.tcp_proxy import proxy_to

pytestmark = pytest.mark.anyio

WHERE = "/api/me"


@pytest.fixture
async def shut(database: str) -> AsyncIterator[Api]:
    """The application with authentication."""
    async with open_api(database, auth="keys") as api:
        yield api


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def test_a_valid_key_is_accepted_and_shown_its_scopes(shut: Api, database: str) -> None:
    client = await holder(shut, database, "client:vip", restaurant="harbour")
    body = (await client.get(WHERE)).json
    assert body == {
        "id": name_of(client.key),
        "holder": "a test",
        "scopes": ["client", "client:vip"],
        "owner": "harbour",
    }


async def test_every_invalid_key_gets_the_same_response(shut: Api, database: str) -> None:
    # SEC-02
    good = await issue(database, "staff")
    ended = await issue(database, "staff")
    await revoke(database, ended)
    short = await issue(database, "staff", expires_at=datetime.now(UTC) + timedelta(seconds=0.2))
    await asyncio.sleep(0.3)
    await refresh(shut)
    name, secret = name_of(good), good.split("_", 3)[3][:43]
    garbled = good[:-1] + ("0" if good[-1] != "0" else "1")
    unknown = new_key_text("staff", new_name()).write()
    wrong_secret = new_key_text("staff", name).write()
    read = read_key_text(good.encode())
    assert read is not None
    wrong_kind = type(read)("admin", name, secret.encode()).write()
    shown: list[Any] = [
        {},
        *(bearer(key) for key in (ended, short, garbled, unknown, wrong_secret, wrong_kind)),
        bearer(""),
        {"Authorization": f"Basic {good}"},
        {"Authorization": good},
        [("Authorization", f"Bearer {good}"), ("Authorization", f"Bearer {unknown}")],
        bearer("é" * 50),
    ]
    answers = [await shut.send("GET", WHERE, headers=one) for one in shown]
    assert {answer.status for answer in answers} == {401}
    assert len({answer.body for answer in answers}) == 1
    assert {answer.headers["www-authenticate"] for answer in answers} == {"Bearer"}
    assert answers[0].problem == (401, "unauthorized")
    assert (await shut.send("GET", WHERE, headers=bearer(good))).status == 200
    assert (
        await shut.send("GET", WHERE, headers={"Authorization": f"bEARER {good}"})
    ).status == 200


async def test_a_bot_cannot_restore_orders_that_staff_deleted(shut: Api, database: str) -> None:
    bot, staff = await issue(database, "bot", bot_id=uuid7()), await issue(database, "staff")
    await refresh(shut)
    path, recovery = f"/api/orders/{uuid7()}", {"deletedAt": None, "status": "PENDING"}
    assert (await Holder(shut, bot).patch(path, recovery)).status == 403
    assert (await Holder(shut, staff).patch(path, recovery)).status == 404


@pytest.mark.alone
async def test_an_unknown_key_takes_as_long_to_refuse_as_a_wrong_secret(
    shut: Api, database: str
) -> None:
    """SEC-02. Both kinds alternate, so that other load hits both; the fastest are compared."""
    good = await issue(database, "staff")
    await refresh(shut)
    key_cache = shut.service.key_cache
    assert key_cache is not None
    wrong = [new_key_text("staff", name_of(good)).write().encode() for _ in range(100)]
    unknown = [new_key_text("staff", new_name()).write().encode() for _ in range(100)]
    took: dict[str, list[int]] = {"wrong": [], "unknown": []}
    order = [("wrong", wrong), ("unknown", unknown)]
    for turn in range(20_000):
        for kind, keys in order:
            began = time.perf_counter_ns()
            key_cache.caller(keys[turn % 100], ANY_KEY.value)
            took[kind].append(time.perf_counter_ns() - began)
        order.reverse()
    undisturbed = {kind: quantiles(times, n=10)[1] for kind, times in took.items()}
    assert undisturbed["wrong"] / undisturbed["unknown"] == pytest.approx(1, abs=0.05)


async def test_a_revoked_key_is_rejected_by_all_processes_within_a_second(database: str) -> None:
    # SEC-05
    async with (
        open_api(database, auth="keys") as here,
        open_api(database, auth="keys") as there,
    ):
        key = await issue(database, "staff")
        holders = [Holder(here, key), Holder(there, key)]
        for one in holders:
            await until_status(one, 200)
        began = time.monotonic()
        await revoke(database, key)
        for one in holders:
            await until_status(one, 401)
        assert time.monotonic() - began <= 1.0


async def until_status(one: Holder, status: int) -> None:
    async with asyncio.timeout(5):
        while (await one.get(WHERE)).status != status:  # noqa: ASYNC110 (another process decides)
            await asyncio.sleep(0.01)


async def test_a_rotated_key_has_two_secrets_for_a_while_and_keeps_its_name(
    shut: Api, database: str
) -> None:
    old = await holder(shut, database, "client")
    order = await old.order()
    new = Holder(shut, await rotate(database, old.key, overlap_seconds=0.5))
    await refresh(shut)
    assert name_of(new.key) == name_of(old.key)
    assert [(await one.get(WHERE)).status for one in (old, new)] == [200, 200]
    assert (await new.get(f"/api/orders/{order['id']}")).status == 200
    await asyncio.sleep(0.6)
    assert [(await one.get(WHERE)).status for one in (old, new)] == [401, 200]
    newest = Holder(shut, await rotate(database, new.key, overlap_seconds=100))
    await rotate(database, newest.key, overlap_seconds=100)
    await refresh(shut)
    # Of three secrets the oldest has ended before its time.
    assert [(await one.get(WHERE)).status for one in (new, newest)] == [401, 200]


async def test_idempotency_keys_of_two_principals_do_not_meet(shut: Api, database: str) -> None:
    first, second = [await holder(shut, database, "client") for _ in range(2)]
    answers = [
        await one.post("/api/orders", {"type": "NORMAL"}, idempotency_key="the-same")
        for one in (first, second, first)
    ]
    ids = [answer.json["order"]["id"] for answer in answers if answer.status == 201]
    assert len(ids) == 3
    assert ids[0] == ids[2] != ids[1]
    assert "idempotent-replayed" not in answers[1].headers


@pytest.mark.parametrize("query", ["key=x", "token=x", "API_KEY=x", "limit=1&access_token="])
async def test_a_secret_in_an_address_is_refused(shut: Api, database: str, query: str) -> None:
    # SEC-07, D-67, S4-15
    admin = await holder(shut, database, "admin")
    for asker in (shut, admin):
        answer = await asker.get(f"/api/orders?{query}")
        assert answer.problem == (400, "secret-in-url")
    assert (await shut.get(f"/health/live?cursor={admin.key}")).problem == (400, "secret-in-url")


async def test_a_cron_key_has_jobs_run_and_does_nothing_else(database: str) -> None:
    # S4-15
    async with open_api(database, auth="keys", cron_secret="the-secret-of-today") as api:
        cron = await holder(api, database, "cron")
        staff = await holder(api, database, "staff")
        where = "/api/cron/process-jobs"
        assert (await cron.post(where)).status == 200
        assert (await staff.post(where)).problem == (403, "forbidden")
        assert (await api.post(where)).problem == (401, "unauthorized")
        assert (await api.post(where, x_cron_secret="the-secret-of-today")).status == 200
        assert (await cron.get("/api/orders")).problem == (403, "forbidden")


async def test_no_secret_is_in_the_log_or_any_table(shut: Api, database: str) -> None:
    # SEC-22
    first = await holder(shut, database, "client")
    await first.post("/api/orders", {"type": "NORMAL"}, idempotency_key="once")
    second = await rotate(database, first.key, 10)
    await revoke(database, second)
    secrets = [key.split("_", 3)[3][:43] for key in (first.key, second)]
    tables = rows(database, "SELECT tablename FROM pg_tables WHERE schemaname = 'daybook'")
    for (table,) in tables:
        text = str(rows(database, f"SELECT t::text, t.* FROM daybook.{table} AS t"))
        assert not [secret for secret in secrets if secret in text], table
    log = rows(
        database,
        "SELECT topic, actor FROM daybook.log WHERE starts_with(topic, 'key.') ORDER BY position",
    )
    assert [topic for topic, _ in log] == ["key.issued", "key.rotated", "key.revoked"]
    assert {actor for _, actor in log} == {"operator:test"}


async def test_a_stream_ends_when_its_key_is_revoked(shut: Api, database: str) -> None:
    # SEC-21
    staff = await holder(shut, database, "staff")
    streaming = asyncio.create_task(_stream(staff))
    await asyncio.sleep(0.2)
    assert not streaming.done()
    began = time.monotonic()
    await revoke(database, staff.key)
    async with asyncio.timeout(5):
        sent = await streaming
    assert time.monotonic() - began <= 1.0
    assert sent[0]["status"] == 200


async def _stream(staff: Holder) -> list[Message]:
    sent: list[Message] = []

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/api/stream",
        "raw_path": b"/api/stream",
        "query_string": b"",
        "headers": [(b"authorization", f"Bearer {staff.key}".encode())],
    }
    await staff.app(scope, receive, send)
    return sent


async def test_a_long_poll_gets_no_jobs_once_its_key_is_revoked(shut: Api, database: str) -> None:
    worker = await holder(shut, database, "worker", queues=("email",))
    admin = await holder(shut, database, "admin")
    wish = {"queues": ["email"], "workerId": "w", "waitSeconds": 20}
    waiting = asyncio.create_task(worker.post("/api/jobs/claim", wish))
    await asyncio.sleep(0.2)
    await revoke(database, worker.key)
    await refresh(shut)
    await admin.post("/api/jobs", {"queue": "email", "type": "t"})
    async with asyncio.timeout(5):
        answer: Answer = await waiting
    assert answer.problem == (401, "unauthorized")
    current = await admin.get("/api/queues/email")
    assert current.json["queue"]["pending"] == 1


WAITS = {
    "claim": ("POST", "/api/jobs/claim", {"queues": ["q"], "workerId": "w", "waitSeconds": 20}),
    "pop": ("GET", "/api/v1/pop/queue/q?wait=true&timeout=20000", None),
    "operation": ("GET", "/api/v1/operations/{id}?wait=true&timeout=20000", None),
    "job": ("GET", "/api/jobs/{job_id}?waitSeconds=20", None),
}


@pytest.mark.parametrize("way", WAITS)
@pytest.mark.parametrize("ending", ["revoked", "expired"])
async def test_a_long_poll_ends_with_401_once_its_key_is_invalid(
    shut: Api, database: str, monkeypatch: pytest.MonkeyPatch, way: str, ending: str
) -> None:
    # SEC-05, SEC-21: also when no commit wakes the request.
    admin = await holder(shut, database, "admin")
    monkeypatch.setattr(LoadShedder, "decide_push", lambda _: Decision.QUEUE)
    pushed = await admin.post("/api/v1/push", {"items": [{"queue": "q", "payload": 1}]})
    assert pushed.status == 202
    over = datetime.now(UTC) + timedelta(seconds=2) if ending == "expired" else None
    key = await issue(database, "worker", queues=("q",), expires_at=over)
    await refresh(shut)
    method, path, body = WAITS[way]
    later = {"queue": "q", "type": "t", "runAt": "2100-01-01T00:00:00Z"}
    job = (await admin.post("/api/jobs", later)).json["job"]
    path = path.replace("{id}", pushed.json["operationId"]).replace("{job_id}", job["id"])
    waiting = asyncio.create_task(Holder(shut, key).ask(method, path, body))
    await asyncio.sleep(0.3)
    assert not waiting.done()
    if ending == "revoked":
        await revoke(database, key)
    else:
        assert over is not None
        await asyncio.sleep((over - datetime.now(UTC)).total_seconds())
    began = time.monotonic()
    async with asyncio.timeout(10):
        answer: Answer = await waiting
    assert answer.problem == (401, "unauthorized")
    assert time.monotonic() - began < 1.0


async def test_a_key_with_several_scopes_acts_under_the_one_that_the_route_needs(
    shut: Api, database: str
) -> None:
    both = await holder(shut, database, "worker", "staff", queues=("email",))
    assert (await both.post("/api/orders", {"type": "NORMAL"})).status == 201
    assert (await both.post("/api/jobs", {"queue": "email", "type": "t"})).status == 201
    created = "SELECT topic, actor FROM log WHERE topic IN ('order.created', 'job.created')"
    actors = rows(database, created)
    assert dict(actors) == {
        "order.created": f"staff:{name_of(both.key)}",
        "job.created": f"worker:{name_of(both.key)}",
    }


async def test_the_previous_secret_does_not_outlive_the_key(shut: Api, database: str) -> None:
    key = await issue(database, "admin", expires_at=datetime.now(UTC) + timedelta(seconds=2))
    await rotate(database, key, overlap_seconds=3600)
    await refresh(shut)
    assert (await Holder(shut, key).get("/api/me")).status == 200
    await asyncio.sleep(2.1)
    assert (await Holder(shut, key).get("/api/me")).problem == (401, "unauthorized")


async def test_a_throttled_address_is_logged_with_the_time_it_is_told_to_wait(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_api(database, auth="keys", failed_keys_per_address_max=1) as api:
        from_an_address(api)
        await api.ask("GET", "/api/me", cookie="daybook_key=x")
        await asyncio.sleep(1.1)
        refused = await api.ask("GET", "/api/me", cookie="daybook_key=x")
    (hit,) = [one for one in caplog.records if one.getMessage() == "rate_limit.hit"]
    assert vars(hit)["context"]["retryAfterSeconds"] == int(refused.headers["retry-after"]) < 60


def from_an_address(api: Api) -> Any:
    """Lets the requests come from a public address; returns the app."""
    inner = api.app

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await inner({**scope, "client": ("192.0.2.7", 4711)}, receive, send)

    api.app = app  # type: ignore[assignment]  # an ASGI app, like the other
    return inner


async def test_invalid_keys_in_cookies_are_counted_too(database: str) -> None:  # SEC-09
    async with open_api(database, auth="keys", failed_keys_per_address_max=2) as api:
        inner = from_an_address(api)
        statuses = [
            (await api.ask("GET", "/api/me", cookie="daybook_key=x")).status for _ in range(4)
        ]
        assert statuses == [401, 401, 429, 429]
        # From then on the process rejects that address without the database.
        inner.authenticator.failed_keys._run_relaxed = None
        again = await api.ask("GET", "/api/me", cookie="daybook_key=x")
        assert again.problem == (429, "rate-limited")
        assert 0 < int(again.headers["retry-after"]) <= 60
        # A request without a key does not count as a failed one.
        assert (await api.get("/api/me")).status == 401


async def test_without_the_database_all_requests_are_rejected_after_the_staleness_limit(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that cannot learn of revocations must not act as if there were none."""
    monkeypatch.setattr("daybook.api.keys.key_cache.STALE_SECONDS_MAX", STALE_SECONDS_MAX / 5)
    key = await issue(database, "staff")
    async with proxy_to(database) as proxy, ApiKeyCache(proxy.conninfo) as key_cache:
        assert key_cache.caller(key.encode(), ANY_KEY.value) is not None
        assert not key_cache.is_stale
        proxy.refusing = True
        proxy.drop_all()
        await asyncio.sleep(1.5)
        assert key_cache.is_stale
        headers = [(b"authorization", f"Bearer {key}".encode())]
        scope = {"method": "GET", "query_string": b"", "headers": headers}
        authenticator = Authenticator(key_cache, hosts=KnownHosts(some_settings(auth="keys")))
        refused = authenticator.check(scope, ANY_KEY.value)
        assert refused is not None
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert authenticator.check(scope, PUBLIC.value) is None
        # An unknown key may have been created since the last refresh.
        other = {**scope, "headers": [(b"authorization", b"Bearer another")]}
        unsure = authenticator.check(other, ANY_KEY.value)
        assert unsure is not None
        assert unsure.status_code == 503
        proxy.refusing = False
        async with asyncio.timeout(5):
            while key_cache.is_stale:  # noqa: ASYNC110 (it looks by itself)
                await asyncio.sleep(0.05)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_not_parsed_as_a_key(text: bytes) -> None:
    read = read_key_text(text)
    assert read is None or read.write().encode() == text


@settings(deadline=None)
@given(st.sampled_from(["client", "client:vip", "bot"]), st.integers(0, 90), st.integers(1, 255))
def test_a_key_with_one_changed_character_is_invalid(scope: str, index: int, change: int) -> None:
    key = new_key_text(scope, new_name()).write().encode()
    index %= len(key)
    garbled = key[:index] + bytes([key[index] ^ change]) + key[index + 1 :]
    assert read_key_text(key) is not None
    assert read_key_text(garbled) is None


def test_scanners_find_keys_by_their_pattern() -> None:  # SEC-24
    key = new_key_text("admin", new_name()).write()
    assert re.findall(KEY_PATTERN, f"export DAYBOOK_KEY={key}\n") == [key]
    assert key not in repr(read_key_text(key.encode()))


async def test_a_key_change_committed_late_is_still_noticed(database: str) -> None:
    """Its timestamp is older than the last one read: only the sum of versions reveals it."""
    early, late = await issue(database, "staff"), await issue(database, "staff")
    age = (
        "UPDATE daybook.keys SET updated_at = updated_at - interval '1 hour' WHERE name = %(name)s"
    )
    with psycopg.connect(database, autocommit=True) as owner:
        hidden = owner.execute(
            "DELETE FROM daybook.keys WHERE name = %(name)s RETURNING *", {"name": name_of(late)}
        ).fetchone()
        assert hidden is not None
        async with ApiKeyCache(database) as key_cache:
            assert key_cache.caller(late.encode(), ANY_KEY.value) is None
            placeholders = ", ".join(["%s"] * len(hidden))
            owner.execute(f"INSERT INTO daybook.keys VALUES ({placeholders})".encode(), hidden)
            owner.execute(age, {"name": name_of(late)})
            await key_cache.refresh()
            for key in (early, late):
                assert key_cache.caller(key.encode(), ANY_KEY.value) is not None


async def test_keys_that_take_long_to_read_are_still_read(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow response is not a hanging connection: cut off each time, it would never arrive."""
    async with ApiKeyCache(database) as key_cache:

        async def slowly(*given: Any) -> Any:
            await asyncio.sleep(2 * PROBE_SECONDS_MAX)
            return await changed_keys(*given)

        monkeypatch.setattr("daybook.api.keys.key_cache.changed_keys", slowly)
        key = await issue(database, "staff")
        async with asyncio.timeout(10):
            while key_cache.caller(key.encode(), ANY_KEY.value) is None:  # noqa: ASYNC110 (as above)
                await asyncio.sleep(0.05)


async def test_after_a_failover_all_keys_are_read_again(database: str) -> None:
    """One change was lost with the old primary and another made on the new one: the sum of versions
    is the same as before."""
    lost, revoked = await issue(database, "staff"), await issue(database, "staff")
    change = (
        "UPDATE daybook.keys SET version = %(version)s, revoked_at = %(revoked_at)s,"
        " updated_at = updated_at - interval '1 hour' WHERE name = %(name)s"
    )
    with psycopg.connect(database, autocommit=True) as owner:
        one = {"name": name_of(lost), "version": 2, "revoked_at": None}
        owner.execute(change, one)
        async with proxy_to(database) as proxy, ApiKeyCache(proxy.conninfo) as key_cache:
            gone = {"name": name_of(revoked), "version": 2, "revoked_at": datetime.now(UTC)}
            with owner.transaction():
                owner.execute(change, {**one, "version": 1})
                owner.execute(change, gone)
            proxy.drop_all()
            await eventually(lambda: key_cache.caller(revoked.encode(), ANY_KEY.value) is None)
            assert key_cache.caller(lost.encode(), ANY_KEY.value) is not None
