"""Bulk retry and cancel: page by page, each job decided independently."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from daybook.domain.jobs.job import JobStatus
from daybook.domain.jobs.manage import CancelJobs
from tests.support.api_jobs import bury, claim, enqueue, enqueue_many
from tests.support.asgi_client import Api
from tests.support.committer import origin, rows

pytestmark = pytest.mark.anyio

COUNT_CANCELLED = "SELECT count(*) FROM stored_events WHERE topic = 'job.cancelled'"
COUNT_EVENTS = "SELECT count(*) FROM stored_events"


async def bulk(api: Api, verb: str, body: Any = None, **headers: str) -> dict[str, Any]:
    answer = await api.post(f"/api/jobs/{verb}", body, **headers)
    assert answer.status == 200, answer.body
    content: dict[str, Any] = answer.json
    return content


async def status_of(api: Api, job: dict[str, Any]) -> str:
    status: str = (await api.get(f"/api/jobs/{job['id']}")).json["job"]["status"]
    return status


async def test_cancelling_takes_only_matching_jobs(api: Api) -> None:
    mails = await enqueue_many(api, 3)
    other = await enqueue(api, queue="invoices")
    subject = await enqueue(api, subject="guest-1")
    (claimed,) = await claim(api)

    result = await bulk(api, "cancel", {"filter": {"queue": "email", "type": "send"}})

    assert (result["matched"], result["changed"], result["more"]) == (3, 3, False)
    assert {one["id"] for one in result["results"]} == {
        job["id"] for job in (*mails, subject) if job["id"] != claimed["id"]
    }
    assert {one["status"] for one in result["results"]} == {"CANCELLED"}
    assert await status_of(api, claimed) == "PROCESSING"
    assert await status_of(api, other) == "PENDING"


async def test_a_dry_run_counts_and_changes_nothing(api: Api, database: str) -> None:
    await enqueue_many(api, 3)
    result = await bulk(api, "cancel", {"dryRun": True})

    assert result == {"matched": 3, "changed": 0, "results": [], "more": False, "nextCursor": None}
    assert rows(database, COUNT_CANCELLED) == [(0,)]


async def test_page_by_page_every_job_is_retried_once(api: Api) -> None:
    dead = await bury(api, 5)
    seen: list[str] = []
    body: dict[str, Any] = {"limit": 2}
    while True:
        result = await bulk(api, "retry", body)
        seen += [one["id"] for one in result["results"]]
        assert result["changed"] == len(result["results"]) <= 2
        if not result["more"]:
            break
        body["cursor"] = result["nextCursor"]

    assert seen == [job["id"] for job in dead[::-1]]
    assert {await status_of(api, job) for job in dead} == {"PENDING"}


async def test_cancelled_jobs_can_be_retried_too(api: Api) -> None:
    jobs = await enqueue_many(api, 2)
    await bulk(api, "cancel")
    assert {await status_of(api, job) for job in jobs} == {"CANCELLED"}

    result = await bulk(api, "retry", {"filter": {"status": "CANCELLED"}})

    assert result["changed"] == 2
    assert {await status_of(api, job) for job in jobs} == {"PENDING"}


async def test_a_job_with_another_status_is_skipped_and_reported(api: Api) -> None:
    waiting, taken = await enqueue_many(api, 2)
    (claimed,) = await claim(api)
    assert claimed["id"] == waiting["id"]
    ids = [UUID(waiting["id"]), UUID(taken["id"])]
    command = CancelJobs(job_ids=ids, expected_status=JobStatus.PENDING)
    receipt = await api.service.committer.submit(command, origin())

    refused, cancelled = receipt.result
    assert refused.answer.code == "job_moved_on"
    assert "was PENDING and is PROCESSING now" in str(refused.answer)
    assert cancelled.answer.status is JobStatus.CANCELLED


async def test_concurrent_bulk_cancels_cancel_each_job_once(api: Api, database: str) -> None:
    await enqueue_many(api, 40)

    result = await asyncio.gather(*(bulk(api, "cancel") for _ in range(5)))

    assert sum(one["changed"] for one in result) == 40
    assert rows(database, COUNT_CANCELLED) == [(40,)]
    refused = [one for answer in result for one in answer["results"] if "code" in one]
    assert {one["code"] for one in refused} <= {"job_moved_on"}


async def test_the_same_key_gets_the_same_answer_and_has_one_effect(
    api: Api, database: str
) -> None:
    await enqueue_many(api, 3)
    first = await bulk(api, "cancel", {"limit": 2}, idempotency_key="once")
    again = await bulk(api, "cancel", {"limit": 2}, idempotency_key="once")

    assert again == first
    assert rows(database, COUNT_CANCELLED) == [(2,)]


@pytest.mark.parametrize(
    ("verb", "body", "problem"),
    [
        ("cancel", {"filter": {"status": "COMPLETED"}}, (422, "schema")),
        ("retry", {"filter": {"status": "PENDING"}}, (422, "schema")),
        ("retry", {"limit": 501}, (422, "schema")),
        ("retry", {"limit": 0}, (422, "schema")),
        ("cancel", {"filter": {"colour": "red"}}, (422, "unknown-field")),
        ("cancel", {"cursor": "x"}, (400, "bad-cursor")),
    ],
)
async def test_an_invalid_body_is_refused(
    api: Api, verb: str, body: Any, problem: tuple[int, str]
) -> None:
    assert (await api.post(f"/api/jobs/{verb}", body)).problem == problem


async def test_a_cursor_of_another_filter_is_refused(api: Api) -> None:
    await enqueue_many(api, 3)
    result = await bulk(api, "cancel", {"limit": 1})
    other = {"filter": {"queue": "email"}, "cursor": result["nextCursor"]}
    assert (await api.post("/api/jobs/cancel", other)).problem == (400, "bad-cursor")


@pytest.mark.parametrize("verb", ["cancel", "retry"])
async def test_a_count_that_has_grown_is_refused_with_the_new_one(
    api: Api, database: str, verb: str
) -> None:
    # An operator decides by the count on the page: more jobs are another decision.
    jobs = await enqueue_many(api, 3) if verb == "cancel" else await bury(api, 3)
    before = rows(database, COUNT_EVENTS)

    answer = await api.post(f"/api/jobs/{verb}", {"expectedCount": 2})

    assert answer.problem == (409, "count-grown")
    assert (answer.json["code"], answer.json["count"], answer.json["more"]) == (
        "count_grown",
        3,
        False,
    )
    assert rows(database, COUNT_EVENTS) == before
    result = await bulk(api, verb, {"expectedCount": 3})
    assert (result["changed"], result["more"]) == (len(jobs), False)


async def test_fewer_than_were_counted_are_no_reason_to_refuse(api: Api) -> None:
    await enqueue_many(api, 2)
    assert (await bulk(api, "cancel", {"expectedCount": 5}))["changed"] == 2


async def test_behind_a_cursor_only_the_rest_is_counted(api: Api) -> None:
    await enqueue_many(api, 5)
    first = await bulk(api, "cancel", {"limit": 2, "expectedCount": 5})
    await enqueue(api)
    rest = {"cursor": first["nextCursor"], "limit": 2}

    refused = await api.post("/api/jobs/cancel", {**rest, "expectedCount": 3})

    assert (refused.problem, refused.json["count"]) == ((409, "count-grown"), 4)
    assert (await bulk(api, "cancel", {**rest, "expectedCount": 4}))["changed"] == 2


async def test_only_the_jobs_of_the_filter_are_counted(api: Api) -> None:
    await enqueue_many(api, 2, subject="guest-1", priority=3)
    await enqueue_many(api, 2, subject="guest-1", runAt="2100-01-01T00:00:00Z")
    await enqueue_many(api, 7, queue="invoices")
    body = {"filter": {"queue": "email"}, "expectedCount": 3}
    for more in ({}, {"subject": "guest-1"}, {"type": "send"}):
        asked = {**body, "filter": {"queue": "email", **more}}
        refused = await api.post("/api/jobs/cancel", asked)
        assert (refused.problem, refused.json["count"]) == ((409, "count-grown"), 4), more
    assert (await bulk(api, "cancel", {**body, "expectedCount": 4}))["changed"] == 4
    refused = await api.post(
        "/api/jobs/retry", {"filter": {"status": "CANCELLED"}, "expectedCount": 1}
    )
    assert refused.json["count"] == 4


async def test_a_refused_count_leaves_the_key_free_and_a_response_is_replayed(
    api: Api,
) -> None:
    await enqueue_many(api, 3)
    headers = {"Idempotency-Key": "k-1"}
    refused = await api.post("/api/jobs/cancel", {"expectedCount": 2}, **headers)
    assert refused.problem == (409, "count-grown")
    (claimed,) = await claim(api)

    result = await bulk(api, "cancel", {"expectedCount": 2}, **headers)
    assert result["changed"] == 2
    # The count has grown since; a request with the same key gets the first answer all the same.
    await enqueue_many(api, 9)
    assert await bulk(api, "cancel", {"expectedCount": 2}, **headers) == result
    assert await status_of(api, claimed) == "PROCESSING"


async def test_a_large_count_is_reported_as_at_least(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daybook.api.jobs.bulk.COUNT_MAX", 4)
    await enqueue_many(api, 5)
    result = await bulk(api, "cancel", {"dryRun": True})
    assert (result["matched"], result["more"]) == (4, True)
    refused = await api.post("/api/jobs/cancel", {"expectedCount": 4})
    assert (refused.json["count"], refused.json["more"]) == (4, True)
    assert refused.problem == (409, "count-grown")
