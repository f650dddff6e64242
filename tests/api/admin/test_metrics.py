"""Metrics exist and are correct."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from daybook.api.runtime.load_shedding import Thresholds
from daybook.api.runtime.service import Service
from daybook.api.telemetry.counters import read_count
from daybook.processors.webhooks.webhook import Webhook
from tests.api.messages.test_operations import make_busy, opened, push
from tests.api.messages.test_push_and_ack import item
from tests.api.runtime.background.test_task import ended
from tests.api.telemetry.test_observability import numbers
from tests.daybook.cli.test_inspect_commands import AGE, STOP_NOTIFYING
from tests.support.asgi_client import Api, api_of, open_api
from tests.support.committer import rows
from tests.support.running.nearby import NEARBY

pytestmark = pytest.mark.anyio

KINDS = {"created": 3, "claimed": 4, "completed": 1, "failed": 2, "moved_to_dlq": 1, "requeued": 1}
LAG = "daybook_follower_lag{"
TRIES_MAX = 200


@pytest.fixture
async def api(database: str) -> AsyncIterator[Api]:
    async with open_api(database) as opened:
        yield opened


async def claim(api: Api, job_type: str) -> dict[str, Any]:
    wish = {"queues": ["email"], "types": [job_type], "workerId": "w"}
    (job,) = (await api.post("/api/jobs/claim", wish)).json["jobs"]
    claimed: dict[str, Any] = job
    return claimed


async def say(api: Api, job: dict[str, Any], what: str, **body: Any) -> None:
    answer = await api.post(f"/api/jobs/{job['id']}/{what}", {"claimId": job["claimId"], **body})
    assert answer.status == 200, answer.body


async def test_claims_completions_failures_retries_and_dead_letters_are_counted(api: Api) -> None:
    for job_type in ("good", "unlucky", "hopeless"):
        await api.post("/api/jobs", {"queue": "email", "type": job_type})
    await say(api, await claim(api, "good"), "complete")
    await say(api, await claim(api, "unlucky"), "fail", error="no", retryAfterSeconds=0)
    await claim(api, "unlucky")
    dead = await claim(api, "hopeless")
    await say(api, dead, "fail", error="never", retryable=False)
    assert (await api.post(f"/api/jobs/{dead['id']}/retry")).status == 200

    found = numbers((await api.get("/metrics")).body.decode())

    counted = {kind: found[f'daybook_events_total{{topic="job.{kind}"}}'] for kind in KINDS}
    assert counted == KINDS


async def test_counters_start_at_zero(api: Api) -> None:
    found = numbers((await api.get("/metrics")).body.decode())

    assert found['daybook_events_total{topic="job.moved_to_dlq"}'] == 0
    assert found['daybook_admissions_total{decision="reject",kind="push"}'] >= 0
    assert found['daybook_rate_limit_hits_total{limit="failed-keys"}'] >= 0


async def test_depth_is_reported_by_queue_and_status(api: Api) -> None:
    for partition in ("a", "a", "b"):
        job = {"queue": "email", "type": "t", "partition": partition}
        await api.post("/api/jobs", job)
    await api.post("/api/jobs", {"queue": "later", "type": "t", "runAt": "2100-01-01T00:00:00Z"})

    found = numbers((await api.get("/metrics")).body.decode())

    def depth(queue: str, status: str) -> float:
        return found[f'daybook_queue_depth{{kind="job",queue="{queue}",status="{status}"}}']

    assert [depth("email", status) for status in ("pending", "behind", "dead")] == [2, 1, 0]
    assert [depth("later", status) for status in ("pending", "scheduled")] == [0, 1]


async def test_every_decision_about_a_push_or_a_pop_is_counted(database: str) -> None:
    few = Thresholds(busy_seconds=10, push_load_max=1e-9, push_depth_max=1)
    async with opened(database, few) as api:
        executed, queued = counting("push", "execute"), counting("push", "queue")
        rejected, popped = counting("push", "reject"), counting("pop", "execute")
        await make_busy(api)
        first = executed()
        while not queued():
            assert (await push(api, item(1))).status in (201, 202)
        assert (await push(api, item(2))).status == 429
        await api.get("/api/v1/pop/queue/mail")

    assert first == 1
    assert (queued(), rejected(), popped()) == (1, 1, 1)


async def test_shed_pops_are_counted(database: str) -> None:
    strict = Thresholds(busy_seconds=10, pop_load_max=1e-9, push_load_max=1000)
    async with opened(database, strict) as api:
        rejected = counting("pop", "reject")
        await make_busy(api)
        statuses = [int((await api.get("/api/v1/pop/queue/mail")).status) for _ in range(3)]

    assert rejected() == statuses.count(429) > 0


def counting(kind: str, decision: str) -> Callable[[], float]:
    """How many of them there have been since."""

    def read() -> float:
        return read_count("daybook_admissions", kind=kind, decision=decision)

    before = read()
    return lambda: read() - before


async def test_a_follower_that_has_read_everything_is_not_behind(database: str) -> None:
    async with Service(database, processors=()) as service:
        await api_of(service).order()
        for _ in range(TRIES_MAX):
            if (lags := await lags_of(service)) and set(lags.values()) == {0}:
                break
            await asyncio.sleep(0.05)

    assert lags
    assert set(lags.values()) == {0}


RETIRE = "INSERT INTO followers (name, position, count, digest) VALUES ('guest_book', 0, 0, '')"


async def test_a_follower_of_another_version_is_not_behind(api: Api, database: str) -> None:
    """No process moves its cursor any more: an alert on its lag would never end."""
    rows(database, RETIRE)
    rows(database, RETIRE.replace("guest_book", "finished_orders"))
    await api.order()

    found = numbers((await api.get("/metrics")).body.decode())

    assert [name for name in found if name.startswith(LAG)] == [LAG + 'follower="finished_orders"}']
    assert [name for name in found if "guest_book" in name] == []


async def lags_of(service: Service) -> dict[str, float]:
    # Each process has its own cached readings.
    found = numbers((await api_of(service).get("/metrics")).body.decode())
    return {name: value for name, value in found.items() if name.startswith(LAG)}


@pytest.mark.parametrize("is_on", [False, True])
async def test_a_follower_that_is_turned_off_has_no_lag_and_no_finding(
    database: str, is_on: bool
) -> None:
    rows(database, STOP_NOTIFYING)
    webhook = Webhook("https://hooks.example/", [b"0" * 24], outbound=NEARBY) if is_on else None
    async with Service(database, webhook=webhook, processors=()) as service:
        api = api_of(service)
        await api.order()
        rows(database, AGE)
        text = (await api.get("/metrics")).body.decode()
        assert ('daybook_follower_lag_seconds{follower="notifications"}' in text) is is_on
        await api.post("/api/doctor")
        found = await ended(api, "/api/doctor", "examination")
    (finding,) = [one for one in found["findings"] if one["what"] == "followers"]
    assert ("notifications is 1 positions behind" in finding["sentence"]) is is_on
    assert finding["health"] == ("bad" if is_on else "notice")
