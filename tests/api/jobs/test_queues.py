"""Queue endpoints: configuration and job counts."""

import asyncio
from typing import Any

import pytest

from tests.support.api_jobs import bury, claim, complete, enqueue, enqueue_many
from tests.support.asgi_client import Api

pytestmark = pytest.mark.anyio

MEMBERS = [
    *("name", "paused", "concurrency", "rate", "perSubject", "lanes", "pending", "scheduled"),
    *("behind", "processing", "dead", "atLeast", "oldestPendingAt"),
]


async def queues(api: Api) -> dict[str, dict[str, Any]]:
    answer = await api.get("/api/queues")
    assert answer.status == 200, answer.body
    return {queue["name"]: queue for queue in answer.json["queues"]}


def counts(queue: dict[str, Any]) -> tuple[int, int, int, int]:
    return queue["pending"], queue["scheduled"], queue["processing"], queue["dead"]


async def test_every_queue_that_is_set_up_or_ever_had_a_job_is_listed_by_name(api: Api) -> None:
    # S1-24
    assert await queues(api) == {}
    await enqueue(api, queue="once")
    (job,) = await claim(api, queue="once")
    await complete(api, job)
    await enqueue(api)
    await api.ask("PUT", "/api/queues/calm", {"paused": True})

    found = await queues(api)
    assert [*found] == ["calm", "email", "once"]
    assert all(list(queue) == MEMBERS for queue in found.values())
    assert counts(found["calm"]) == counts(found["once"]) == (0, 0, 0, 0)
    assert counts(found["email"]) == (1, 0, 0, 0)


async def test_a_queue_returns_its_configuration(api: Api) -> None:
    limits = {
        "concurrency": 5,
        "rate": {"count": 10, "seconds": 1.5},
        "perSubject": {"concurrency": 1, "rate": None},
    }
    decided = (await api.ask("PUT", "/api/queues/email", {**limits, "paused": True})).json["queue"]
    found = (await queues(api))["email"]
    assert {name: found[name] for name in decided} == decided
    assert {name: found[name] for name in limits} == limits
    assert found["paused"] is True

    await enqueue(api, queue="other")
    other = (await queues(api))["other"]
    assert (other["paused"], other["concurrency"], other["rate"]) == (False, None, None)
    assert other["perSubject"] == {"concurrency": None, "rate": None}


async def test_pending_processing_and_dead_jobs_are_counted_at_once(api: Api) -> None:
    await bury(api, 2)
    await bury(api, 1, type="other")
    await enqueue_many(api, 4)
    await enqueue(api, type="other", priority=1)
    await enqueue_many(api, 2, runAt="2100-01-01T00:00:00Z")
    await enqueue(api, runAt="2020-01-01T00:00:00Z")
    await enqueue(api, queue="invoices")
    assert counts((await queues(api))["email"]) == (6, 2, 0, 3)
    await claim(api, 2)
    found = await queues(api)
    assert counts(found["email"]) == (4, 2, 2, 3)
    assert counts(found["invoices"]) == (1, 0, 0, 0)
    assert found["email"]["atLeast"] == []


async def test_a_queue_returns_when_its_oldest_job_became_ready(api: Api) -> None:
    await enqueue(api, runAt="2100-01-01T00:00:00Z")
    assert (await queues(api))["email"]["oldestPendingAt"] is None
    first = await enqueue(api, priority=9)
    await asyncio.sleep(0.01)
    await enqueue(api, priority=1, type="other")
    assert (await queues(api))["email"]["oldestPendingAt"] == first["createdAt"]
    await enqueue(api, runAt="2020-01-01T00:00:00Z")
    assert (await queues(api))["email"]["oldestPendingAt"] == "2020-01-01T00:00:00.000Z"


async def test_counting_stops_at_a_limit_and_reports_it(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daybook.api.jobs.queue_queries.COUNT_MAX", 3)
    await bury(api, 2)
    await enqueue_many(api, 5)
    await enqueue_many(api, 2, type="other")

    found = (await queues(api))["email"]
    assert (found["pending"], found["dead"]) == (5, 2)
    assert found["atLeast"] == ["pending"]


async def test_one_queue_equals_its_list_entry(api: Api) -> None:
    await enqueue(api)
    await api.ask("PUT", "/api/queues/calm", {"concurrency": 1})

    for name, queue in (await queues(api)).items():
        assert (await api.get(f"/api/queues/{name}")).json == {"queue": queue}


async def test_an_unknown_queue_is_not_found(api: Api) -> None:
    await enqueue(api)
    assert (await api.get("/api/queues/none")).problem == (404, "not-found")
    assert (await api.get("/api/queues/a%20b")).problem == (400, "bad-name")
    assert (await api.get(f"/api/queues/{'q' * 101}")).problem == (400, "bad-name")


async def test_listing_queues_takes_no_other_parameters(api: Api) -> None:
    for path in ("/api/queues", "/api/queues/email"):
        assert (await api.get(f"{path}?limit=1")).problem == (400, "unknown-parameter")
