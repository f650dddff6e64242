"""Long polls decide by what a claim found, and by what an earlier attempt of it found."""

import asyncio
import time

import pytest
from starlette.types import Message

from tests.api.jobs.test_commands import create
from tests.support.asgi_client import Answer, Api

pytestmark = pytest.mark.anyio

FORMS = ["", "return=minimal"]
WAIT_SECONDS = 0.4
POP = "/api/v1/pop/queue/mail?wait=true&timeout=5000"


async def poll(
    api: Api, seconds: float = WAIT_SECONDS, *, key: str | None = None, prefer: str = ""
) -> Answer:
    body = {"queues": ["email"], "workerId": "w", "waitSeconds": seconds}
    keyed = {} if key is None else {"idempotency_key": key}
    answer = await api.post("/api/jobs/claim", body, prefer=prefer, **keyed)
    assert answer.status == 200, answer.body
    return answer


@pytest.mark.parametrize("prefer", FORMS)
async def test_an_empty_claim_waits_in_either_form_of_response(api: Api, prefer: str) -> None:
    began = time.monotonic()
    assert (await poll(api, prefer=prefer)).body == b'{"jobs":[]}'
    assert time.monotonic() - began >= WAIT_SECONDS

    task = asyncio.create_task(poll(api, 5, prefer=prefer))
    await asyncio.sleep(0.1)
    job = await create(api)
    assert [one["id"] for one in (await task).json["jobs"]] == [job["id"]]


@pytest.mark.parametrize("prefer", FORMS)
async def test_a_replayed_claim_with_jobs_is_returned_at_once(api: Api, prefer: str) -> None:
    await create(api)
    first = await poll(api, 5, key="k", prefer=prefer)
    began = time.monotonic()
    again = await poll(api, 5, key="k", prefer=prefer)
    assert time.monotonic() - began < 2
    assert (again.body, len(again.json["jobs"])) == (first.body, 1)
    assert again.headers["idempotent-replayed"] == "true"


async def test_a_retry_arrives_at_the_claim_that_found_jobs(api: Api) -> None:
    """The first claim of the poll was empty; the numbered one after it found the job."""
    task = asyncio.create_task(poll(api, 5, key="k"))
    await asyncio.sleep(0.1)
    await create(api)
    first = await task
    assert len(first.json["jobs"]) == 1

    began = time.monotonic()
    again = await poll(api, 5, key="k")
    assert time.monotonic() - began < 2
    assert again.body == first.body
    assert again.headers["idempotent-replayed"] == "true"


async def test_a_retry_of_an_empty_poll_continues_it(api: Api) -> None:
    assert (await poll(api, key="k")).json["jobs"] == []
    began = time.monotonic()
    assert (await poll(api, key="k")).json["jobs"] == []
    assert time.monotonic() - began >= WAIT_SECONDS

    job = await create(api)
    found = await poll(api, key="k")
    assert [one["id"] for one in found.json["jobs"]] == [job["id"]]
    assert "idempotent-replayed" not in found.headers
    assert (await poll(api, key="k")).body == found.body


async def test_messages_of_a_disconnected_consumer_are_released(api: Api) -> None:
    items = [{"queue": "mail", "partition": one, "payload": 1} for one in ("a", "b")]
    assert (await api.post("/api/v1/push", {"items": items})).status == 201
    path, _, query = f"{POP}&batch=2".partition("?")
    heard: list[Message] = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> Message:
        return heard.pop() if heard else {"type": "http.disconnect"}

    async def send(_: Message) -> None:
        """The client has disconnected."""

    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [],
    }
    await api.app(scope, receive, send)
    popped = (await api.get(f"{POP}&batch=2")).json["messages"]
    assert sorted(one["partition"] for one in popped) == ["a", "b"]
    assert [one["retryCount"] for one in popped] == [0, 0]
