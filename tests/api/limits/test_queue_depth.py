"""The depth limit of queues."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from daybook.api.limits.queue_depth import CACHE_SECONDS
from tests.support.asgi_client import Answer, Api, open_api
from tests.support.committer import rows

pytestmark = pytest.mark.anyio

DEPTH_MAX = 3
LATER = "2100-01-01T00:00:00Z"


@pytest.fixture
async def api(database: str) -> AsyncIterator[Api]:
    async with open_api(database, queue_depth_max=DEPTH_MAX) as api:
        yield api


async def create(api: Api, count: int = 1, queue: str = "email", **fields: Any) -> Answer:
    job = {"queue": queue, "type": "send", **fields}
    return await api.post("/api/jobs", {"jobs": [job] * count})


async def push(api: Api) -> Answer:
    return await api.post("/api/v1/push", {"items": [{"queue": "email", "payload": 1}]})


async def complete_one(api: Api, then: int = 0) -> Answer:
    claimed = await api.post("/api/jobs/claim", {"queues": ["email"], "workerId": "w"})
    (job,) = claimed.json["jobs"]
    done = {"claimId": job["claimId"], "then": [{"type": "send"}] * then}
    return await api.post(f"/api/jobs/{job['id']}/complete", done)


async def test_a_full_queue_takes_no_more_until_there_is_room(api: Api, database: str) -> None:
    assert (await create(api, DEPTH_MAX)).status == 201
    before = rows(database, "SELECT count(*) FROM stored_events")

    refused = [await create(api), await push(api)]

    assert [one.problem for one in refused] == [(429, "queue-full")] * 2
    assert [one.headers["retry-after"] for one in refused] == ["1"] * 2
    assert rows(database, "SELECT count(*) FROM stored_events") == before
    await complete_one(api)
    await asyncio.sleep(CACHE_SECONDS)
    assert (await push(api)).status == 201


async def test_a_retry_is_answered_even_if_its_queue_is_full(api: Api) -> None:
    job = {"queue": "email", "type": "send"}
    first = await api.post("/api/jobs", job, idempotency_key="k")
    await create(api, DEPTH_MAX - 1)

    again = await api.post("/api/jobs", job, idempotency_key="k")
    other = await api.post("/api/jobs", job, idempotency_key="another")

    assert (again.status, again.body) == (201, first.body)
    assert again.headers["idempotent-replayed"] == "true"
    assert other.problem == (429, "queue-full")


async def test_concurrent_requests_fill_a_queue_exactly_to_its_limit(api: Api) -> None:
    answers = await asyncio.gather(*(create(api) for _ in range(5 * DEPTH_MAX)))

    statuses = [int(answer.status) for answer in answers]
    assert (statuses.count(201), statuses.count(429)) == (DEPTH_MAX, 4 * DEPTH_MAX)


async def test_a_batch_beyond_the_limit_is_refused_as_a_whole(api: Api) -> None:
    assert (await create(api, DEPTH_MAX + 1)).problem == (429, "queue-full")
    assert (await create(api, DEPTH_MAX)).status == 201


async def test_a_full_queue_does_not_block_other_queues(api: Api) -> None:
    await create(api, DEPTH_MAX)

    assert (await create(api, queue="invoices")).status == 201


async def test_scheduled_and_blocked_jobs_count_towards_the_depth(api: Api) -> None:
    await create(api, runAt=LATER)
    await create(api, DEPTH_MAX - 1, partition="a")
    await asyncio.sleep(CACHE_SECONDS)

    assert (await create(api)).problem == (429, "queue-full")


async def test_follow_ups_enter_a_full_queue(api: Api) -> None:
    await create(api, DEPTH_MAX)

    assert (await complete_one(api, then=2)).status == 200

    (queue,) = (await api.get("/api/queues")).json["queues"]
    assert queue["pending"] == DEPTH_MAX + 1


async def test_jobs_admitted_by_another_service_count(api: Api, database: str) -> None:
    async with open_api(database, queue_depth_max=DEPTH_MAX) as other:
        assert (await create(other, DEPTH_MAX)).status == 201

        assert (await create(api)).problem == (429, "queue-full")
