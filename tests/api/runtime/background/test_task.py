"""Rebuilds and examinations over HTTP, in real child processes."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from daybook.api.admin.rebuilds import NAMES
from daybook.eventlog.postgres.connections import owner_conninfo
from daybook.projections.running_rebuilds import REBUILD_LOCK
from tests.support.asgi_client import Api, open_api
from tests.support.committer import eventually

pytestmark = pytest.mark.anyio

# Time for a process to start, import and connect on a busy machine.
SECONDS_MAX = 60.0
SPOIL_AN_ORDER = "UPDATE orders SET number = number + 100"


async def ended(api: Api, path: str, name: str) -> dict[str, Any]:
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            body: dict[str, Any] = (await api.get(path)).json[name]
            if body["state"] != "running":
                return body
            await asyncio.sleep(0.05)


async def rebuilt(api: Api) -> dict[str, Any]:
    return await ended(api, "/api/rebuilds", "rebuild")


def spoil(database: str) -> None:
    with psycopg.connect(owner_conninfo(database)) as connection:
        connection.execute(SPOIL_AN_ORDER)


async def numbers(api: Api) -> list[int]:
    return [order["orderNumber"] for order in (await api.get("/api/orders")).json["orders"]]


async def test_before_the_first_request_there_is_no_rebuild(api: Api) -> None:
    assert (await api.get("/api/rebuilds")).json == {"names": [*NAMES], "rebuild": None}
    assert (await api.get("/api/doctor")).json == {"examination": None}


async def test_a_table_that_is_wrong_is_found_and_then_repaired(api: Api, database: str) -> None:
    await api.order()
    spoil(database)
    asked = {"names": ["orders", "bots"], "verifyOnly": True}

    started = await api.post("/api/rebuilds", asked)
    verified = await rebuilt(api)
    assert await numbers(api) == [101]
    await api.post("/api/rebuilds", {"names": ["orders"]})
    repaired = await rebuilt(api)

    assert (started.status, started.json["rebuild"]["state"]) == (202, "running")
    assert (verified["state"], verified["verifyOnly"], verified["trouble"]) == ("done", True, None)
    orders, bots = verified["tables"]
    assert (orders["name"], orders["rowsCount"], orders["differencesCount"]) == ("orders", 1, 1)
    assert "number" in orders["differences"][0]
    assert (bots["name"], bots["differencesCount"]) == ("bots", 0)
    assert (repaired["state"], repaired["tables"][0]["differencesCount"]) == ("done", 1)
    assert await numbers(api) == [1]


async def test_while_one_runs_another_is_refused_and_it_can_be_stopped(
    api: Api, database: str
) -> None:
    with psycopg.connect(owner_conninfo(database), autocommit=True) as other:
        # A rebuild by the command line takes this lock, and ours waits for it.
        other.execute("SELECT pg_advisory_lock(%s)", [REBUILD_LOCK])
        first = await api.post("/api/rebuilds", {"verifyOnly": True}, idempotency_key="one")
        same = await api.post("/api/rebuilds", {"verifyOnly": True}, idempotency_key="one")
        second = await api.post("/api/rebuilds", {})
        stopped = await api.post("/api/rebuilds/stop")

    assert (first.status, same.status) == (202, 202)
    assert first.json["rebuild"]["startedAt"] == same.json["rebuild"]["startedAt"]
    assert second.problem == (409, "rebuild-running")
    assert stopped.json["rebuild"]["state"] == "stopped"
    assert stopped.json["rebuild"]["finishedAt"] is not None
    assert (await api.post("/api/rebuilds", {"names": ["bots"]})).status == 202
    assert (await rebuilt(api))["state"] == "done"


async def test_a_failed_rebuild_reports_the_reason(api: Api, database: str) -> None:
    with psycopg.connect(owner_conninfo(database), autocommit=True) as owner:
        owner.execute("CREATE VIEW dependent AS SELECT id FROM orders")
        try:
            await api.post("/api/rebuilds", {"names": ["orders"]})
            failed = await rebuilt(api)
        finally:
            owner.execute("DROP VIEW dependent")

    assert failed["state"] == "failed"
    assert "drop them, rebuild" in failed["trouble"]


async def test_a_process_that_is_killed_is_noticed(api: Api, database: str) -> None:
    with psycopg.connect(owner_conninfo(database), autocommit=True) as other:
        other.execute("SELECT pg_advisory_lock(%s)", [REBUILD_LOCK])
        await api.post("/api/rebuilds", {"verifyOnly": True})
        await eventually(children, SECONDS_MAX)
        for child in children():
            os.kill(child, signal.SIGKILL)
        failed = await rebuilt(api)

    assert failed["state"] == "failed"
    assert "ended unexpectedly" in failed["trouble"]


async def test_no_process_is_left_when_the_service_ends(database: str) -> None:
    with psycopg.connect(owner_conninfo(database), autocommit=True) as other:
        other.execute("SELECT pg_advisory_lock(%s)", [REBUILD_LOCK])
        async with open_api(database) as api:
            await api.post("/api/rebuilds", {"verifyOnly": True})
            await eventually(children, SECONDS_MAX)
            left = children()
    assert alive(left) == []


def alive(processes: list[int]) -> list[int]:
    return [one for one in processes if Path(f"/proc/{one}").exists()]


def children() -> list[int]:
    """The child processes of this one."""
    found = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [
        int(one)
        for one in found
        if b"daybook.api.server.background_process" in Path(f"/proc/{one}/cmdline").read_bytes()
    ]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"names": ["stored_events"]}, (422, "schema")),
        ({"names": "orders"}, (422, "schema")),
        ({"colour": "red"}, (422, "unknown-field")),
    ],
)
async def test_an_invalid_rebuild_request_is_refused(
    api: Api, body: Any, problem: tuple[int, str]
) -> None:
    assert (await api.post("/api/rebuilds", body)).problem == problem


async def test_the_doctor_reports_each_problem_and_its_fix(api: Api, database: str) -> None:
    await api.order()
    spoil(database)

    first, second = await asyncio.gather(*(api.post("/api/doctor") for _ in range(2)))
    result = await ended(api, "/api/doctor", "examination")

    assert (first.status, second.status) == (202, 202)
    assert first.json["examination"]["startedAt"] == second.json["examination"]["startedAt"]
    findings = {one["what"]: one for one in result["findings"]}
    assert findings["database"]["health"] == "good"
    assert findings["processors"]["health"] == "bad"
    assert findings["table orders"]["health"] == "bad"
    assert findings["table orders"]["nextStep"].endswith("daybook rebuild orders.")
