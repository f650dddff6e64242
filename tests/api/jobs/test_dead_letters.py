"""Dead letters: list, search and redrive, at once or at a rate."""

import asyncio
from datetime import datetime
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest

from daybook.domain.errors import JobStatusChangedError
from daybook.domain.jobs.job import JobStatus
from daybook.domain.jobs.manage import RetryJobs
from daybook.eventlog.errors import OutcomeUnknownError, UnavailableError
from daybook.eventlog.writing.committer import Committer
from daybook.projections.jobs.dead_jobs import count_dead
from tests.support.api_jobs import bury, claim, enqueue, fail
from tests.support.asgi_client import Answer, Api
from tests.support.committer import origin, rows

pytestmark = pytest.mark.anyio

COUNT_REQUEUED = "SELECT count(*) FROM stored_events WHERE topic = 'job.requeued'"


async def redrive(api: Api, body: Any = None, **headers: str) -> dict[str, Any]:
    answer = await api.post("/api/dlq/redrive", body, **headers)
    assert answer.status == 200, answer.body
    content: dict[str, Any] = answer.json
    return content


async def dead(api: Api, query: str = "") -> list[str]:
    return [job["id"] for job in (await api.get(f"/api/dlq{query}")).json["jobs"]]


def ids(jobs: list[dict[str, Any]]) -> list[str]:
    return [job["id"] for job in jobs]


async def test_dead_jobs_can_be_looked_at_newest_first_with_their_errors(api: Api) -> None:
    # S1-07, S1-24, S4-39, S4-20
    old = await bury(api, 2, "no such address")
    new = await bury(api, 1, "timeout", queue="invoices", type="issue")
    await enqueue(api)

    answer = await api.get("/api/dlq")

    assert list(answer.json) == ["jobs", "nextCursor"]
    assert answer.json["jobs"] == [*new, *old[::-1]]
    assert [job["error"] for job in answer.json["jobs"]][:2] == ["timeout", "no such address"]
    assert await dead(api, "?queue=invoices") == ids(new)
    assert await dead(api, "?type=send") == ids(old)[::-1]
    assert await dead(api, "?queue=email&type=issue") == []


async def test_dead_jobs_are_read_page_by_page(api: Api) -> None:
    made = ids(await bury(api, 3))

    first = (await api.get("/api/dlq?limit=2")).json
    second = (await api.get(f"/api/dlq?limit=2&cursor={first['nextCursor']}")).json

    assert ids(first["jobs"]) + ids(second["jobs"]) == made[::-1]
    assert second["nextCursor"] is None


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("limit=0", "bad-parameter"),
        ("limit=1001", "bad-parameter"),
        ("queue=%20", "bad-parameter"),
        ("status=DEAD", "unknown-parameter"),
        ("cursor=x", "bad-cursor"),
    ],
)
async def test_a_query_that_makes_no_sense_is_refused(api: Api, query: str, problem: str) -> None:
    assert (await api.get(f"/api/dlq?{query}")).problem == (400, problem)


async def test_a_redrive_starts_every_dead_job_over_and_no_other(api: Api) -> None:
    # S4-24: manual retry by ops: pending again, attempts 0, and nothing left of the error.
    await bury(api, 3)
    cancelled = await enqueue(api)
    await api.post(f"/api/jobs/{cancelled['id']}/cancel")

    result = await redrive(api)

    assert result == {"matched": 3, "redriven": 3, "more": False, "nextCursor": None}
    assert await dead(api) == []
    pending = (await api.get("/api/jobs?status=PENDING")).json["jobs"]
    assert [(job["attempts"], job["life"], job["error"]) for job in pending] == [(0, 2, None)] * 3
    assert len(await claim(api, 3)) == 3
    still = (await api.get(f"/api/jobs/{cancelled['id']}")).json["job"]
    assert still["status"] == "CANCELLED"


@pytest.mark.parametrize(
    ("wanted", "indexes"),
    [
        ({"queue": "invoices"}, [2, 3]),
        ({"type": "send"}, [0, 1]),
        ({"error": "timeout"}, [1, 2]),
        ({"error": "time%"}, []),
        ({"queue": "invoices", "type": "issue", "error": "timeout"}, [2]),
        ({"queue": "none"}, []),
        ({}, [0, 1, 2, 3]),
    ],
)
async def test_a_filter_selects_dead_jobs(
    api: Api, wanted: dict[str, str], indexes: list[int]
) -> None:
    made = [
        *await bury(api, 1, "no such address"),
        *await bury(api, 1, "read timeout (30 s)"),
        *await bury(api, 1, "connect timeout", queue="invoices", type="issue"),
        *await bury(api, 1, "refused", queue="invoices", type="issue"),
    ]

    counted = await redrive(api, {"filter": wanted, "dryRun": True})
    assert counted == {"matched": len(indexes), "redriven": 0, "more": False, "nextCursor": None}
    assert len(await dead(api)) == 4
    result = await redrive(api, {"filter": wanted})
    assert (result["matched"], result["redriven"]) == (len(indexes), len(indexes))
    meant = {made[index]["id"] for index in indexes}
    assert set(await dead(api)) == set(ids(made)) - meant


async def test_a_repeated_redrive_starts_nothing_twice(api: Api, database: str) -> None:
    await bury(api, 2)
    assert (await redrive(api))["redriven"] == 2
    assert (await redrive(api))["redriven"] == 0
    assert rows(database, COUNT_REQUEUED) == [(2,)]


async def test_redrives_at_the_same_time_start_every_job_once(api: Api, database: str) -> None:
    await bury(api, 40)
    result = await asyncio.gather(*(redrive(api) for _ in range(5)))

    assert sum(one["redriven"] for one in result) == 40
    assert rows(database, COUNT_REQUEUED) == [(40,)]


def moments(jobs: list[dict[str, Any]]) -> list[datetime]:
    return [datetime.fromisoformat(job["runAt"]) for job in jobs]


@pytest.mark.parametrize("chunk_max", [500, 2])
async def test_with_a_rate_they_come_evenly_spaced_oldest_first(
    api: Api, monkeypatch: pytest.MonkeyPatch, chunk_max: int
) -> None:
    monkeypatch.setattr("daybook.api.jobs.redrive.CHUNK_MAX", chunk_max)
    made = await bury(api, 5)

    assert (await redrive(api, {"ratePerSecond": 0.5}))["redriven"] == 5

    jobs = (await api.get("/api/jobs?status=PENDING")).json["jobs"]
    assert ids(jobs) == ids(made)
    times = moments(jobs)
    gaps = [(b - a).total_seconds() for a, b in pairwise(times)]
    assert gaps == pytest.approx([2.0] * 4, abs=0.0015)
    assert len(await claim(api, 1)) == 1


async def test_a_long_redrive_continues_with_the_next_request_at_the_same_rate(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daybook.api.jobs.redrive.CHUNK_MAX", 2)
    monkeypatch.setattr("daybook.api.jobs.redrive.SECONDS_MAX", 0.0)
    await bury(api, 5)

    body: dict[str, Any] = {"ratePerSecond": 0.5}
    found = [await redrive(api, body)]
    while found[-1]["more"]:
        found.append(await redrive(api, {**body, "cursor": found[-1]["nextCursor"]}))

    assert [one["redriven"] for one in found] == [2, 2, 1]
    assert [one["more"] for one in found] == [True, True, False]
    times = moments((await api.get("/api/jobs?status=PENDING")).json["jobs"])
    assert (times[-1] - times[0]).total_seconds() == pytest.approx(8.0, abs=0.0015)


async def test_a_sparse_search_continues_after_the_scanned_jobs(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daybook.api.jobs.redrive.CHUNK_MAX", 1)
    monkeypatch.setattr("daybook.api.jobs.redrive.SECONDS_MAX", 0.0)
    await bury(api, 2, "common")
    (rare,) = await bury(api, 1, "rare")

    body: dict[str, Any] = {"filter": {"error": "rare"}}
    result = await redrive(api, body)
    assert (result["matched"], result["more"]) == (0, True)
    result = await redrive(api, {**body, "cursor": result["nextCursor"]})
    result = await redrive(api, {**body, "cursor": result["nextCursor"]})
    assert (result["redriven"], result["more"]) == (1, False)
    assert rare["id"] not in await dead(api)


async def test_many_dead_jobs_take_several_chunks_and_one_request(
    api: Api, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daybook.api.jobs.redrive.CHUNK_MAX", 3)
    await bury(api, 10)

    assert (await redrive(api))["redriven"] == 10
    commands = rows(
        database,
        "SELECT count(DISTINCT command_id), count(DISTINCT correlation_id) "
        "FROM stored_events WHERE topic = 'job.requeued'",
    )
    assert commands == [(4, 1)]


async def test_with_an_idempotency_key_a_repetition_hears_the_first_answer(
    api: Api, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daybook.api.jobs.redrive.CHUNK_MAX", 2)
    await bury(api, 5)
    first = await api.post("/api/dlq/redrive", {}, idempotency_key="k1")
    # They die again, which the repetition must not mistake for not having been started.
    for job in await claim(api, 5):
        await fail(api, job, "again")
    again = await api.post("/api/dlq/redrive", {}, idempotency_key="k1")

    assert again.body == first.body
    assert again.headers["idempotent-replayed"] == "true"
    assert "idempotent-replayed" not in first.headers
    assert rows(database, COUNT_REQUEUED) == [(5,)]
    other = await api.post("/api/dlq/redrive", {"ratePerSecond": 1}, idempotency_key="k1")
    assert other.problem == (422, "idempotency-key-reused")


async def cut_off_after(
    api: Api, monkeypatch: pytest.MonkeyPatch, chunks_count: int, error: Exception, **headers: str
) -> Answer:
    """A redrive whose later chunks do not get through."""
    submit = Committer.submit
    left = chunks_count

    def cut_off(committer: Committer, *given: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise error
        return submit(committer, *given)

    with monkeypatch.context() as patch:
        patch.setattr(Committer, "submit", cut_off)
        return await api.post("/api/dlq/redrive", {}, **headers)


async def test_an_interrupted_redrive_reports_its_progress_and_cursor(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daybook.api.jobs.redrive.CHUNK_MAX", 2)
    await bury(api, 5)
    nothing = await cut_off_after(api, monkeypatch, 0, UnavailableError("away"))
    some = await cut_off_after(api, monkeypatch, 1, UnavailableError("away"))

    assert nothing.problem == (503, "unavailable")
    assert nothing.headers["retry-after"] == "1"
    body = some.json
    assert (some.status, body["redriven"], body["more"]) == (200, 2, True)
    assert (await redrive(api, {"cursor": body["nextCursor"]}))["redriven"] == 3


async def test_after_a_crash_a_repetition_with_the_same_key_does_the_rest_once(
    api: Api, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daybook.api.jobs.redrive.CHUNK_MAX", 2)
    made = await bury(api, 5)
    lost = OutcomeUnknownError(UUID(made[0]["id"]))
    unknown = await cut_off_after(api, monkeypatch, 1, lost, idempotency_key="k1")
    assert unknown.problem == (503, "outcome-unknown")
    for job in await claim(api, 2):
        await fail(api, job, "again")

    result = await redrive(api, {}, idempotency_key="k1")

    assert (result["matched"], result["redriven"]) == (5, 5)
    assert rows(database, COUNT_REQUEUED) == [(5,)]
    assert set(await dead(api)) == set(ids(made[:2]))


@pytest.mark.parametrize(
    ("body", "status", "problem"),
    [
        ({"ratePerSecond": 0}, 422, "schema"),
        ({"ratePerSecond": 1e9}, 422, "schema"),
        ({"filter": {"queue": "a b"}}, 422, "schema"),
        ({"filter": {"error": ""}}, 422, "schema"),
        ({"filter": {"subject": "x"}}, 422, "unknown-field"),
        ({"all": True}, 422, "unknown-field"),
        ({"cursor": "x"}, 400, "bad-cursor"),
        ([], 422, "schema"),
    ],
)
async def test_a_redrive_that_makes_no_sense_changes_nothing(
    api: Api, database: str, body: Any, status: int, problem: str
) -> None:
    await bury(api, 1)
    assert (await api.post("/api/dlq/redrive", body)).problem == (status, problem)
    assert rows(database, COUNT_REQUEUED) == [(0,)]


async def test_a_cursor_of_another_redrive_is_refused(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daybook.api.jobs.redrive.CHUNK_MAX", 1)
    monkeypatch.setattr("daybook.api.jobs.redrive.SECONDS_MAX", 0.0)
    await bury(api, 2)
    cursor = (await redrive(api))["nextCursor"]

    for other in ({"filter": {"queue": "email"}}, {"ratePerSecond": 2}):
        answer = await api.post("/api/dlq/redrive", {**other, "cursor": cursor})
        assert answer.problem == (400, "bad-cursor")


async def test_a_dry_run_reports_when_it_stopped_counting(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daybook.api.jobs.redrive.COUNT_MAX", 2)
    await bury(api, 3)

    result = await redrive(api, {"dryRun": True})
    assert result == {"matched": 2, "redriven": 0, "more": True, "nextCursor": None}


async def test_a_job_that_was_cancelled_since_it_was_seen_dead_stays_cancelled(api: Api) -> None:
    seen, other = await bury(api, 2)
    await api.post(f"/api/jobs/{seen['id']}/cancel")

    ids = [UUID(seen["id"]), UUID(other["id"])]
    retry = RetryJobs(job_ids=ids, expected_status=JobStatus.DEAD)
    refused, retried = (await api.service.committer.submit(retry, origin())).result

    assert isinstance(refused.answer, JobStatusChangedError)
    assert retried.answer.status is JobStatus.PENDING


async def test_a_redrive_of_more_than_were_counted_is_refused_with_the_new_count(
    api: Api, database: str
) -> None:
    await bury(api, 3, "timeout")
    await bury(api, 2, "no such address")
    asked = {"filter": {"error": "timeout"}, "expectedCount": 2}

    refused = await api.post("/api/dlq/redrive", asked)

    assert refused.problem == (409, "count-grown")
    assert (refused.json["count"], refused.json["more"]) == (3, False)
    assert rows(database, COUNT_REQUEUED) == [(0,)]
    assert (await redrive(api, {**asked, "expectedCount": 3}))["redriven"] == 3


@pytest.mark.parametrize("chunk_max", [100, 2, 1])
async def test_a_redrive_changes_no_more_than_were_counted(
    api: Api, monkeypatch: pytest.MonkeyPatch, chunk_max: int
) -> None:
    """Also when jobs die while it is under way."""
    monkeypatch.setattr("daybook.api.jobs.redrive.CHUNK_MAX", chunk_max)
    await bury(api, 3)
    asked = {"expectedCount": 3}
    monkeypatch.setattr("daybook.api.jobs.redrive.count_dead", one_more_dies_after(api, count_dead))
    result = await redrive(api, asked)

    assert (result["redriven"], result["more"]) == (3, True)
    assert len(await dead(api)) == 1
    rest = await redrive(api, {"cursor": result["nextCursor"], "expectedCount": 1})
    assert (rest["redriven"], rest["more"]) == (1, False)


def one_more_dies_after(api: Api, count: Any) -> Any:
    async def counted(*given: Any, **named: Any) -> Any:
        result = await count(*given, **named)
        await bury(api, 1)
        return result

    return counted


async def test_a_redrive_is_replayed_though_more_jobs_died_since(api: Api) -> None:
    await bury(api, 2)
    headers = {"Idempotency-Key": "redrive-1"}
    result = await redrive(api, {"expectedCount": 2}, **headers)
    await bury(api, 5)
    assert await redrive(api, {"expectedCount": 2}, **headers) == result


@pytest.mark.parametrize("chunk_max", [100, 1])
async def test_a_redrive_goes_no_further_than_its_limit(
    api: Api, monkeypatch: pytest.MonkeyPatch, chunk_max: int
) -> None:
    monkeypatch.setattr("daybook.api.jobs.redrive.CHUNK_MAX", chunk_max)
    made = ids(await bury(api, 5))
    result = await redrive(api, {"limit": 2})
    assert (result["redriven"], result["more"]) == (2, True)
    assert await dead(api) == made[:1:-1]
    result = await redrive(api, {"limit": 2, "cursor": result["nextCursor"]})
    assert await dead(api) == made[:3:-1]
