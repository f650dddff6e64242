"""Schedule endpoints."""

from typing import Any

import pytest

from tests.support.asgi_client import Api, open_api
from tests.support.committer import fold_of_the_log, live_rows, rows
from tests.support.databases.tcp_proxy import proxy_to

pytestmark = pytest.mark.anyio

JOB = {"queue": "reports", "type": "report", "payload": {"kind": "daily"}}
NIGHTLY = {"name": "nightly", "cron": "30 2 * * *", "timeZone": "Europe/Berlin", "job": JOB}
WHERE = "/api/schedules/nightly"


async def put(api: Api, **changes: Any) -> Any:
    answer = await api.post("/api/schedules", {**NIGHTLY, **changes})
    assert answer.status in (200, 201), answer.body
    return answer.json["schedule"]


def topics(database: str) -> list[str]:
    return [row[0] for row in rows(database, "SELECT topic FROM log ORDER BY position")]


async def test_a_schedule_is_created_with_all_its_defaults(api: Api) -> None:
    answer = await api.post("/api/schedules", NIGHTLY)
    schedule = answer.json["schedule"]

    assert answer.status == 201
    assert schedule["nextRunAt"].endswith(":30:00.000Z")
    assert (schedule["lastRunAt"], schedule["paused"]) == (None, False)
    assert (schedule["missedRuns"], schedule["catchUpSeconds"]) == ("once", 86400)
    assert schedule["job"] == {
        **JOB,
        "priority": 5,
        "attemptsMax": 3,
        "leaseSeconds": 90,
        "subject": None,
        "tags": [],
    }
    assert (await api.get(WHERE)).json["schedule"] == schedule


async def test_the_same_again_changes_nothing(api: Api, database: str) -> None:
    first = await put(api)
    again = await api.post("/api/schedules", NIGHTLY)

    assert (again.status, again.json["schedule"]) == (200, first)
    assert topics(database) == ["schedule.created"]


async def test_another_definition_under_the_same_name_replaces_it(api: Api, database: str) -> None:
    first = await put(api, paused=True)
    changed = await put(api, cron="0 * * * *", job={**JOB, "priority": 1})

    assert (changed["cron"], changed["job"]["priority"]) == ("0 * * * *", 1)
    assert changed["createdAt"] == first["createdAt"]
    assert changed["paused"], "what is not said stays as it is"
    assert topics(database) == ["schedule.created", "schedule.changed"]
    assert live_rows(database) == fold_of_the_log(database)


async def test_a_schedule_is_changed_paused_and_resumed(api: Api, database: str) -> None:
    await put(api)
    changed = await api.patch(WHERE, {"missedRuns": "all", "catchUpSeconds": 3600})
    paused = await api.post(f"{WHERE}/pause")
    again = await api.post(f"{WHERE}/pause")
    resumed = await api.post(f"{WHERE}/resume")

    assert changed.json["schedule"]["missedRuns"] == "all"
    assert changed.json["schedule"]["cron"] == NIGHTLY["cron"]
    assert (paused.json["schedule"]["paused"], paused.json["schedule"]["nextRunAt"]) == (True, None)
    assert again.json == paused.json
    assert resumed.json["schedule"]["nextRunAt"] is not None
    assert topics(database)[1:] == ["schedule.changed", "schedule.paused", "schedule.resumed"]


async def test_a_deleted_schedule_is_gone(api: Api) -> None:
    await put(api)
    assert (await api.delete(WHERE)).status == 200
    for answer in (
        await api.get(WHERE),
        await api.delete(WHERE),
        await api.patch(WHERE, {"paused": True}),
        await api.post(f"{WHERE}/pause"),
    ):
        assert answer.problem == (404, "not-found")
    assert (await api.get("/api/schedules")).json == {"schedules": [], "nextCursor": None}
    assert (await api.post("/api/schedules", NIGHTLY)).status == 201


async def test_schedules_are_listed_page_by_page(api: Api) -> None:
    for name in ("c", "a", "b"):
        await put(api, name=name)
    first = (await api.get("/api/schedules?limit=2")).json
    second = (await api.get(f"/api/schedules?limit=2&cursor={first['nextCursor']}")).json

    names = [one["name"] for page in (first, second) for one in page["schedules"]]
    assert names == ["a", "b", "c"]
    assert second["nextCursor"] is None
    assert (await api.get("/api/schedules?cursor=abc")).problem == (400, "bad-cursor")
    assert (await api.get("/api/schedules?limit=0")).problem == (400, "bad-parameter")


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"cron": "61 * * * *"}, 422, "bad-cron"),
        ({"cron": "* * * * * *"}, 422, "bad-cron"),
        ({"cron": ""}, 422, "schema"),
        ({"cron": "*" * 201}, 422, "schema"),
        ({"cron": "* * */20 * 1L"}, 422, "never-due"),
        ({"timeZone": "Berlin"}, 422, "unknown-time-zone"),
        ({"timeZone": "../../etc/passwd"}, 422, "unknown-time-zone"),
        ({"missedRuns": "some"}, 422, "schema"),
        ({"catchUpSeconds": 59}, 422, "schema"),
        ({"catchUpSeconds": 1e9}, 422, "schema"),
        ({"name": "two words"}, 422, "schema"),
        ({"name": "x" * 101}, 422, "schema"),
        ({"nextRunAt": None}, 422, "unknown-field"),
        ({"job": {"queue": "reports"}}, 422, "schema"),
        ({"job": {**JOB, "runAt": None}}, 422, "unknown-field"),
        ({"job": {**JOB, "priority": 11}}, 422, "schema"),
        ({"job": {**JOB, "payload": "x" * 70_000}}, 422, "payload-too-large"),
        ({"job": {**JOB, "payload": "\0"}}, 422, "nul-character"),
    ],
)
async def test_bad_schedules_are_refused_and_change_nothing(
    api: Api, database: str, changes: dict[str, Any], status: int, code: str
) -> None:
    answer = await api.post("/api/schedules", {**NIGHTLY, **changes})
    assert answer.problem == (status, code)
    assert topics(database) == []


@pytest.mark.parametrize("path", ["a%00b", "two words", "x" * 101, "ü"])
async def test_a_bad_name_in_the_path_is_refused(api: Api, path: str) -> None:
    assert (await api.get(f"/api/schedules/{path}")).problem == (400, "bad-name")
    assert (await api.delete(f"/api/schedules/{path}")).problem == (400, "bad-name")


async def test_a_key_makes_two_requests_one(api: Api, database: str) -> None:
    first = await api.post("/api/schedules", NIGHTLY, idempotency_key="k")
    again = await api.post("/api/schedules", NIGHTLY, idempotency_key="k")

    assert (again.status, again.body) == (first.status, first.body)
    assert again.headers["idempotent-replayed"] == "true"
    assert topics(database) == ["schedule.created"]


@pytest.mark.usefixtures("short_deadline")
async def test_an_unreachable_database_gives_503(database: str) -> None:
    async with proxy_to(database) as proxy, open_api(proxy.conninfo) as api:
        proxy.refusing = True
        proxy.drop_all()
        assert (await api.get("/api/schedules")).problem == (503, "unavailable")
        assert (await api.post("/api/schedules", NIGHTLY)).problem == (503, "unavailable")
