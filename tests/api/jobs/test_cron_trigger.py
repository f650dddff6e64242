"""The cron trigger: authentication and response."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from socket import socket
from types import ModuleType
from typing import Any

import pytest

from daybook import Fail, Worker
from daybook.api.jobs.cron_trigger import cron_access
from daybook.api.login.authentication import COOKIE
from daybook.api.server.listener import listen, url_of
from daybook.api.settings.environment import load
from daybook.client.jobs import ClaimedJob
from daybook.eventlog.errors import SetupError
from tests.support.asgi_client import Api, open_api, some_settings
from tests.support.committer import rows
from tests.support.databases.tcp_proxy import proxy_to
from tests.support.running.socket_server import listening

pytestmark = pytest.mark.anyio

WHERE = "/api/cron/process-jobs"
SECRET, NEXT = "the secret of today".replace(" ", "-"), "the-secret-of-tomorrow"
SECRETS = {"cron_secret": SECRET, "cron_secret_next": NEXT}


class Handy:
    """A fake worker that records its calls."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    async def process(self, *, jobs_max: int) -> int:
        self.asked.append(jobs_max)
        return min(jobs_max, 3)


@pytest.fixture
def handy(monkeypatch: pytest.MonkeyPatch) -> Handy:
    module: Any = ModuleType("handy_jobs")
    module.worker, module.nothing = Handy(), object()
    monkeypatch.setitem(sys.modules, "handy_jobs", module)
    worker: Handy = module.worker
    return worker


async def enqueue(api: Api, count: int) -> None:
    jobs = [{"queue": "email", "type": "send"}] * count
    jobs.append({"queue": "email", "type": "send", "runAt": "2100-01-01T00:00:00Z"})
    assert (await api.post("/api/jobs", {"jobs": jobs})).status == 201


async def test_without_a_worker_only_counts_are_returned(database: str) -> None:
    # S4-16, S4-21
    async with open_api(database, **SECRETS) as api:
        await enqueue(api, 4)
        answer = await api.post(WHERE, x_cron_secret=SECRET)

    body = answer.json
    assert answer.status == 200
    assert (body["ok"], body["processed"], body["remainingPending"]) == (True, 0, 5)
    assert body["asOfUtc"].endswith("Z")
    assert set(body) == {"ok", "processed", "remainingPending", "asOfUtc"}


async def test_a_worker_runs_ten_jobs_or_max_jobs(database: str, handy: Handy) -> None:
    # S4-16, S4-17
    async with open_api(database, **SECRETS, cron_worker="handy_jobs:worker") as api:
        usual = await api.post(WHERE, x_cron_secret=SECRET)
        few = await api.post(WHERE, {"maxJobs": 2}, x_cron_secret=SECRET)

    assert (usual.json["processed"], few.json["processed"]) == (3, 2)
    assert handy.asked == [10, 2]


async def test_a_real_worker_does_the_jobs_in_the_process_that_answers(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # S4-16, S4-17, S4-21
    done: list[int] = []
    module: Any = ModuleType("real_jobs")
    monkeypatch.setitem(sys.modules, "real_jobs", module)
    with listen("127.0.0.1", 0) as listener:
        module.worker = Worker(url_of(listener), queues=["email"], concurrency=2)

        @module.worker.job("send")  # type: ignore[untyped-decorator] # a module of Any
        async def send(job: ClaimedJob) -> None:
            done.append(job.payload)
            if job.payload == 2:
                raise Fail("no such address")

        async with serving(database, listener, cron_worker="real_jobs:worker") as api:
            jobs = [{"queue": "email", "type": "send", "payload": n} for n in range(8)]
            await api.post("/api/jobs", {"jobs": jobs})
            first = (await api.post(WHERE, {"maxJobs": 5}, x_cron_secret=SECRET)).json
            second = (await api.post(WHERE, x_cron_secret=SECRET)).json
            third = (await api.post(WHERE, x_cron_secret=SECRET)).json

    assert sorted(done) == [*range(8)]
    found = [(one["processed"], one["remainingPending"]) for one in (first, second, third)]
    assert found == [(5, 3), (3, 0), (0, 0)]
    ended = "SELECT topic, count(*) FROM log WHERE topic ~ 'completed|dlq' GROUP BY 1 ORDER BY 1"
    assert rows(database, ended) == [("job.completed", 7), ("job.moved_to_dlq", 1)]


@asynccontextmanager
async def serving(conninfo: str, listener: socket, **settings: Any) -> AsyncIterator[Api]:
    """An application that really listens: the worker in it talks to it as any other does."""
    async with open_api(conninfo, **SECRETS, **settings) as api, listening(api, listener):
        yield api


async def test_a_platform_that_can_only_get_has_jobs_run(database: str, handy: Handy) -> None:
    # S4-15: source 004's platform sends GET, with the secret as its only header.
    async with open_api(database, **SECRETS, cron_worker="handy_jobs:worker") as api:
        answer = await api.ask("GET", WHERE, x_cron_secret=SECRET)
        refused = [
            await api.get(WHERE),
            await api.ask("GET", WHERE, x_cron_secret=SECRET[:-1]),
            await api.ask("GET", WHERE, cookie=f"{COOKIE}=anything"),
        ]
        in_address = await api.ask("GET", f"{WHERE}?token={SECRET}", x_cron_secret=SECRET)
        head = await api.send("HEAD", WHERE, headers=[("x-cron-secret", SECRET)])

    assert (answer.status, answer.json["processed"]) == (200, 3)
    assert [one.problem for one in refused] == [(401, "unauthorized")] * 3
    assert in_address.problem == (400, "secret-in-url")
    assert head.status == 405
    assert handy.asked == [10]


@pytest.mark.parametrize("secret", [SECRET, NEXT])
async def test_while_it_is_changed_two_secrets_are_good(database: str, secret: str) -> None:
    # D-67
    async with open_api(database, **SECRETS) as api:
        assert (await api.post(WHERE, x_cron_secret=secret)).status == 200


WRONG = ["", "x", SECRET[:-1], SECRET + "x", SECRET.upper(), "ü" * 20, f"{SECRET},{NEXT}"]


@pytest.mark.parametrize("secret", WRONG)
async def test_a_wrong_secret_is_refused(database: str, handy: Handy, secret: str) -> None:
    # S4-15
    async with open_api(database, **SECRETS, cron_worker="handy_jobs:worker") as api:
        answer = await api.post(WHERE, x_cron_secret=secret)
    assert answer.problem == (401, "unauthorized")
    assert handy.asked == []


async def test_no_secret_and_two_of_them_are_refused(database: str) -> None:
    async with open_api(database, **SECRETS) as api:
        twice = [("x-cron-secret", SECRET)] * 2
        assert (await api.send("POST", WHERE, headers=twice)).problem == (401, "unauthorized")
        assert (await api.post(WHERE)).problem == (401, "unauthorized")


@pytest.mark.parametrize("secret", ["", SECRET])
async def test_without_a_secret_every_call_is_refused(api: Api, secret: str) -> None:
    assert (await api.post(WHERE, x_cron_secret=secret)).problem == (401, "unauthorized")


async def test_a_secret_in_the_address_is_refused(database: str) -> None:
    # S4-15, D-67
    async with open_api(database, **SECRETS) as api:
        answer = await api.post(f"{WHERE}?token={SECRET}", x_cron_secret=SECRET)
    assert answer.problem == (400, "secret-in-url")
    assert SECRET not in answer.body.decode()


@pytest.mark.parametrize("count", [0, 101, "10", None])
async def test_max_jobs_is_limited(database: str, count: Any) -> None:
    async with open_api(database, **SECRETS) as api:
        answer = await api.post(WHERE, {"maxJobs": count}, x_cron_secret=SECRET)
    assert answer.problem == (422, "schema")
    assert rows(database, "SELECT count(*) FROM stored_events") == [(0,)]


async def test_an_unreachable_database_gives_503(database: str) -> None:
    async with proxy_to(database) as proxy, open_api(proxy.conninfo, **SECRETS) as api:
        proxy.refusing = True
        proxy.drop_all()
        answer = await api.post(WHERE, x_cron_secret=SECRET)
    assert answer.problem == (503, "unavailable")
    assert answer.headers["retry-after"]


@pytest.mark.parametrize("secret", ["short", "with spaces in the middle", "ü" * 20])
def test_a_secret_that_can_be_guessed_or_not_be_sent_is_refused_at_the_start(secret: str) -> None:
    with pytest.raises(SetupError, match="16 to 200 visible") as refused:
        cron_access(some_settings(cron_secret=secret))
    assert secret not in str(refused.value)


@pytest.mark.usefixtures("handy")
@pytest.mark.parametrize("worker", ["handy", "no_such_module:worker", "handy_jobs:nobody"])
def test_an_unknown_worker_is_refused_at_startup(worker: str) -> None:
    with pytest.raises(SetupError, match="DAYBOOK_CRON_WORKER="):
        cron_access(some_settings(cron_worker=worker))
    with pytest.raises(SetupError, match="no method process"):
        cron_access(some_settings(cron_worker="handy_jobs:nothing"))


def test_secrets_are_not_printed() -> None:
    names = {"CRON_SECRET": SECRET, "CRON_SECRET_NEXT": NEXT, "DAYBOOK_UPSTREAMS": "{}"}
    settings = load({"DAYBOOK_DATA_DIR": "/somewhere", **names}, {})
    shown = f"{settings!r} {cron_access(settings)!r}"
    assert SECRET not in shown
    assert NEXT not in shown
