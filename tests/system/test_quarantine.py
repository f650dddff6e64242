"""An unreadable event is found, named by every tool, and set aside by an operator (I-40, F27)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
import pytest

from daybook.api.app import App
from daybook.api.runtime.service import Service
from daybook.audit.invariant import Case, Verdict
from daybook.audit.replayed_state import ReplayedState
from daybook.audit.runner import check
from daybook.audit.service_database import DerivedTables
from daybook.audit.service_database import ServiceDatabase as AuditedService
from daybook.cli.audit import derive_anew
from daybook.eventlog.postgres.connections import connect, owner_conninfo, reader_conninfo
from daybook.eventlog.reading.epochs import LogPosition
from daybook.projections.doctor.doctor import examine
from daybook.projections.doctor.finding import Finding, Health
from daybook.projections.registry import LIVE_TABLES, READ_MODELS, WRITTEN_MODELS
from daybook.projections.time_travel.state_as_of import Past
from tests.support.api_jobs import enqueue
from tests.support.asgi_client import GUEST_KEY, Api, open_api, some_settings
from tests.support.databases.unreadable_events import JOB_POISONS, POISONS, append, spoil
from tests.support.rebuilds import verify

pytestmark = pytest.mark.anyio

QUARANTINE_SECONDS_MAX = 10.0
# How long ago it happened, so that nothing is excused by being new.
AGE = """
ALTER TABLE stored_events DISABLE TRIGGER ALL;
UPDATE stored_events SET recorded_at = recorded_at - interval '1 minute'
WHERE topic NOT LIKE 'quarantine.%';
ALTER TABLE stored_events ENABLE TRIGGER ALL;
"""


@asynccontextmanager
async def open_full_api(conninfo: str) -> AsyncIterator[Api]:
    async with Service(conninfo, guest_key=GUEST_KEY) as service:
        yield Api(App(service, some_settings()), service)


@asynccontextmanager
async def open_poisoned_api(conninfo: str) -> AsyncIterator[tuple[Api, set[UUID]]]:
    """The bad events are older than the service."""
    async with open_api(conninfo) as api:
        bad = await poisoned(api, conninfo)
    async with open_full_api(conninfo) as api:
        yield api, bad


async def quarantined(api: Api) -> dict[str, dict[str, Any]]:
    found = (await api.get("/api/quarantine")).json["quarantines"]
    return {one["id"]: one for one in found}


async def until_detected(api: Api, bad: set[UUID]) -> dict[str, dict[str, Any]]:
    wanted = {str(one) for one in bad}
    async with asyncio.timeout(QUARANTINE_SECONDS_MAX):
        while True:
            found = await quarantined(api)
            if wanted <= found.keys():
                return found
            await asyncio.sleep(0.1)


async def findings(conninfo: str) -> dict[str, Finding]:
    async with await connect(reader_conninfo(conninfo)) as connection:
        return {one.what: one async for one in examine(connection)}


def audit(conninfo: str) -> tuple[dict[str, str], ReplayedState]:
    """The invariants that are violated, with the reason of each."""
    reader = reader_conninfo(conninfo)
    stored = DerivedTables(
        tables=LIVE_TABLES,
        written_models=WRITTEN_MODELS,
        read_models=READ_MODELS,
        derive=partial(derive_anew, reader),
    )
    with closing(AuditedService(reader, stored)) as service:
        replay = ReplayedState()
        found = check(service, Case(replay=replay, service=service))
    wrong = [one for one in found if one.verdict is Verdict.INVALID]
    return {one.id: one.violation.reason for one in wrong if one.violation}, replay


async def poisoned(api: Api, conninfo: str) -> set[UUID]:
    """One aggregate with each kind of fault, beside sound ones."""
    await enqueue(api)
    await api.order()
    jobs = [(await enqueue(api))["id"] for _ in JOB_POISONS]
    orders = [(await api.order())["id"] for _ in POISONS]
    bad = {spoil(conninfo, poison, one) for poison, one in zip(JOB_POISONS, jobs, strict=True)}
    bad |= {spoil(conninfo, poison, one) for poison, one in zip(POISONS, orders, strict=True)}
    return bad | {append(conninfo, "job.created", b"nope"), append(conninfo, "no.body", b"{}")}


async def test_unreadable_events_are_in_quarantine_within_ten_seconds(  # I-40
    own_database: str,
) -> None:
    async with open_poisoned_api(own_database) as (api, bad):
        found = await until_detected(api, bad)
        assert found.keys() == {str(one) for one in bad}
        for one in found.values():
            assert one["status"] == "DETECTED"
            assert one["position"] > 0
            assert one["error"]
        metrics = (await api.get("/metrics")).body.decode()
        assert f'daybook_quarantined{{status="detected"}} {float(len(bad))}' in metrics
        result = await findings(own_database)
    assert result["quarantine"].health is Health.BAD
    assert "set-aside" in result["quarantine"].next_step


async def test_every_tool_continues_and_names_unreadable_events(own_database: str) -> None:  # I-40
    async with open_api(own_database) as api:
        bad = await poisoned(api, own_database)
    # No service has met them: the tools are on their own.
    result = await findings(own_database)
    assert {name for name, one in result.items() if one.health is Health.BAD} >= {
        "table jobs",
        "table orders",
    }
    wrong, _ = audit(own_database)
    assert "I-04" in wrong
    compared = await verify(own_database)
    named = str([(table.left_out, table.differences) for table in compared.values()])
    assert [one for one in bad if str(one) not in named] == []
    async with await connect(reader_conninfo(own_database)) as connection:
        past = await Past.at(connection, 2**62)
    assert past.states


async def test_an_operator_sets_it_aside_with_a_reason(own_database: str) -> None:  # I-40
    async with open_poisoned_api(own_database) as (api, bad):
        await until_detected(api, bad)
        for one in bad:
            path = f"/api/quarantine/{one}/set-aside"
            assert (await api.post(path, {})).status == 422
            assert (await api.post(path, {"reason": ""})).status == 422
            answer = await api.post(path, {"reason": "written by version 0.1"})
            assert answer.status == 200, answer.body
            assert answer.json["quarantine"]["status"] == "SET_ASIDE"
        again = await api.post(path, {"reason": "another"})
        assert again.json["quarantine"]["reason"] == "written by version 0.1"
        good = (await api.order())["id"]
        refused = await api.post(f"/api/quarantine/{good}/set-aside", {"reason": "why not"})
        assert refused.problem == (409, "readable")
        for path in ("/api/orders", "/api/jobs"):
            listed = (await api.get(path)).body.decode()
            assert not [one for one in bad if str(one) in listed]
    with psycopg.connect(owner_conninfo(own_database), autocommit=True) as connection:
        connection.execute(AGE)
    result = await findings(own_database)
    off = {"processors"}  # No service runs any more.
    assert {name for name, one in result.items() if one.health is Health.BAD} <= off, result
    assert "written by version 0.1" in result["quarantine"].sentence
    wrong, replay = audit(own_database)
    assert not wrong
    assert replay.set_aside.keys() == {one.int for one in bad}
    compared = await verify(own_database)
    assert [name for name, one in compared.items() if not one.is_equal] == []


async def test_a_stream_continues_past_unreadable_events(own_database: str) -> None:  # I-40
    async with open_full_api(own_database) as api:
        first = await api.order()
        spoil(own_database, POISONS[0], first["id"])
        async with api.service.tail.subscription(LogPosition(0)) as subscription:
            second = await api.order()
            seen = b""
            async with asyncio.timeout(5):
                while second["id"].encode() not in seen:
                    seen += b"".join([one.data for one in await subscription.next(1)])
        assert first["id"].encode() in seen
