"""An unreadable event disables only its own aggregate (I-40, F27)."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from daybook.api.app import App
from daybook.api.runtime.service import Service
from tests.support.api_jobs import enqueue
from tests.support.asgi_client import GUEST_KEY, Api, some_settings
from tests.support.databases.unreadable_events import JOB_POISONS, POISONS, Poison, append, spoil

pytestmark = pytest.mark.anyio

# How long a command of others may take beside a bad aggregate, at most.
OTHERS_SECONDS_MAX = 4.0
LISTS = (
    "/api/jobs",
    "/api/jobs?queue=email",
    "/api/queues",
    "/api/dlq",
    "/api/events",
    "/api/orders",
    "/api/orders?status=COMPLETE",
    "/api/bots",
    "/api/board",
    "/api/leases",
    "/api/doctor",
    "/api/quarantine",
    "/metrics",
    "/health/ready",
)


@asynccontextmanager
async def open_full_api(conninfo: str) -> AsyncIterator[Api]:
    """With everything that works by itself."""
    async with Service(conninfo, guest_key=GUEST_KEY) as service:
        yield Api(App(service, some_settings()), service)


async def _claims(api: Api, limit: int = 1) -> list[dict[str, Any]]:
    began = time.monotonic()
    body = {"queues": ["email"], "workerId": "w1", "limit": limit}
    answer = await api.post("/api/jobs/claim", body)
    assert answer.status == 200, answer.body
    assert time.monotonic() - began < OTHERS_SECONDS_MAX
    jobs: list[dict[str, Any]] = answer.json["jobs"]
    return jobs


async def _lists(api: Api) -> None:
    for path in LISTS:
        answer = await api.get(path)
        assert answer.status == 200, (path, answer.body)


@pytest.mark.parametrize("poison", JOB_POISONS, ids=lambda one: one.name)
async def test_a_bad_job_stops_no_other(database: str, poison: Poison) -> None:  # I-40
    async with open_full_api(database) as api:
        bad = spoil(database, poison, (await enqueue(api))["id"])
        good = await enqueue(api)
        assert good["id"] in [job["id"] for job in await _claims(api, 5)]
        await _lists(api)
        for path in (f"/api/jobs/{bad}/cancel", f"/api/jobs/{bad}/retry"):
            answer = await api.post(path, {})
            # An endless lease is bounded where it is used; an instant outside the calendar is not.
            may_be_read = "lease" in poison.name
            assert may_be_read or answer.problem == (409, "unreadable"), answer.body
            assert answer.status < 500
        for path in (f"/api/jobs/{bad}", f"/api/jobs/{bad}/history", f"/api/jobs/{bad}/explain"):
            answer = await api.get(path)
            assert answer.status < 500, (path, answer.body)


@pytest.mark.parametrize("poison", POISONS, ids=lambda one: one.name)
async def test_a_bad_order_stops_no_other(database: str, poison: Poison) -> None:  # I-40
    async with open_full_api(database) as api:
        order, other = await api.order("VIP"), await api.order()
        bot = await api.bot()
        bad = spoil(database, poison, order["id"])
        assert (await api.get(f"/api/orders/{other['id']}")).status == 200
        await _lists(api)
        for path in (f"/api/orders/{bad}", f"/api/orders/{bad}/history"):
            assert (await api.get(path)).status < 500, path
        assert (await api.get(f"/api/orders/{bad}/explain")).status == 200
        claimed = await api.post(f"/api/bots/{bot['id']}/claim")
        assert claimed.status == 200, claimed.body


async def test_a_restart_finds_the_queue_as_it_was(database: str) -> None:  # I-40
    async with open_full_api(database) as api:
        ids = [(await enqueue(api))["id"] for _ in range(len(JOB_POISONS))]
        good = await enqueue(api)
    for poison, job_id in zip(JOB_POISONS, ids, strict=True):
        spoil(database, poison, job_id)
    append(database, "job.created", b"nonsense")
    append(database, "nobody.knows", b"{}")
    async with open_full_api(database) as api:
        assert good["id"] in [job["id"] for job in await _claims(api, 10)]
        await _lists(api)
