"""If-Match: a command with an outdated version changes nothing."""

from typing import Any
from uuid import UUID

import pytest
from uuid_utils.compat import uuid7

from daybook.domain.messages.commands import Backlog, Push
from tests.support.api_tickets import WAITLIST, join, open_restaurant
from tests.support.asgi_client import Api
from tests.support.committer import origin, rows
from tests.support.jobs import new_job

pytestmark = pytest.mark.anyio

OTHER = '"99"'
CLAIM = {"claimId": str(uuid7())}
LATER = "2100-01-01T00:00:00Z"
TICKET = "/api/restaurants/{slug}/tickets/{id}"
# A valid body for every write on one resource.
WRITES: dict[tuple[str, str], Any] = {
    ("PATCH", "/api/orders/{id}"): {"status": "PENDING"},
    ("DELETE", "/api/orders/{id}"): None,
    ("POST", "/api/orders/{id}/fail"): {**CLAIM, "error": "burnt"},
    ("POST", "/api/orders/{id}/restore"): None,
    ("POST", "/api/orders/{id}/requeue"): None,
    ("PATCH", "/api/bots/{id}"): {"status": "IDLE"},
    ("DELETE", "/api/bots/{id}"): None,
    ("POST", "/api/bots/{id}/claim"): None,
    ("POST", "/api/bots/{id}/restore"): {"reason": "repaired"},
    ("POST", "/api/jobs/{id}/complete"): CLAIM,
    ("POST", "/api/jobs/{id}/fail"): {**CLAIM, "error": "no"},
    ("POST", "/api/jobs/{id}/snooze"): {**CLAIM, "until": LATER},
    ("POST", "/api/jobs/{id}/release"): CLAIM,
    ("POST", "/api/jobs/{id}/cancel"): None,
    ("POST", "/api/jobs/{id}/retry"): None,
    ("POST", "/api/v1/operations/{id}/retry"): None,
    ("POST", "/api/v1/operations/{id}/cancel"): None,
    ("POST", f"{TICKET}/call"): {},
    ("POST", f"{TICKET}/recall"): {},
    ("POST", f"{TICKET}/seat"): None,
    ("POST", f"{TICKET}/no-show"): None,
    ("POST", f"{TICKET}/return"): None,
    ("POST", f"{TICKET}/cancel"): {"reason": "rain"},
    ("POST", f"{TICKET}/transfer"): {"toRestaurant": "elsewhere"},
}


async def things(api: Api) -> dict[str, str]:
    """One resource of each kind, by the prefix of its path."""
    await open_restaurant(api)
    await open_restaurant(api, "elsewhere")
    job = await api.post("/api/jobs", {"queue": "email", "type": "send"})
    return {
        "/api/orders": (await api.order())["id"],
        "/api/bots": (await api.bot())["id"],
        "/api/jobs": job.json["job"]["id"],
        "/api/restaurants": (await join(api))["id"],
        "/api/v1/operations": str(await accept(api)),
    }


async def accept(api: Api) -> UUID:
    """A push that a busy service defers."""
    job_id, operation_id = uuid7(), uuid7()
    new = new_job("mail", "message", partition="1", unique_key=str(job_id))
    push = Push(
        new=[new], operation_id=operation_id, is_busy=True, standing=Backlog(None, per_second=1)
    )
    await api.service.committer.submit(push, origin())
    return operation_id


def address(path: str, ids: dict[str, str]) -> str:
    thing = next(ids[start] for start in ids if path.startswith(start))
    return path.replace(TICKET.partition("/tickets")[0], WAITLIST).replace("{id}", thing)


async def test_a_command_with_an_outdated_version_changes_nothing(api: Api, database: str) -> None:
    ids = await things(api)
    count = "SELECT count(*) FROM stored_events"
    before = rows(database, count)

    answers = {
        (method, path): await api.ask(method, address(path, ids), body, if_match=OTHER)
        for (method, path), body in WRITES.items()
    }

    assert {key: answer.problem for key, answer in answers.items()} == dict.fromkeys(
        WRITES, (412, "version-conflict")
    )
    assert rows(database, count) == before


async def test_every_write_that_says_so_is_among_them(api: Api) -> None:
    described = {
        (method.upper(), path)
        for path, operations in (await api.get("/openapi.json")).json["paths"].items()
        for method, operation in operations.items()
        if any(one["name"] == "If-Match" for one in operation.get("parameters", ()))
    }
    # Neither an erased guest nor an unreadable aggregate has a version to expect.
    assert described - set(WRITES) == {
        ("POST", "/api/subjects/{id}/erase"),
        ("POST", "/api/quarantine/{id}/set-aside"),
    }


@pytest.mark.parametrize("given", ['"1"', '"7", "1"', "*"])
async def test_a_command_with_the_current_version_is_executed(api: Api, given: str) -> None:
    order = await api.order()
    assert order["version"] == 1

    answer = await api.delete(f"/api/orders/{order['id']}", if_match=given)

    assert (answer.status, answer.json["order"]["version"]) == (200, 2)


async def test_the_refusal_names_the_current_version(api: Api) -> None:
    order, _ = await api.cooking()

    answer = await api.delete(f"/api/orders/{order['id']}", if_match='"1"')

    assert answer.problem == (412, "version-conflict")
    assert f"is at version {order['version']} now" in answer.json["detail"]


async def test_if_match_on_a_missing_resource_is_404(api: Api) -> None:
    answer = await api.delete(f"/api/orders/{uuid7()}", if_match='"1"')

    assert answer.problem == (404, "not-found")


@pytest.mark.parametrize("given", ["1", "", '"x"', 'W/"1"', '"1" "2"', '"1",', f'"{"1" * 19}"'])
async def test_an_invalid_if_match_is_refused(api: Api, given: str) -> None:
    order = await api.order()

    answer = await api.delete(f"/api/orders/{order['id']}", if_match=given)

    assert answer.problem == (400, "bad-if-match")


async def test_an_idempotency_key_stands_for_the_version_too(api: Api) -> None:
    order = await api.order()
    path = f"/api/orders/{order['id']}"

    first = await api.delete(path, if_match='"1"', idempotency_key="a")
    again = await api.delete(path, if_match='"1"', idempotency_key="a")
    other = await api.delete(path, if_match='"2"', idempotency_key="a")

    assert (first.status, again.status) == (200, 200)
    assert again.headers["idempotent-replayed"] == "true"
    assert other.problem == (422, "idempotency-key-reused")
