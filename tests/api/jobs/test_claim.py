"""Claims by long poll, and heartbeats that extend leases."""

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


async def test_a_waiting_worker_gets_a_new_job_at_once(api: Api) -> None:
    # S4-14, D-66
    task = await waiting(api)
    began = time.monotonic()
    await create(api)
    assert len(await task) == 1
    assert time.monotonic() - began < 0.5


async def test_a_long_poll_without_jobs_ends_empty_after_wait_seconds(api: Api) -> None:
    began = time.monotonic()
    assert await claim(api, waitSeconds=0.3) == []
    assert 0.3 <= time.monotonic() - began < 1.5


@pytest.mark.parametrize("key", [None, "again"])
async def test_jobs_of_a_disconnected_client_are_released_unless_it_has_a_key(
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
    current = (await api.get(f"/api/jobs/{job['id']}")).json["job"]
    assert current["status"] == ("PROCESSING" if key else "PENDING")
    if key is None:
        assert current["attempts"] == 0


async def test_of_many_waiting_workers_one_gets_the_job(api: Api) -> None:
    tasks = [await waiting(api) for _ in range(5)]
    await create(api)
    await asyncio.sleep(0.3)
    assert sum(task.done() for task in tasks) == 1
    for _ in range(4):
        await create(api)
    assert [len(jobs) for jobs in await asyncio.gather(*tasks)] == [1] * 5


async def test_a_worker_is_woken_only_for_its_types(api: Api) -> None:
    task = await waiting(api, types=["known"])
    await create(api, type="other")
    await asyncio.sleep(0.2)
    assert not task.done()
    await create(api, type="known")
    ((job),) = await task
    assert job["type"] == "known"


async def test_a_waiting_worker_gets_a_scheduled_job_when_it_is_due(api: Api) -> None:
    job = await create(api)
    ((claimed),) = await claim(api)
    await api.post(
        f"/api/jobs/{job['id']}/fail",
        {"claimId": claimed["claimId"], "error": "x", "retryAfterSeconds": 0.4},
    )
    task = await waiting(api)
    began = time.monotonic()
    assert len(await task) == 1
    assert time.monotonic() - began < 0.6


async def test_a_worker_waiting_at_a_paused_queue_gets_a_job_on_resume(api: Api) -> None:
    await api.ask("PUT", "/api/queues/email", {"paused": True})
    await create(api)
    task = await waiting(api)
    assert not task.done()
    await api.ask("PUT", "/api/queues/email", {"paused": False})
    assert len(await task) == 1


async def test_a_heartbeat_extends_leases_and_reports_lost_claims(api: Api) -> None:
    # S1-04
    await create(api)
    ((job),) = await claim(api, leaseSeconds=1)
    await asyncio.sleep(0.05)
    heartbeat = await api.post(f"/api/jobs/{job['id']}/heartbeat", {"claimId": job["claimId"]})
    assert heartbeat.json["leaseUntil"] > job["leaseUntil"]
    mine = {"id": job["id"], "claimId": job["claimId"], "leaseSeconds": 5}
    foreign = {"id": job["id"], "claimId": job["id"]}
    both = (await api.post("/api/jobs/heartbeat", {"claims": [mine, foreign]})).json
    assert [lease["claimId"] for lease in both["held"]] == [job["claimId"]]
    assert both["lost"] == [job["id"]]


async def test_a_client_that_disconnected_while_waiting_claims_no_job(api: Api) -> None:
    body = b'{"queues":["email"],"workerId":"gone","waitSeconds":5}'
    hung_up = asyncio.Event()
    messages: list[Any] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        if messages:
            return messages.pop()
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
