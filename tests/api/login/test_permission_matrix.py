"""Permissions: every route with every method and every kind of key, on own and others' resources,
against the scopes that the routes declare."""

from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from typing import Any
from uuid import UUID

import pytest
from starlette.routing import Route
from uuid_utils.compat import uuid7

from daybook.api.app import ROUTES, App
from daybook.api.keys.access import ADMIN, PUBLIC, SIGNED, declared_scope
from daybook.audit.actors import may_record
from daybook.domain.api_keys.scope import NAMES, Scope
from daybook.eventlog.errors import SetupError
from tests.support.api_keys import Holder, holder, name_of
from tests.support.api_tickets import join, open_counter_api, open_restaurant, party
from tests.support.asgi_client import Answer, Api, some_settings
from tests.support.committer import MAPPER, rows

pytestmark = pytest.mark.anyio

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
DENIED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
CLAIM = str(uuid7())
# Valid bodies, so that requests get as far as the visibility check.
BODIES: dict[str, Any] = {
    "POST /api/orders": {"type": "NORMAL"},
    "POST /api/orders/batch": {"orders": [{"type": "NORMAL"}]},
    "PATCH /api/orders/{id}": {"status": "COMPLETE"},
    "POST /api/orders/{id}/fail": {"claimId": CLAIM, "error": "burnt"},
    "POST /api/bots/claim": {"botIds": [CLAIM]},
    "PATCH /api/bots/{id}": {"status": "IDLE"},
    "POST /api/bots/{id}/restore": {"reason": "repaired"},
    "POST /api/jobs": {"queue": "own", "type": "t"},
    "POST /api/jobs/results": {"results": [{"id": CLAIM, "claimId": CLAIM, "outcome": "done"}]},
    "POST /api/jobs/claim": {"queues": ["own"], "workerId": "w"},
    "POST /api/jobs/heartbeat": {"claims": [{"id": CLAIM, "claimId": CLAIM}]},
    "POST /api/jobs/{id}/complete": {"claimId": CLAIM},
    "POST /api/jobs/{id}/fail": {"claimId": CLAIM, "error": "no"},
    "POST /api/jobs/{id}/snooze": {"claimId": CLAIM, "until": "2100-01-01T00:00:00Z"},
    "POST /api/jobs/{id}/release": {"claimId": CLAIM},
    "POST /api/jobs/{id}/heartbeat": {"claimId": CLAIM},
    "PUT /api/queues/{name}": {"paused": False},
    "POST /api/schedules": {
        "name": "nightly",
        "cron": "0 3 * * *",
        "job": {"queue": "own", "type": "t"},
    },
    "PATCH /api/schedules/{name}": {"paused": False},
    "POST /api/restaurants": {"slug": "third", "name": "Third"},
    "PATCH /api/restaurants/{slug}": {"name": "Another name"},
    "POST /api/restaurants/{slug}/tickets": party(),
    "POST /api/restaurants/{slug}/ticket-search": {"mobileNumber": party()["mobileNumber"]},
    "POST /api/restaurants/{slug}/tickets/{id}/transfer": {"toRestaurant": "third"},
    "POST /api/subjects/find": {"restaurant": "own", "mobileNumber": "+491700000001"},
    "POST /api/subjects/{id}/erase": {"reason": "asked for"},
    "POST /login": {"key": "no key"},
}
KINDS = ("orders", "bots", "jobs", "queues", "restaurants")
# A key restricted to queues lists one at a time.
QUERIES = {"GET /api/jobs": "?queue=own", "GET /api/dlq": "?queue=own"}
EVERY = [*NAMES]
UNBOUND = ("/api/stream",)
BOUND = (Scope.CLIENT, Scope.VIP, Scope.BOT, Scope.WORKER, Scope.STAFF)
OF_A_RESTAURANT = (Scope.CLIENT, Scope.VIP, Scope.STAFF)


class World:
    """An application, and for each scope one key holder with resources and one unrelated holder."""

    def __init__(self, api: Api, database: str) -> None:
        self.api = api
        self._database = database
        self.holders: dict[Scope, Holder] = {}
        self.bots: dict[str, str] = {}
        self._guests_count = 0

    async def open(self) -> None:
        admin = self.holders[Scope.ADMIN] = await holder(self.api, self._database, "admin")
        self.bots = {whose: (await admin.bot())["id"] for whose in ("own", "other")}
        for slug in ("own", "other"):
            await open_restaurant(admin, slug)
        bindings: dict[Scope, dict[str, Any]] = {
            Scope.CLIENT: {"queues": ("own",), "restaurant": "own"},
            Scope.VIP: {"queues": ("own",), "restaurant": "own"},
            Scope.STAFF: {"restaurant": "own", "queues": ("own",)},
            Scope.BOT: {"bot_id": UUID(self.bots["own"])},
            Scope.WORKER: {"queues": ("own",)},
        }
        for scope, name in NAMES.items():
            if scope is not Scope.ADMIN:
                binding = bindings.get(scope, {})
                self.holders[scope] = await holder(self.api, self._database, name, **binding)
        self._other = await holder(self.api, self._database, "client", restaurant="other")

    async def parameters(self, kind: str, whose: str) -> dict[str, str]:
        """Path parameters for a new resource of that kind."""
        thing = await self.thing(kind, whose)
        if kind == "restaurants":
            return {"{slug}": whose, "{id}": thing}
        return {"{name}" if kind == "queues" else "{id}": thing}

    async def thing(self, kind: str, whose: str) -> str:
        """A new resource, so that earlier requests do not matter; for a restaurant, a ticket."""
        admin = self.holders[Scope.ADMIN]
        if kind == "restaurants":
            self._guests_count += 1
            waitlist = f"/api/restaurants/{whose}"
            return str((await join(admin, self._guests_count, waitlist=waitlist))["id"])
        if kind == "queues":
            await admin.ask("PUT", f"/api/queues/{whose}", {"paused": False})
            return whose
        if kind == "jobs":
            job = await admin.post("/api/jobs", {"queue": whose, "type": "t"})
            return str(job.json["job"]["id"])
        if kind == "bots":
            return self.bots[whose]
        client = self.holders[Scope.CLIENT] if whose == "own" else self._other
        order = (await client.order())["id"]
        change = {"status": "PROCESSING", "botId": self.bots[whose]}
        await admin.patch(f"/api/bots/{self.bots[whose]}", {"status": "IDLE"})
        assert (await admin.patch(f"/api/orders/{order}", change)).status == 200
        return str(order)


@pytest.fixture
async def world(database: str) -> AsyncIterator[World]:
    secret = {"cron_secret": "the-secret-of-today"}
    async with open_counter_api(
        database, auth="keys", tickets_per_mobile_max=1000, **secret
    ) as api:
        world = World(api, database)
        await world.open()
        yield world


async def ask(asker: Api, method: str, path: str, operation: str) -> Answer:
    # A stream does not end: only its headers are read.
    is_stream = path == "/api/stream" and isinstance(asker, Holder)
    query = QUERIES.get(operation, "")
    return await asker.ask("HEAD" if is_stream else method, path + query, BODIES.get(operation))


def missing(path: str) -> str:
    never = "nothing-of-this-name"
    return path.replace("{id}", str(uuid7())).replace("{name}", never).replace("{slug}", never)


def at(path: str, parameters: Mapping[str, str]) -> str:
    for parameter, thing in parameters.items():
        path = path.replace(parameter, thing)
    return path


def cells() -> list[tuple[str, str, Scope]]:
    return [
        (method, route.path, declared_scope(route))
        for route in ROUTES
        for method in sorted((route.methods or set()) - {"HEAD"})
    ]


async def test_every_cell_of_routes_and_scopes_is_as_declared(world: World) -> None:  # SEC-01
    judged = 0
    for method, path, needs in cells():
        operation = f"{method} {path}"
        for scope in EVERY:
            answer = await ask(world.holders[scope], method, missing(path), operation)
            may = bool(needs & (PUBLIC | scope)) or scope is ADMIN
            may = may or (scope is Scope.VIP and Scope.CLIENT in needs)
            # These show all data, so restricted keys may not read them.
            may = may and not (path in UNBOUND and scope in BOUND)
            if needs == SIGNED or operation == "POST /login":
                assert answer.status == 401, (operation, scope)
            elif may:
                assert answer.status not in DENIED, (operation, scope, answer.body)
            else:
                assert answer.problem == (403, "forbidden"), (operation, scope)
            judged += 1
    assert judged == len(cells()) * len(NAMES)


async def test_without_a_key_only_public_routes_answer(world: World) -> None:  # SEC-01
    for method, path, needs in cells():
        answer = await ask(world.api, method, missing(path), f"{method} {path}")
        if PUBLIC in needs and path != "/login":
            assert answer.status not in DENIED, path
        elif method == "POST" or PUBLIC not in needs:
            assert answer.status == 401, (method, path)


async def test_a_method_that_no_route_has_is_allowed_for_no_key(world: World) -> None:
    # SEC-01
    known: dict[str, set[str]] = {}
    for route in ROUTES:
        known.setdefault(route.path, set()).update(route.methods or ())
    for path, methods in known.items():
        # A fixed path may also match a route with an id.
        others = {one.path for one in ROUTES if one.path_regex.match(missing(path))}
        taken = methods.union(*(known[other] for other in others))
        for method in set(METHODS) - taken:
            for asker in (world.api, *world.holders.values()):
                answer = await asker.ask(method, missing(path))
                assert answer.status == 405, (method, path)


async def test_an_invisible_resource_is_indistinguishable_from_a_missing_one(
    world: World,
) -> None:  # SEC-03
    """Byte by byte, except for the id."""
    compared = 0
    for method, path, needs in cells():
        kind = path.split("/")[2] if path.startswith("/api/") and "{" in path else ""
        if kind not in KINDS:
            continue
        for scope in BOUND:
            # Public routes answer all clients except keys of another restaurant.
            is_hidden = PUBLIC in needs and kind == "restaurants" and scope in OF_A_RESTAURANT
            acting = scope | Scope.CLIENT if scope is Scope.VIP else scope
            if not (needs & acting or is_hidden):
                continue
            if kind == "bots" and scope is Scope.STAFF:
                continue  # Orders and bots are visible to all staff.
            operation, asker = f"{method} {path}", world.holders[scope]
            other = await world.parameters(kind, "other")
            never = {parameter: missing(parameter) for parameter in other}
            hidden = await ask(asker, method, at(path, other), operation)
            absent = await ask(asker, method, at(path, never), operation)
            assert hidden.status == absent.status, (operation, scope, hidden.body)
            text = hidden.body.decode()
            for parameter, thing in other.items():
                text = text.replace(thing, never[parameter])
            assert text == absent.body.decode()
            assert hidden.status in (404, 409), (operation, scope, hidden.body)
            own = await world.parameters(kind, "own")
            seen = await ask(asker, method, at(path, own), operation)
            is_elsewhere = path.endswith("/transfer")
            assert is_elsewhere or seen.status not in (*DENIED, 404), (operation, scope, seen.body)
            compared += 1
    assert compared >= 40


async def test_staff_neither_see_nor_call_guests_of_another_restaurant(
    world: World,
) -> None:  # SEC-03
    staff, ticket = world.holders[Scope.STAFF], await world.thing("restaurants", "other")
    waitlist, own = "/api/restaurants/other", "/api/restaurants/own"
    for path in (f"{waitlist}/tickets", f"{waitlist}/tickets?asOf=1", f"{own}/tickets/{ticket}"):
        assert (await staff.get(path)).problem == (404, "not-found"), path
    for path in (f"{waitlist}/call-next", f"{own}/tickets/{ticket}/call", f"{waitlist}/tickets"):
        body = party() if path.endswith("/tickets") else {}
        assert (await staff.post(path, body)).problem == (404, "not-found"), path
    guest = await world.thing("restaurants", "own")
    sent_on = await staff.post(f"{own}/tickets/{guest}/transfer", {"toRestaurant": "other"})
    assert sent_on.problem == (404, "not-found")
    listed = (await staff.get("/api/restaurants?limit=1")).json
    assert [one["slug"] for one in listed["restaurants"]] == ["own"]
    assert listed["nextCursor"] is None
    for about in ("history", "explain"):
        asked = await staff.get(f"/api/tickets/{ticket}/{about}")
        assert asked.problem == (403, "forbidden")
    called = await staff.post(f"{own}/call-next")
    assert called.json["ticket"]["id"] == guest


def test_a_route_without_a_scope_prevents_the_start() -> None:
    # SEC-01
    async def forgotten(_request: Any) -> None: ...

    class Nothing:
        key_cache = None

    with pytest.raises(SetupError, match=r"/api/forgotten.*declares no scope"):
        # It is refused before the service is used.
        App(Nothing(), some_settings(), routes=[*ROUTES, Route("/api/forgotten", forgotten)])  # type: ignore[arg-type]


async def test_only_the_right_role_creates_vip_orders_and_adds_bots(world: World) -> None:
    # S0-O5, D-13
    vip = {"type": "VIP"}
    creates = {
        NAMES[scope]: int((await one.post("/api/orders", vip)).status)
        for scope, one in world.holders.items()
    }
    adds = {
        NAMES[scope]: int((await one.post("/api/bots")).status)
        for scope, one in world.holders.items()
    }
    assert {name for name, status in creates.items() if status == 201} == {"client:vip", "admin"}
    assert {name for name, status in adds.items() if status == 201} == {"admin"}
    assert set(creates.values()) == set(adds.values()) == {201, 403}
    batch = {"orders": [{"type": "NORMAL"}, vip]}
    refused = await world.holders[Scope.CLIENT].post("/api/orders/batch", batch)
    assert refused.problem == (403, "forbidden")
    listed = await world.holders[Scope.CLIENT].get("/api/orders")
    assert [order["type"] for order in listed.json["orders"]] == ["VIP"]


async def test_lists_show_only_orders_of_the_keys_owner(world: World) -> None:  # SEC-03
    own, other = await world.thing("orders", "own"), await world.thing("orders", "other")
    client, admin = world.holders[Scope.CLIENT], world.holders[Scope.ADMIN]

    def ids(answer: Answer) -> set[str]:
        return {order["id"] for order in answer.json["orders"]}

    assert ids(await client.get("/api/orders")) == {own}
    assert ids(await world.holders[Scope.STAFF].get("/api/orders?status=PROCESSING")) == {own}
    assert ids(await admin.get("/api/orders")) == {own, other}
    await admin.patch(f"/api/orders/{own}", {"status": "COMPLETE"})
    last = await admin.patch(f"/api/orders/{other}", {"status": "COMPLETE"})
    assert ids(await client.get("/api/orders?status=COMPLETE")) == {own}
    then = last.headers["daybook-position"]
    assert ids(await client.get(f"/api/orders?asOf={then}")) == {own}
    for queue in ("own", "other"):
        await world.thing("queues", queue)
    worker = world.holders[Scope.WORKER]
    queues = (await worker.get("/api/queues")).json["queues"]
    assert [queue["name"] for queue in queues] == ["own"]
    assert (await worker.get("/api/jobs")).problem == (403, "forbidden")
    assert (await worker.get("/api/dlq?queue=other")).problem == (403, "forbidden")


async def test_a_worker_reaches_no_queue_but_its_own(world: World) -> None:
    worker = world.holders[Scope.WORKER]
    elsewhere = {"queue": "other", "type": "t"}
    job = await world.thing("jobs", "own")
    claimed = await worker.post("/api/jobs/claim", {"queues": ["own"], "workerId": "w"})
    (claimed_job,) = claimed.json["jobs"]
    assert claimed_job["id"] == job
    then = {"claimId": claimed_job["claimId"], "then": [elsewhere]}
    for path, body in (
        ("/api/jobs", elsewhere),
        ("/api/jobs", {"jobs": [{"queue": "own", "type": "t"}, elsewhere]}),
        ("/api/jobs/claim", {"queues": ["own", "other"], "workerId": "w"}),
        (f"/api/jobs/{job}/complete", then),
    ):
        assert (await worker.post(path, body)).problem == (403, "forbidden"), path
    # Others' jobs are indistinguishable from missing ones, also within a batch.
    other = await world.thing("jobs", "other")
    taken = {"queues": ["other"], "workerId": "x"}
    (theirs,) = (await world.holders[Scope.ADMIN].post("/api/jobs/claim", taken)).json["jobs"]
    assert theirs["id"] == other
    result = {"id": other, "claimId": theirs["claimId"], "outcome": "done"}
    reported = await worker.post("/api/jobs/results", {"results": [result]})
    assert [one["code"] for one in reported.json["results"]] == ["not_found"]
    heartbeat = {"claims": [{"id": other, "claimId": theirs["claimId"]}]}
    assert (await worker.post("/api/jobs/heartbeat", heartbeat)).json["lost"] == [theirs["claimId"]]


async def test_the_log_names_the_scope_and_the_key_of_each_actor(world: World) -> None:
    vip = world.holders[Scope.VIP]
    await vip.post("/api/orders", {"type": "VIP"})
    events = (await world.holders[Scope.AUDITOR].get("/api/events?topic=order.")).json["events"]
    assert [event["actor"] for event in events] == [f"client:vip:{name_of(vip.key)}"]


async def test_no_scope_recorded_an_event_that_it_may_not(world: World, database: str) -> None:
    # I-07: each key executes all commands that its scope allows on its own resources.
    # Deleting the bot comes last, because a deleted bot has no claim.
    for method, path, _ in sorted(
        cells(), key=lambda cell: cell[:2] == ("DELETE", "/api/bots/{id}")
    ):
        kind = path.split("/")[2] if path.startswith("/api/") else ""
        own = kind in KINDS and "{" in path
        for asker in world.holders.values():
            where = at(path, await world.parameters(kind, "own")) if own else path
            if method != "GET":
                await ask(asker, method, missing(where), f"{method} {path}")
    found = rows(database, "SELECT actor, topic, state FROM stored_events")
    for actor, topic, state in found:
        assert may_record(actor, topic, MAPPER.decode(topic, state)), (actor, topic)
    scopes = {actor.rpartition(":")[0] for actor, _, _ in found}
    assert scopes == {*NAMES.values(), "operator"}
