"""Job queries and histories: current, sorted, free of side effects."""

import asyncio
import time
from typing import Any

import pytest
from uuid_utils.compat import uuid7

from daybook.api.runtime.service import Service
from tests.support.api_jobs import claim, complete, enqueue, enqueue_many, fail
from tests.support.asgi_client import Api, api_of
from tests.support.committer import rows
from tests.support.databases.tcp_proxy import proxy_to

pytestmark = pytest.mark.anyio

JOB_MEMBERS = [
    *("id", "queue", "type", "status", "priority", "payload", "subject", "uniqueKey"),
    *("uniqueScope", "partition", "tags", "attempts", "attemptsMax", "failures", "crashes"),
    *("interruptions", "life", "effectKey", "leaseSeconds", "runAt", "claimId", "workerId"),
    *("startedAt", "leaseUntil", "result", "error", "createdAt", "updatedAt", "finishedAt"),
    "version",
]


async def listed(api: Api, query: str = "") -> list[dict[str, Any]]:
    answer = await api.get(f"/api/jobs{query}")
    assert answer.status == 200, answer.body
    jobs: list[dict[str, Any]] = answer.json["jobs"]
    return jobs


async def test_pending_jobs_are_listed_oldest_first(api: Api) -> None:  # S4-38
    made = await enqueue_many(api, 3)
    urgent = await enqueue(api, priority=1)
    later = await enqueue(api, runAt="2100-01-01T00:00:00Z")

    answer = await api.get("/api/jobs?status=PENDING")

    assert list(answer.json) == ["jobs", "nextCursor", "serverNow"]
    assert answer.json["jobs"] == [*made, urgent, later]
    assert all(list(job) == JOB_MEMBERS for job in answer.json["jobs"])
    assert answer.json["nextCursor"] is None
    assert answer.json["serverNow"] >= later["createdAt"]


async def test_failed_jobs_are_listed_newest_first_with_their_error(api: Api) -> None:
    # S4-39, S4-20, S1-07
    await enqueue_many(api, 2)
    dead = [await fail(api, job, f"error {n}") for n, job in enumerate(await claim(api, 2))]

    shown = await listed(api, "?status=DEAD")
    assert shown == dead[::-1]
    assert [job["error"] for job in shown] == ["error 1", "error 0"]
    assert all(job["finishedAt"] is not None for job in shown)


async def test_all_jobs_of_a_subject_are_listed_with_their_outcome(api: Api) -> None:
    # S4-40
    await enqueue(api, type="issue_invoice", subject="booking-7")
    (invoice,) = await claim(api)
    done = await complete(api, invoice, {"number": "FR 1"})
    await enqueue(api, type="send", subject="booking-8")
    waiting = await enqueue(api, type="send", subject="booking-7")

    shown = await listed(api, "?subject=booking-7")
    assert shown == [waiting, done]
    assert shown[1]["result"] == {"number": "FR 1"}
    found = [(job["type"], job["status"], job["attempts"]) for job in shown]
    assert found == [("send", "PENDING", 0), ("issue_invoice", "COMPLETED", 1)]


async def test_a_list_is_current_the_moment_a_write_was_answered(api: Api) -> None:
    job = await enqueue(api)
    assert await listed(api) == [job]
    (claimed,) = await claim(api)
    assert await listed(api, "?status=PROCESSING") == [claimed]
    completed = await complete(api, claimed)
    assert await listed(api, "?status=COMPLETED") == [completed]
    assert await listed(api) == [completed]


async def test_a_retry_moves_a_cancelled_job_between_sections(api: Api) -> None:
    job = await enqueue(api)
    cancelled = (await api.post(f"/api/jobs/{job['id']}/cancel")).json["job"]
    assert await listed(api, "?status=CANCELLED") == [cancelled]
    retried = (await api.post(f"/api/jobs/{job['id']}/retry")).json["job"]
    assert await listed(api, "?status=CANCELLED") == []
    assert await listed(api, "?status=PENDING") == [retried]


async def test_one_job_equals_its_list_entry(api: Api) -> None:
    await enqueue_many(api, 4)
    first, second, third = await claim(api, 3)
    await complete(api, first, [1, 2])
    await fail(api, second, "no")
    await api.post(f"/api/jobs/{third['id']}/cancel")

    for job in await listed(api):
        assert (await api.get(f"/api/jobs/{job['id']}")).json == {"job": job}


async def test_a_list_is_read_page_by_page(api: Api) -> None:
    made = [job["id"] for job in await enqueue_many(api, 5)]

    first = (await api.get("/api/jobs?limit=2&queue=email")).json
    second = (await api.get(f"/api/jobs?limit=2&queue=email&cursor={first['nextCursor']}")).json
    third = (await api.get(f"/api/jobs?limit=9&queue=email&cursor={second['nextCursor']}")).json

    pages = [[job["id"] for job in page["jobs"]] for page in (first, second, third)]
    assert pages == [made[:2], made[2:4], made[4:]]
    assert third["nextCursor"] is None


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("limit=0", "bad-parameter"),
        ("limit=1001", "bad-parameter"),
        ("limit=5000", "bad-parameter"),
        ("limit=-1", "bad-parameter"),
        ("limit=", "bad-parameter"),
        ("status=pending", "bad-parameter"),
        ("status=LOST", "bad-parameter"),
        ("queue=", "bad-parameter"),
        ("queue=no%20spaces", "bad-parameter"),
        ("queue=" + "q" * 101, "bad-parameter"),
        ("type=%C3%A9", "bad-parameter"),
        ("subject=", "bad-parameter"),
        ("subject=" + "s" * 201, "bad-parameter"),
        ("tag=", "bad-parameter"),
        ("tag=a,b", "bad-parameter"),
        ("tag=" + "t" * 101, "bad-parameter"),
        ("limit=1&limit=2", "duplicate-parameter"),
        ("page=2", "unknown-parameter"),
        ("cursor=", "bad-cursor"),
        ("cursor=x", "bad-cursor"),
        ("cursor=" + "A" * 100_000, "bad-cursor"),
    ],
)
async def test_a_query_that_makes_no_sense_is_refused(api: Api, query: str, problem: str) -> None:
    assert (await api.get(f"/api/jobs?{query}")).problem == (400, problem)


async def test_a_subject_with_a_nul_in_it_is_refused(api: Api) -> None:
    assert (await api.get("/api/jobs?subject=a%00b")).problem == (400, "bad-parameter")


async def test_a_cursor_of_another_list_is_refused(api: Api) -> None:
    await enqueue_many(api, 2)
    cursor = (await api.get("/api/jobs?limit=1")).json["nextCursor"]

    for query in ("status=PENDING", "queue=email", "subject=email", "tag=email"):
        answer = await api.get(f"/api/jobs?limit=1&{query}&cursor={cursor}")
        assert answer.problem == (400, "bad-cursor")
    assert (await api.get(f"/api/orders?cursor={cursor}")).problem == (400, "bad-cursor")


async def test_a_job_history_has_every_event_with_actor_and_reason(api: Api) -> None:
    # S4-40, D-76
    made = await enqueue(api, payload={"to": "a@b.c"}, subject="booking-7")
    (claimed,) = await claim(api)
    await complete(api, claimed, {"sent": True})

    answer = await api.get(f"/api/jobs/{made['id']}/history")

    events = answer.json["events"]
    topics = [event["topic"] for event in events]
    assert topics == ["job.created", "job.claimed", "job.completed"]
    assert [event["version"] for event in events] == [1, 2, 3]
    assert [event["position"] for event in events] == [1, 2, 3]
    assert answer.json["nextAfter"] is None
    assert list(events[0]) == [
        *("position", "topic", "version", "recordedAt", "actor", "commandId", "correlationId"),
        *("causationId", "data"),
    ]
    created, taken, completed = (event["data"] for event in events)
    assert (created["payload"], created["subject"]) == ({"to": "a@b.c"}, "booking-7")
    assert (taken["claimId"], taken["worker"]) == (claimed["claimId"], claimed["workerId"])
    assert taken["leaseUntil"] == claimed["leaseUntil"]
    assert completed["result"] == {"sent": True}


async def test_orders_and_bots_have_histories_too(api: Api) -> None:
    order, bot = await api.cooking()

    for kind, one in (("orders", order), ("bots", bot)):
        events = (await api.get(f"/api/{kind}/{one['id']}/history")).json["events"]
        assert [event["topic"].partition(".")[2] for event in events] == ["created", "claimed"]
        assert events[1]["data"]["claimId"] == order["claimId"]


async def test_a_long_history_is_read_page_by_page(api: Api) -> None:
    job = await enqueue(api)
    for _ in range(3):
        (claimed,) = await claim(api)
        await api.post(f"/api/jobs/{job['id']}/release", {"claimId": claimed["claimId"]})
    path = f"/api/jobs/{job['id']}/history"

    first = (await api.get(f"{path}?limit=4")).json
    second = (await api.get(f"{path}?limit=4&after={first['nextAfter']}")).json
    beyond = (await api.get(f"{path}?after=1000")).json

    versions = [[event["version"] for event in page["events"]] for page in (first, second)]
    assert versions == [[1, 2, 3, 4], [5, 6, 7]]
    assert second["nextAfter"] is None
    assert beyond == {"events": [], "nextAfter": None}


@pytest.mark.parametrize("kind", ["orders", "bots", "jobs"])
async def test_an_unknown_id_has_no_history(api: Api, kind: str) -> None:
    others = {
        "orders": (await api.order())["id"],
        "bots": (await api.bot())["id"],
        "jobs": (await enqueue(api))["id"],
    }
    del others[kind]

    for unknown in (uuid7(), *others.values()):
        answer = await api.get(f"/api/{kind}/{unknown}/history")
        assert answer.problem == (404, "not-found")
    assert (await api.get(f"/api/{kind}/17/history")).problem == (400, "bad-id")


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "after=-1", f"after={2**63}"])
async def test_a_page_of_a_history_that_makes_no_sense_is_refused(api: Api, query: str) -> None:
    job = await enqueue(api)
    answer = await api.get(f"/api/jobs/{job['id']}/history?{query}")
    assert answer.problem == (400, "bad-parameter")


async def test_a_job_that_never_was_is_not_found(api: Api) -> None:
    order = await api.order()
    for unknown in (uuid7(), order["id"]):
        assert (await api.get(f"/api/jobs/{unknown}")).problem == (404, "not-found")
    assert (await api.get("/api/jobs/17")).problem == (400, "bad-id")


async def test_reading_changes_nothing(api: Api, database: str) -> None:
    job = await enqueue(api)
    count = rows(database, "SELECT count(*) FROM stored_events")
    for path in (
        "/api/jobs",
        f"/api/jobs/{job['id']}",
        f"/api/jobs/{job['id']}/history",
        "/api/dlq",
        "/api/queues",
        "/api/queues/email",
    ):
        assert (await api.get(path)).status == 200
        assert (await api.get(f"{path}?nonsense=1")).problem == (400, "unknown-parameter")

    assert rows(database, "SELECT count(*) FROM stored_events") == count


@pytest.mark.parametrize(
    "path", ["/api/jobs", "/api/jobs/{id}", "/api/jobs/{id}/history", "/api/dlq", "/api/queues"]
)
async def test_an_unreachable_database_gives_503_within_a_second(database: str, path: str) -> None:
    async with proxy_to(database) as proxy, Service(proxy.conninfo, processors=()) as service:
        api, path = api_of(service), path.format(id=uuid7())
        await api.get(path)
        proxy.refusing = True
        proxy.drop_all()
        began = asyncio.get_running_loop().time()
        away = await api.get(path)

        assert asyncio.get_running_loop().time() - began < 1.5
        assert away.problem == (503, "unavailable")
        assert away.headers["retry-after"] == "1"


async def waited(api: Api, job_id: str, seconds: float) -> tuple[dict[str, Any], float]:
    """The job, and how long the response took."""
    began = time.monotonic()
    answer = await api.get(f"/api/jobs/{job_id}?waitSeconds={seconds}")
    assert answer.status == 200, answer.body
    job: dict[str, Any] = answer.json["job"]
    return job, time.monotonic() - began


@pytest.mark.parametrize("end", ["complete", "fail", "cancel"])
async def test_a_wait_for_a_job_is_answered_as_soon_as_it_is_finished(api: Api, end: str) -> None:
    await enqueue(api)
    (job,) = await claim(api)
    waiting = asyncio.create_task(waited(api, job["id"], 20))
    await asyncio.sleep(0.3)
    assert not waiting.done()
    if end == "complete":
        done = await complete(api, job, {"sent": True})
    elif end == "fail":
        done = await fail(api, job, "no")
    else:
        done = (await api.post(f"/api/jobs/{job['id']}/cancel", {})).json["job"]
    async with asyncio.timeout(1):
        found, _ = await waiting
    assert found == done
    found, seconds = await waited(api, job["id"], 20)
    assert found == done
    assert seconds < 1


async def test_a_wait_ends_after_its_time_with_the_job_as_it_is(api: Api) -> None:
    job = await enqueue(api)
    found, seconds = await waited(api, job["id"], 0.7)
    assert found == job
    assert 0.7 <= seconds < 2


async def test_a_wait_for_an_unknown_job_is_refused_at_once(api: Api) -> None:
    async with asyncio.timeout(1):
        answer = await api.get(f"/api/jobs/{uuid7()}?waitSeconds=20")
    assert answer.problem == (404, "not-found")


async def test_a_wait_ends_when_the_service_stops(api: Api) -> None:
    job = await enqueue(api)
    waiting = asyncio.create_task(waited(api, job["id"], 20))
    await asyncio.sleep(0.1)
    api.service.job_waiters.end()
    async with asyncio.timeout(1):
        found, _ = await waiting
    assert found == job


@pytest.mark.parametrize("seconds", ["-1", "30.5", "nan", "soon"])
async def test_a_wait_is_bounded(api: Api, seconds: str) -> None:
    job = await enqueue(api)
    answer = await api.get(f"/api/jobs/{job['id']}?waitSeconds={seconds}")
    assert answer.problem == (400, "bad-parameter")
