"""Tags of jobs: taken on every way in, shown, and a filter of the list, of the past and of bulk
requests."""

from typing import Any

import psycopg
import pytest
from uuid_utils.compat import uuid7

import daybook
from daybook.api.server.listener import listen
from daybook.domain.schedules.commands import FireSchedule
from daybook.eventlog.origin import Origin
from daybook.processors.operation_executor import OperationExecutor
from tests.api.messages.test_operations import BUSY, make_busy, opened, push
from tests.support.api_jobs import claim, complete, enqueue, enqueue_many, fail
from tests.support.asgi_client import Api
from tests.support.committer import eventually, fold_of_the_log, live_rows, rows
from tests.support.running.socket_server import listening
from tests.support.ways_in import Later

pytestmark = pytest.mark.anyio

TAGS = ["vip", "eu"]
READ_TAGS = "SELECT DISTINCT tags FROM jobs WHERE queue = 'mail'"


async def tagged(api: Api, tag: str = "vip", query: str = "") -> list[dict[str, Any]]:
    answer = await api.get(f"/api/jobs?tag={tag}{query}")
    assert answer.status == 200, answer.body
    jobs: list[dict[str, Any]] = answer.json["jobs"]
    return jobs


async def test_a_job_shows_its_tags_in_the_order_given(api: Api) -> None:
    job = await enqueue(api, tags=TAGS)
    assert job["tags"] == TAGS
    assert (await api.get(f"/api/jobs/{job['id']}")).json["job"]["tags"] == TAGS
    assert (await enqueue(api))["tags"] == []


async def test_a_minimal_response_omits_tags_that_are_not_there(api: Api) -> None:
    await enqueue(api, tags=TAGS)
    await enqueue(api)
    body = {"queues": ["email"], "workerId": "w", "limit": 2}
    claimed = await api.post("/api/jobs/claim", body, prefer="return=minimal")
    assert [job.get("tags") for job in claimed.json["jobs"]] == [TAGS, None]


async def test_every_job_of_a_batch_has_its_own_tags(api: Api) -> None:
    named = {"queue": "email", "type": "send"}
    jobs = [{**named, "tags": TAGS}, named, {**named, "tags": ["eu"]}]
    made = (await api.post("/api/jobs", {"jobs": jobs})).json["jobs"]
    assert [job["tags"] for job in made] == [TAGS, [], ["eu"]]
    assert await tagged(api) == made[:1]
    assert await tagged(api, "eu") == [made[0], made[2]]


async def test_a_follow_up_has_its_own_tags(api: Api) -> None:
    await enqueue(api, tags=["first"])
    (job,) = await claim(api)
    then = [{"type": "next", "tags": TAGS}, {"type": "next"}]
    body = {"claimId": job["claimId"], "then": then}
    assert (await api.post(f"/api/jobs/{job['id']}/complete", body)).status == 200
    assert [one["type"] for one in await tagged(api)] == ["next"]


async def test_a_message_keeps_its_tags_even_if_the_push_is_deferred(database: str) -> None:
    async with opened(database, BUSY, processors=[OperationExecutor()]) as api:
        item = {"queue": "mail", "partition": "p", "tags": TAGS}
        await make_busy(api)
        assert (await push(api, item)).status == 202
        await eventually(lambda: rows(database, READ_TAGS) == [("vip,eu",)])
        assert [one["tags"] for one in await tagged(api)] == [TAGS]
    assert live_rows(database) == fold_of_the_log(database)


async def test_the_jobs_of_a_schedule_have_the_tags_of_its_template(api: Api) -> None:
    job = {"queue": "reports", "type": "report", "tags": TAGS}
    made = await api.post("/api/schedules", {"name": "n", "cron": "* * * * *", "job": job})
    assert made.json["schedule"]["job"]["tags"] == TAGS
    origin = Origin(command_id=uuid7(), actor="system:schedules")
    await api.service.committer.submit(Later(FireSchedule(name="n")), origin)
    assert [one["type"] for one in await tagged(api)] == ["report"]


async def test_a_job_of_the_callers_transaction_has_its_tags(api: Api, database: str) -> None:
    with psycopg.connect(database) as connection:
        job_id = daybook.enqueue(connection, queue="email", type="send", tags=TAGS)
    assert [one["id"] for one in await tagged(api)] == [str(job_id)]


async def test_a_list_of_a_tag_has_pages_and_other_filters(api: Api) -> None:
    made = [job["id"] for job in await enqueue_many(api, 5, tags=TAGS)]
    other = await enqueue(api, queue="sms", tags=TAGS, subject="s")
    await enqueue_many(api, 2)

    first = (await api.get("/api/jobs?tag=vip&queue=email&limit=3")).json
    cursor = first["nextCursor"]
    second = (await api.get(f"/api/jobs?tag=vip&queue=email&limit=3&cursor={cursor}")).json
    assert [job["id"] for page in (first, second) for job in page["jobs"]] == made
    assert second["nextCursor"] is None
    wrong = await api.get(f"/api/jobs?tag=eu&queue=email&limit=3&cursor={cursor}")
    assert wrong.problem == (400, "bad-cursor")
    for query in ("&queue=sms", "&subject=s", "&queue=sms&type=send&status=PENDING"):
        assert await tagged(api, "eu", query) == [other]


async def test_a_list_of_the_past_has_the_jobs_that_had_the_tag(api: Api, database: str) -> None:
    await enqueue(api, tags=TAGS)
    await enqueue(api)
    for job in await claim(api, 2):
        await complete(api, job)
    ((then,),) = rows(database, "SELECT max(position) FROM log")
    await enqueue(api, tags=TAGS)

    assert [job["status"] for job in await tagged(api)] == ["PENDING", "COMPLETED"]
    past = await tagged(api, query=f"&asOf={then}")
    assert [job["status"] for job in past] == ["COMPLETED"]
    assert [job["status"] for job in await tagged(api, query="&asOf=1")] == ["PENDING"]
    assert await tagged(api, "none", f"&asOf={then}") == []


async def test_a_job_that_is_created_again_has_the_new_tags(api: Api) -> None:
    keyed = {"uniqueKey": "k", "uniqueScope": "unfinished"}
    await enqueue(api, tags=["old"], **keyed)
    await complete(api, (await claim(api))[0])
    await enqueue(api, tags=["new"], **keyed)
    assert await tagged(api, "old") == []
    await complete(api, (await claim(api))[0])
    assert await tagged(api, "old") == []
    assert [job["life"] for job in await tagged(api, "new")] == [2]


async def test_dead_jobs_of_a_tag_are_retried_together(api: Api) -> None:
    await enqueue_many(api, 2, tags=TAGS)
    await enqueue(api)
    for job in await claim(api, 3):
        await fail(api, job, "no")
    answer = await api.post("/api/jobs/retry", {"filter": {"tag": "vip"}})
    assert (answer.json["matched"], answer.json["changed"]) == (2, 2)
    assert len(await tagged(api, query="&status=PENDING")) == 2


async def test_the_client_sends_tags_and_lists_by_one(api: Api) -> None:
    with listen("127.0.0.1", 0) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with listening(api, listener), daybook.AsyncClient(url) as client:
            job = await client.enqueue("email", "send", tags=TAGS)
            await client.enqueue("email", "send")
            assert job.tags == ("vip", "eu")
            assert [one.id async for one in client.list(tag="eu")] == [job.id]
            (claimed,) = await client.claim(["email"], worker_id="w")
            assert claimed.tags == job.tags
