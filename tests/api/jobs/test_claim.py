"""Workers that wait for jobs get them at once, and heartbeats keep what they have."""

import asyncio
import time
from typing import Any

import orjson
import pytest
from starlette.types import Message

from tests.api.jobs.test_commands import claim, create
from tests.support.asgi_client import Api

pytestmark = pytest.mark.anyio


async def waiting(api: Api, **body: Any) -> "asyncio.Task[list[dict[str, Any]]]":
    task = asyncio.create_task(claim(api, waitSeconds=5, **body))
    await asyncio.sleep(0.1)
    return task


async def test_who_waits_gets_the_job_as_soon_as_it_is_there(api: Api) -> None:
    # S4-14, D-66
    task = await waiting(api)
    began = time.monotonic()
    await create(api)
    assert len(await task) == 1
    assert time.monotonic() - began < 0.5


async def test_who_waits_in_vain_gets_nothing_after_that_time(api: Api) -> None:
    began = time.monotonic()
    assert await claim(api, waitSeconds=0.3) == []
    assert 0.3 <= time.monotonic() - began < 1.5


@pytest.mark.parametrize("key", [None, "again"])
async def test_what_is_claimed_for_who_has_hung_up_is_given_back_unless_it_can_ask_again(
    api: Api, key: str | None
) -> None:
    job = await create(api)
    body = orjson.dumps({"queues": [job["queue"]], "workerId": "w", "waitSeconds": 5})
    heard: list[Message] = [
        {"type": "http.request", "body": body, "more_body": False},
        {"type": "http.disconnect"},
    ]

    async def receive() -> Message:
        return heard.pop(0) if len(heard) > 1 else heard[0]

    async def send(_: Message) -> None:
        """The client has disconnected."""

    named = [(b"idempotency-key", key.encode())] if key else []
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/api/jobs/claim",
        "raw_path": b"/api/jobs/claim",
        "query_string": b"",
        "headers": [(b"content-type", b"application/json"), *named],
    }
    await api.app(scope, receive, send)
    standing = (await api.get(f"/api/jobs/{job['id']}")).json["job"]
    assert standing["status"] == ("PROCESSING" if key else "PENDING")
    if key is None:
        assert standing["attempts"] == 0


async def test_of_many_who_wait_one_job_goes_to_one(api: Api) -> None:
    tasks = [await waiting(api) for _ in range(5)]
    await create(api)
    await asyncio.sleep(0.3)
    assert sum(task.done() for task in tasks) == 1
    for _ in range(4):
        await create(api)
    assert [len(jobs) for jobs in await asyncio.gather(*tasks)] == [1] * 5


async def test_who_waits_is_woken_for_what_it_knows_only(api: Api) -> None:
    task = await waiting(api, types=["known"])
    await create(api, type="other")
    await asyncio.sleep(0.2)
    assert not task.done()
    await create(api, type="known")
    ((job),) = await task
    assert job["type"] == "known"


async def test_who_waits_gets_a_job_when_its_time_has_come(api: Api) -> None:
    job = await create(api)
    ((held),) = await claim(api)
    await api.post(
        f"/api/jobs/{job['id']}/fail",
        {"claimId": held["claimId"], "error": "x", "retryAfterSeconds": 0.4},
    )
    task = await waiting(api)
    began = time.monotonic()
    assert len(await task) == 1
    assert time.monotonic() - began < 0.6


async def test_who_waits_at_a_paused_queue_is_served_when_it_is_resumed(api: Api) -> None:
    await api.ask("PUT", "/api/queues/email", {"paused": True})
    await create(api)
    task = await waiting(api)
    assert not task.done()
    await api.ask("PUT", "/api/queues/email", {"paused": False})
    assert len(await task) == 1


async def test_a_heartbeat_moves_the_end_of_the_lease_and_tells_what_is_lost(api: Api) -> None:
    # S1-04
    await create(api)
    ((job),) = await claim(api, leaseSeconds=1)
    await asyncio.sleep(0.05)
    beat = await api.post(f"/api/jobs/{job['id']}/heartbeat", {"claimId": job["claimId"]})
    assert beat.json["leaseUntil"] > job["leaseUntil"]
    mine = {"id": job["id"], "claimId": job["claimId"], "leaseSeconds": 5}
    foreign = {"id": job["id"], "claimId": job["id"]}
    both = (await api.post("/api/jobs/heartbeat", {"claims": [mine, foreign]})).json
    assert [held["claimId"] for held in both["held"]] == [job["claimId"]]
    assert both["lost"] == [job["id"]]


async def test_who_hung_up_while_waiting_takes_no_job(api: Api) -> None:
    body = b'{"queues":["email"],"workerId":"gone","waitSeconds":5}'
    hung_up = asyncio.Event()
    told: list[Any] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        if told:
            return told.pop()
        await hung_up.wait()
        return {"type": "http.disconnect"}

    async def send(_message: Any) -> None:
        pass

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/api/jobs/claim",
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
    }
    waiting = asyncio.create_task(api.app(scope, receive, send))
    await asyncio.sleep(0.1)
    hung_up.set()
    await asyncio.wait_for(waiting, 1)
    await create(api)
    await asyncio.sleep(0.2)
    ((job),) = await claim(api)
    assert (job["workerId"], job["attempts"]) == ("w", 1)
