"""If-Position-At-Least: a read shows nothing older than the position."""

import asyncio
import time

import psycopg
import pytest

from daybook.api.http import read_position
from daybook.eventlog.postgres.connections import owner_conninfo
from tests.support.api_keys import holder
from tests.support.api_tickets import WAITLIST, open_counter_api, open_restaurant
from tests.support.asgi_client import Answer, Api
from tests.support.committer import rows

pytestmark = pytest.mark.anyio

BOARD = f"{WAITLIST}/board"


async def read(api: Api, path: str, position: str) -> Answer:
    return await api.send("GET", path, headers=[("if-position-at-least", position)])


async def test_a_read_shows_own_writes_and_names_its_position(api: Api) -> None:
    # I-37
    created = await api.post("/api/orders", {"type": "NORMAL"})
    position, order_id = created.headers["daybook-position"], created.json["order"]["id"]
    for path in ("/api/orders", f"/api/orders/{order_id}", f"/api/orders/{order_id}/explain"):
        answer = await read(api, path, position)
        assert answer.status == 200
        assert order_id.encode() in answer.body
        assert int(answer.headers["daybook-position"]) >= int(position)


async def test_a_read_waits_for_a_position_not_yet_visible(api: Api, database: str) -> None:
    """Another writer has drawn a position and commits late."""
    order = await api.order()
    copy = """
    INSERT INTO stored_events (originator_id, originator_version, topic, state, command_id, actor,
                               correlation_id)
    SELECT originator_id, 2, 'order.deleted', convert_to('{"at": "2026-01-01T00:00:00Z"}', 'UTF8'),
           gen_random_uuid(), 'open', gen_random_uuid()
    FROM stored_events WHERE originator_id = %(id)s
    RETURNING notification_id
    """
    with psycopg.connect(owner_conninfo(database)) as writer:
        ((position,),) = writer.execute(copy, {"id": order["id"]}).fetchall()
        later = await api.post("/api/orders", {"type": "VIP"})
        assert int(later.headers["daybook-position"]) > position
        reading = asyncio.create_task(read(api, "/api/orders", str(position)))
        await asyncio.sleep(0.3)
        assert not reading.done()
        writer.commit()
    assert (await reading).status == 200


async def test_a_wait_without_success_ends_with_503_and_uses_no_connection(
    api: Api, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daybook.api.runtime.service.WAIT_SECONDS_MAX", 0.4)
    ((head,),) = rows(database, "SELECT coalesce(max(position), 0) FROM log")
    waiting = [asyncio.create_task(read(api, "/api/orders", str(head + 9))) for _ in range(10)]
    await asyncio.sleep(0.1)
    assert (await api.get("/api/orders")).status == 200
    assert not any(one.done() for one in waiting)
    for answer in await asyncio.gather(*waiting):
        assert answer.problem == (503, "position-not-reached")
        assert "retry-after" in answer.headers


@pytest.mark.parametrize("position", [str(2**31), str(2**53), "9" * 18])
async def test_a_position_far_beyond_the_log_is_not_reached(
    api: Api, monkeypatch: pytest.MonkeyPatch, position: str
) -> None:
    monkeypatch.setattr("daybook.api.runtime.service.WAIT_SECONDS_MAX", 0.1)
    assert (await read(api, "/api/orders", position)).problem == (503, "position-not-reached")


@pytest.mark.parametrize("position", ["", "-1", "1.5", "one", "9" * 19])
async def test_an_invalid_position_is_refused(api: Api, position: str) -> None:
    assert (await read(api, "/api/orders", position)).problem == (400, "bad-position")


async def test_a_request_without_a_key_does_not_wait(database: str) -> None:
    async with open_counter_api(database, auth="keys") as api:
        admin = await holder(api, database, "admin")
        await open_restaurant(admin)
        ahead = str(10**9)
        began = time.monotonic()
        refused = await api.ask("GET", BOARD, if_position_at_least=ahead)
        assert refused.problem == (503, "position-not-reached")
        assert time.monotonic() - began < 0.7
        # A position that the log has reached is served.
        answer = await api.ask("GET", BOARD, if_position_at_least="1")
        assert answer.status == 200, answer.body
        began = time.monotonic()
        waited = await admin.ask("GET", BOARD, if_position_at_least=ahead)
        assert waited.problem == (503, "position-not-reached")
        assert time.monotonic() - began > 0.9


async def test_position_zero_is_always_reached(api: Api) -> None:
    assert (await read(api, "/api/bots", "0")).status == 200
    assert read_position.AT_LEAST.get() is None
