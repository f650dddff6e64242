"""An auditor reads everything but guests' names and numbers, on every route."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec import Struct
from starlette.types import Message

from daybook.api.app import ROUTES
from daybook.api.keys.access import AUDITOR, PUBLIC
from tests.api.login.test_permission_matrix import BODIES, cells
from tests.support.api_keys import Holder, holder
from tests.support.api_tickets import open_counter_api, open_restaurant

pytestmark = pytest.mark.anyio

NAME = "Zoë Canary-Nightingale"
NUMBER = "+491739876543"
# As JSON may write it, and parts of it that would still identify a person.
CANARIES = [
    text.encode()
    for text in ("Canary-Nightingale", "Zoë", r"Zo\u00eb", "1739876543", "173 9876543")
]
STREAMS = ("/api/stream", "/api/restaurants/{slug}/stream")
MOMENT_SECONDS = 0.5


class Actors(Struct):
    admin: Holder
    staff: Holder
    auditor: Holder
    parameters: dict[str, str]
    tickets: list[dict[str, Any]]
    position: str
    """Where the log ended before any guest was called."""


@pytest.fixture
async def actors(database: str) -> AsyncIterator[Actors]:
    """Guests in every status, with a name and a number that occur nowhere else."""
    async with open_counter_api(database, auth="keys", tickets_per_mobile_max=1000) as api:
        admin = await holder(api, database, "admin")
        staff = await holder(api, database, "staff")
        auditor = await holder(api, database, "auditor")
        await open_restaurant(admin, "own")
        waitlist = "/api/restaurants/own"
        party = {"name": NAME, "mobileNumber": NUMBER, "partySize": 2}
        joined = [await admin.post(f"{waitlist}/tickets", party) for _ in range(4)]
        tickets = [one.json["ticket"] for one in joined]
        position = joined[-1].headers["daybook-position"]
        for verb in ("seat", "no-show"):
            called = (await staff.post(f"{waitlist}/call-next", {})).json["ticket"]
            assert called["guest"]["name"] == NAME
            done = await staff.post(f"{waitlist}/tickets/{called['id']}/{verb}", {})
            assert done.status == 200, done.body
        await staff.post(f"{waitlist}/call-next", {})
        job = (await admin.post("/api/jobs", {"queue": "own", "type": "t"})).json["job"]
        parameters = {"{slug}": "own", "{name}": "own", "{queue}": "own", "{id}": job["id"]}
        yield Actors(admin, staff, auditor, parameters, tickets, position)


def shows(body: bytes) -> list[bytes]:
    return [canary for canary in CANARIES if canary in body]


async def read_for_a_moment(holder: Holder, path: str) -> bytes:
    """The first part of a response that may not end."""
    sent: list[bytes] = []

    async def receive() -> Message:
        await asyncio.sleep(MOMENT_SECONDS)
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message.get("body", b""))

    scope = {
        "type": "http",
        "method": "GET",
        "path": path.partition("?")[0],
        "raw_path": path.partition("?")[0].encode(),
        "query_string": path.partition("?")[2].encode(),
        "headers": [(b"authorization", f"Bearer {holder.key}".encode())],
        "server": ("127.0.0.1", 8000),
        "scheme": "http",
    }
    asking = asyncio.create_task(holder.app(scope, receive, send))
    await asyncio.wait({asking}, timeout=2 * MOMENT_SECONDS)
    asking.cancel()
    await asyncio.wait({asking})
    return b"".join(sent)


def paths(actors: Actors, path: str) -> list[str]:
    """The route for each resource, now and as of the past."""
    for parameter in ("{slug}", "{name}", "{queue}"):
        path = path.replace(parameter, actors.parameters[parameter])
    ids = [one["id"] for one in actors.tickets] if "ticket" in path else [actors.parameters["{id}"]]
    filled = [path.replace("{id}", one) for one in ids] if "{id}" in path else [path]
    queries = ["", f"?asOf={actors.position}", "?limit=100", "?status=SEATED", "?topic=ticket."]
    return [one + query for one in filled for query in queries]


async def test_an_auditor_sees_no_guest_on_any_route(actors: Actors) -> None:  # SEC-23
    assert {path for _, path, _ in cells()} >= {"/api/restaurants/{slug}/tickets", "/api/events"}
    seen, asked = [], 0
    for method, path, needs in cells():
        if not needs & (AUDITOR | PUBLIC) or (method != "GET" and not needs & AUDITOR):
            continue
        for one in paths(actors, path):
            if path in STREAMS:
                body = await read_for_a_moment(actors.auditor, one)
            else:
                answer = await actors.auditor.ask(method, one, BODIES.get(f"{method} {path}"))
                body = answer.body
            asked += bool(body)
            if found := shows(body):
                seen.append((method, one, found))
    assert seen == []
    assert asked > len(ROUTES)


async def test_an_auditor_may_not_run_commands_that_return_guests(actors: Actors) -> None:
    waitlist = "/api/restaurants/own"
    for path, body in (
        (f"{waitlist}/ticket-search", {"mobileNumber": NUMBER}),
        (f"{waitlist}/call-next", {}),
        (f"{waitlist}/tickets/{actors.tickets[2]['id']}/call", {}),
        ("/api/subjects/find", {"restaurant": "own", "mobileNumber": NUMBER}),
    ):
        assert (await actors.auditor.post(path, body)).problem == (403, "forbidden"), path


async def test_an_auditor_sees_the_line_without_its_guests(actors: Actors) -> None:
    waitlist = "/api/restaurants/own/tickets"
    for query in ("", f"?asOf={actors.position}", "?status=SEATED"):
        theirs = (await actors.staff.get(waitlist + query)).json["tickets"]
        audited = (await actors.auditor.get(waitlist + query)).json["tickets"]
        assert {one["guest"]["name"] for one in theirs} == {NAME}
        for one in theirs:
            del one["guest"]
        assert audited == theirs != []


async def test_an_auditor_who_is_also_staff_sees_them(actors: Actors, database: str) -> None:
    both = await holder(actors.admin, database, "staff", "auditor")
    answer = await both.get("/api/restaurants/own/tickets")
    assert answer.status == 200, answer.body
    (first, *_) = answer.json["tickets"]
    assert first["guest"] == {"name": NAME, "mobileNumber": NUMBER}
