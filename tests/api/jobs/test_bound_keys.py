"""A key restricted to queues cannot use others, even if a route omits the check."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec import Struct
from uuid_utils.compat import uuid7

from daybook.api.keys.access import Caller
from daybook.api.runtime.load_shedding import Decision, LoadShedder
from tests.support.api_keys import Holder, holder
from tests.support.asgi_client import open_api
from tests.support.committer import rows

pytestmark = pytest.mark.anyio

EVENTS = "SELECT count(*) FROM stored_events"


class Bound(Struct):
    database: str
    admin: Holder
    worker: Holder
    job: dict[str, Any]
    """That the worker holds."""

    message: dict[str, Any]
    """That it has popped."""

    async def refusals(self) -> list[str]:
        """The ways into and out of a queue that let the worker through."""
        wrong = []
        for name, (method, path, body) in self.ways().items():
            before = rows(self.database, EVENTS)
            answer = await self.worker.ask(method, path, body)
            is_refused = answer.status == 403 and answer.json["code"] == "forbidden"
            if not is_refused or rows(self.database, EVENTS) != before:
                wrong.append(f"{name}: {answer.status} {answer.body!r}")
        return wrong

    def ways(self) -> dict[str, tuple[str, str, Any]]:
        item = {"queue": "other", "partition": "a", "payload": 1}
        own = {"queue": "own", "partition": "a", "payload": 1}
        elsewhere = {"queue": "other", "type": "t"}
        member = ("transactionId", "partitionId", "leaseId")
        done = {**{one: self.message[one] for one in member}, "status": "completed"}
        follow_up = {"claimId": self.job["claimId"], "then": [elsewhere]}
        return {
            "pop": ("GET", "/api/v1/pop/queue/other", None),
            "pop and wait": ("GET", "/api/v1/pop/queue/other?wait=true&timeout=5000", None),
            "pop of a lane": ("GET", "/api/v1/pop/queue/other/partition/a", None),
            "push": ("POST", "/api/v1/push", {"items": [item]}),
            "push to both": ("POST", "/api/v1/push", {"items": [own, item]}),
            "transaction": (
                "POST",
                "/api/v1/transaction",
                {"acknowledgments": [done], "items": [item]},
            ),
            "create": ("POST", "/api/jobs", elsewhere),
            "create both": (
                "POST",
                "/api/jobs",
                {"jobs": [{**elsewhere, "queue": "own"}, elsewhere]},
            ),
            "claim": ("POST", "/api/jobs/claim", {"queues": ["other"], "workerId": "w"}),
            "claim of both": (
                "POST",
                "/api/jobs/claim",
                {"queues": ["own", "other"], "workerId": "w"},
            ),
            "follow-up": ("POST", f"/api/jobs/{self.job['id']}/complete", follow_up),
        }


@pytest.fixture
async def bound(database: str) -> AsyncIterator[Bound]:
    async with open_api(database, auth="keys") as api:
        admin = await holder(api, database, "admin")
        worker = await holder(api, database, "worker", queues=("own",))
        for queue in ("own", "other"):
            items = [{"queue": queue, "partition": "a", "payload": 1}]
            assert (await admin.post("/api/v1/push", {"items": items})).status == 201
            assert (await admin.post("/api/jobs", {"queue": queue, "type": "t"})).status == 201
        (message,) = (await worker.get("/api/v1/pop/queue/own")).json["messages"]
        claimed = await worker.post("/api/jobs/claim", {"queues": ["own"], "workerId": "w"})
        (job,) = claimed.json["jobs"]
        yield Bound(database, admin, worker, job, message)


async def test_no_endpoint_reads_or_writes_another_queue(bound: Bound) -> None:
    assert await bound.refusals() == []


async def test_the_unit_of_work_refuses_a_queue_that_a_route_did_not_check(
    bound: Bound, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Caller, "must_reach", lambda *_: None)
    assert await bound.refusals() == []


async def test_nothing_is_accepted_for_later_either(
    bound: Bound, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LoadShedder, "decide_push", lambda _: Decision.QUEUE)
    assert await bound.refusals() == []
    monkeypatch.setattr(Caller, "must_reach", lambda *_: None)
    assert await bound.refusals() == []
    items = [{"queue": "own", "partition": "a", "payload": 1}]
    assert (await bound.worker.post("/api/v1/push", {"items": items})).status == 202


async def test_a_lease_of_another_queue_is_not_found(bound: Bound) -> None:
    (theirs,) = (await bound.admin.get("/api/v1/pop/queue/other")).json["messages"]
    path = f"/api/v1/lease/{theirs['leaseId']}/extend"
    refused = await bound.worker.post(path, {"seconds": 3600})
    assert refused.problem == (409, "lease-lost")
    never = await bound.worker.post(f"/api/v1/lease/{uuid7()}/extend", {"seconds": 3600})
    assert refused.json["code"] == never.json["code"]
    assert (await bound.admin.post(path, {"seconds": 3600})).status == 200
    own = f"/api/v1/lease/{bound.message['leaseId']}/extend"
    assert (await bound.worker.post(own, {"seconds": 3600})).status == 200


async def test_the_depth_of_another_queue_is_not_revealed(database: str) -> None:
    async with open_api(database, auth="keys", queue_depth_max=1) as api:
        admin = await holder(api, database, "admin")
        worker = await holder(api, database, "worker", queues=("own",))
        items = {"items": [{"queue": "other", "payload": 1}]}
        assert (await admin.post("/api/v1/push", items)).status == 201
        for path, body in (("/api/v1/push", items), ("/api/jobs", {"queue": "other", "type": "t"})):
            assert (await worker.post(path, body)).problem == (403, "forbidden"), path
