"""Ranges of values in requests: beyond them is 422, and no event."""

from hashlib import blake2s
from typing import Any, get_type_hints

import pytest
from msgspec import Struct, json
from msgspec.inspect import DateTimeType, StructType, Type, type_info
from starlette.routing import Route

from daybook.api.endpoints.command import WriteEndpoint
from daybook.api.jobs.redrive import RedriveFilter
from daybook.projections.page_cursor import write_cursor
from tests.support.asgi_client import Api

pytestmark = pytest.mark.anyio

# The first two are beyond the calendar in UTC; the others beyond the documented years.
BEYOND = [
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-14:00",
    "0001-01-01T00:00:00Z",
    "1969-12-31T23:59:59.999999Z",
    "1970-01-01T00:00:00+00:01",
    "9999-01-01T00:00:00Z",
]
WITHIN = ["1970-01-01T00:00:00Z", "9998-12-31T23:59:59.999999Z", "2026-03-01T12:00:00+14:00"]


async def events_count(api: Api) -> int:
    return len((await api.get("/api/events")).json["events"])


async def claimed(api: Api) -> dict[str, Any]:
    await api.post("/api/jobs", {"queue": "q", "type": "t"})
    answer = await api.post("/api/jobs/claim", {"queues": ["q"], "workerId": "w"})
    job: dict[str, Any] = answer.json["jobs"][0]
    return job


@pytest.mark.parametrize("instant", BEYOND)
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/jobs", {"queue": "q", "type": "t", "runAt": ...}),
        ("/api/jobs", {"jobs": [{"queue": "q", "type": "t", "runAt": ...}]}),
        ("/api/v1/push", {"items": [{"queue": "q", "payload": 1, "runAt": ...}]}),
    ],
)
async def test_an_instant_beyond_its_years_begins_no_job(
    api: Api, path: str, body: Any, instant: str
) -> None:
    answer = await api.post(path, filled(body, instant))
    assert answer.problem == (422, "schema")
    assert "1970 to 9998" in answer.json["detail"]
    assert await events_count(api) == 0
    await reads_are_whole(api)


@pytest.mark.parametrize("instant", BEYOND)
async def test_an_instant_beyond_its_years_ends_no_attempt(api: Api, instant: str) -> None:
    job = await claimed(api)
    claim = {"claimId": job["claimId"]}
    follow_up = {"type": "t", "runAt": instant}
    before = await events_count(api)
    for path, body in [
        (f"/api/jobs/{job['id']}/snooze", {**claim, "until": instant}),
        (f"/api/jobs/{job['id']}/complete", {**claim, "then": [follow_up]}),
        ("/api/jobs/results", {"results": [result(job, outcome="snooze", until=instant)]}),
        ("/api/jobs/results", {"results": [result(job, outcome="done", then=[follow_up])]}),
    ]:
        assert (await api.post(path, body)).problem == (422, "schema"), path
    assert await events_count(api) == before
    await reads_are_whole(api)


@pytest.mark.parametrize("instant", WITHIN)
async def test_the_first_and_the_last_instant_are_taken_and_shown(api: Api, instant: str) -> None:
    created = await api.post("/api/jobs", {"queue": "q", "type": "t", "runAt": instant})
    assert created.status == 201
    job = await claimed(api) if instant.startswith("9998") else None
    if job is not None:
        until = {"claimId": job["claimId"], "until": instant}
        assert (await api.post(f"/api/jobs/{job['id']}/snooze", until)).status == 200
    await reads_are_whole(api)


@pytest.mark.parametrize("instant", BEYOND[:2])
async def test_an_instant_beyond_the_calendar_is_refused_where_it_is_only_read(
    api: Api, instant: str
) -> None:
    await claimed(api)
    quoted = instant.replace("+", "%2B")
    for path in ("/api/jobs?asOf=", "/api/orders?asOf="):
        assert (await api.get(path + quoted)).problem == (400, "bad-parameter"), path
    assert (await api.get("/api/events?from=" + quoted)).status == 200
    mark = blake2s(json.encode((RedriveFilter(), 1.0)), digest_size=8).hexdigest()
    paced = {"ratePerSecond": 1, "cursor": write_cursor(Forged(mark, 0, instant))}
    assert (await api.post("/api/dlq/redrive", paced)).problem == (400, "bad-cursor")
    paced["cursor"] = write_cursor(Forged(mark, 0, WITHIN[1]))
    assert (await api.post("/api/dlq/redrive", paced)).status == 200


async def test_a_pace_that_no_calendar_holds_is_the_last_instant(api: Api) -> None:
    for _ in range(2):
        job = await claimed(api)
        dead = {"claimId": job["claimId"], "error": "no", "retryable": False}
        await api.post(f"/api/jobs/{job['id']}/fail", dead)
    answer = await api.post("/api/dlq/redrive", {"ratePerSecond": 5e-324})
    assert answer.json["redriven"] == 2
    await reads_are_whole(api)


async def test_every_instant_of_a_request_is_within_its_years(api: Api) -> None:
    """A body that accepts an instant of any year would poison the log."""
    bodies = {
        kind.cls
        for route in api.app.routes
        if isinstance(route, Route) and isinstance(route.endpoint, WriteEndpoint)
        for kind in structs_in(type_info(route.endpoint.takes))
    }
    taken = [
        (kind, name)
        for kind in bodies
        for name, hint in get_type_hints(kind, include_extras=True).items()
        if any(isinstance(one, DateTimeType) for one in parts(type_info(hint)))
    ]
    assert len(taken) >= 5
    for kind, name in taken:
        checks = getattr(kind, "__post_init__", None)
        assert checks is not None, f"{kind.__name__}.{name} calls no check_instant"
        assert name in checks.__code__.co_names, f"{kind.__name__}.{name} is not looked at"


async def test_patterns_in_the_description_are_in_the_dialect_of_json_schema(api: Api) -> None:
    body = (await api.get("/openapi.json")).json
    patterns = [*patterns_in(body)]
    assert "^[A-Za-z0-9._:@-]{1,100}$" in patterns
    assert not [one for one in patterns if "\\A" in one or "\\Z" in one]


async def test_an_error_about_a_name_shows_the_pattern_in_that_dialect(api: Api) -> None:
    answer = await api.post("/api/jobs", {"queue": "a b", "type": "t"})
    assert "'^[A-Za-z0-9._:@-]{1,100}$'" in answer.json["detail"]


class Forged(Struct, array_like=True):
    mark: str
    number: int
    run_at: str


def filled(body: Any, instant: str) -> Any:
    if isinstance(body, dict):
        return {name: filled(value, instant) for name, value in body.items()}
    if isinstance(body, list):
        return [filled(value, instant) for value in body]
    return instant if body is ... else body


def result(job: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"id": job["id"], "claimId": job["claimId"], **fields}


async def reads_are_whole(api: Api) -> None:
    for path in ("/api/jobs", "/api/queues", "/api/events", "/api/dlq"):
        assert (await api.get(path)).status == 200, path


def parts(kind: Type) -> list[Type]:
    inner = [*getattr(kind, "types", ()), *getattr(kind, "item_types", ())]
    inner += [one for one in (getattr(kind, "item_type", None), getattr(kind, "type", None)) if one]
    return [kind, *(part for one in inner for part in parts(one))]


def structs_in(kind: Type) -> list[StructType]:
    found = [one for one in parts(kind) if isinstance(one, StructType)]
    deeper = [field.type for one in found for field in one.fields]
    return found + [struct for one in deeper for struct in structs_in(one)]


def patterns_in(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["pattern"]] if isinstance(value.get("pattern"), str) else []
        return own + [one for item in value.values() for one in patterns_in(item)]
    return [one for item in value for one in patterns_in(item)] if isinstance(value, list) else []
