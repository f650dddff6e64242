"""Queries of the operations page: leases, rates, errors of dead jobs."""

import asyncio
from typing import Any

import pytest

from daybook.projections.jobs import dead_job_search, queue_rates
from tests.support.api_jobs import bury, claim, complete, enqueue, enqueue_many
from tests.support.api_tickets import act, call_next, join, open_restaurant
from tests.support.asgi_client import Api

pytestmark = pytest.mark.anyio


async def test_leases_are_listed_by_expiry(api: Api) -> None:
    order, bot = await api.cooking()
    await enqueue(api, leaseSeconds=600)
    await enqueue(api, leaseSeconds=60)
    slow, quick = await claim(api, 2)

    body = (await api.get("/api/leases")).json

    assert [one["id"] for one in body["held"]] == [order["id"], quick["id"], slow["id"]]
    assert [one["until"] for one in body["held"]] == [
        order["dueAt"],
        quick["leaseUntil"],
        slow["leaseUntil"],
    ]
    assert [(one["kind"], one["name"], one["held"]) for one in body["holders"]] == [
        ("bot", bot["id"], 1),
        ("worker", "w1", 2),
    ]
    assert (body["heldCount"], body["holdersCount"]) == (3, 2)


async def test_a_heartbeat_changes_the_listed_lease(api: Api) -> None:
    # S1-42
    await enqueue(api, leaseSeconds=10)
    (job,) = await claim(api)
    heartbeat = {"claims": [{"id": job["id"], "claimId": job["claimId"], "leaseSeconds": 500}]}
    assert (await api.post("/api/jobs/heartbeat", heartbeat)).status == 200

    (lease,) = (await api.get("/api/leases")).json["held"]
    assert lease["until"] > job["leaseUntil"]


async def test_one_holder_can_be_looked_at_and_more_are_counted_than_listed(api: Api) -> None:
    await enqueue_many(api, 5)
    await claim(api, 3)
    body = {"queues": ["email"], "workerId": "w2", "limit": 2}
    await api.post("/api/jobs/claim", body)

    of_two = (await api.get("/api/leases?holder=w2")).json
    cut = (await api.get("/api/leases?limit=1")).json

    assert [one["holder"] for one in of_two["held"]] == ["w2", "w2"]
    assert (len(cut["held"]), cut["heldCount"], cut["holdersCount"]) == (1, 5, 2)


def summed(rates: dict[str, Any], queue: str) -> tuple[int, ...]:
    names = ("created", "completed", "failed", "dead")
    slices = [one for one in rates["slices"] if one["queue"] == queue]
    return tuple(sum(one[name] for one in slices) for name in names)


async def test_rates_count_created_and_finished_jobs_of_each_queue(api: Api) -> None:
    await enqueue_many(api, 4)
    for job in await claim(api, 2):
        await complete(api, job)
    await bury(api, 1, queue="invoices")

    body = (await api.get("/api/rates")).json

    # Two are over and in no table at all, because no read model runs here: the log knows them.
    assert summed(body, "email") == (4, 2, 0, 0)
    assert summed(body, "invoices") == (1, 0, 1, 1)


async def test_rates_go_on_from_where_they_were(api: Api) -> None:
    await enqueue_many(api, 3)
    first = (await api.get("/api/rates")).json
    await enqueue(api)
    second = (await api.get(f"/api/rates?after={first['position']}")).json
    third = (await api.get(f"/api/rates?after={second['position']}")).json

    assert (summed(first, "email")[0], summed(second, "email")[0]) == (3, 1)
    assert third["slices"] == []
    assert second["since"] > first["since"]


async def test_rates_read_only_the_end_of_the_log_and_report_since(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    early = await enqueue_many(api, 20)
    await asyncio.sleep(0.05)
    late = await enqueue(api)
    monkeypatch.setattr(queue_rates, "LOOKED_AT_MAX", 1)

    body = (await api.get("/api/rates")).json

    assert summed(body, "email") == (1, 0, 0, 0)
    assert early[0]["createdAt"] <= body["since"] < late["createdAt"]


async def test_dead_jobs_are_found_by_a_text_in_their_error(api: Api) -> None:
    old = await bury(api, 2, "timeout after 30 s")
    await bury(api, 2, "no such address")
    new = await bury(api, 1, "timeout after 5 s")

    first = (await api.get("/api/dlq?error=timeout&limit=2")).json
    second = (await api.get(f"/api/dlq?error=timeout&limit=2&cursor={first['nextCursor']}")).json

    found = [job["id"] for job in first["jobs"] + second["jobs"]]
    assert found == [job["id"] for job in (*new, *old[::-1])]
    assert second["nextCursor"] is None
    other = f"/api/dlq?error=address&cursor={first['nextCursor']}"
    assert (await api.get(other)).problem == (400, "bad-cursor")


async def test_a_search_scans_a_limited_part_and_continues_after_it(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    (rare,) = await bury(api, 1, "rare")
    await bury(api, 5, "usual")
    monkeypatch.setattr(dead_job_search, "LOOKED_AT_MAX", 2)
    pages, cursor = list[list[str]](), ""
    while True:
        body = (await api.get(f"/api/dlq?error=rare{cursor}")).json
        pages.append([job["id"] for job in body["jobs"]])
        if body["nextCursor"] is None:
            break
        cursor = f"&cursor={body['nextCursor']}"

    assert pages == [[], [], [rare["id"]]]


async def test_a_ticket_has_a_history_and_an_explanation(api: Api) -> None:
    await open_restaurant(api)
    first, second = await join(api), await join(api)

    explained = (await api.get(f"/api/tickets/{second['id']}/explain")).json
    events = (await api.get(f"/api/tickets/{first['id']}/history")).json["events"]

    assert (explained["kind"], explained["status"]) == ("ticket", "WAITING")
    assert (
        explained["reasons"][0]["detail"] == "It is on the waitlist of trattoria, with 1 before it."
    )
    assert [event["topic"] for event in events] == ["ticket.created"]
    assert (await api.get(f"/api/jobs/{first['id']}/explain")).status == 404


async def test_an_explanation_follows_a_ticket_until_it_is_seated(api: Api) -> None:
    await open_restaurant(api)
    ticket = await join(api)
    path = f"/api/tickets/{ticket['id']}/explain"

    async def reason() -> tuple[str, str]:
        body = (await api.get(path)).json
        return body["status"], body["reasons"][0]["code"]

    assert await reason() == ("WAITING", "InLine")
    await call_next(api, desk="Desk 1")
    assert await reason() == ("CALLED", "WasCalled")
    await act(api, ticket, "seat")
    assert await reason() == ("SEATED", "Seated")
