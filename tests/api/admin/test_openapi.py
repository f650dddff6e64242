"""The OpenAPI description and the public settings."""

import re
from typing import Any

import pytest
from starlette.routing import Route
from uuid_utils.compat import uuid7

from daybook.api.admin import health
from daybook.api.admin.openapi import describe
from daybook.api.http.request_reader import IDEMPOTENCY_KEY_CHARACTERS_MAX
from daybook.api.orders.callback_signatures import (
    STANDARD_ID,
    STANDARD_SIGNATURE,
    STANDARD_TIMESTAMP,
    UPSTASH_SIGNATURE,
)
from daybook.api.orders.queries import PAGE_DEFAULT, PAGE_MAX
from daybook.api.web import pages
from daybook.projections.page_cursor import CURSOR_LENGTH_MAX
from tests.support.asgi_client import Api, open_api
from tests.support.databases.tcp_proxy import proxy_to

pytestmark = pytest.mark.anyio

PROBLEM = "application/problem+json"


async def description(api: Api) -> Any:
    answer = await api.get("/openapi.json")
    assert answer.status == 200
    return answer.json


async def test_every_route_is_described(api: Api) -> None:
    document = await description(api)

    routes = {
        (route.path, method.lower())
        for route in api.app.routes
        if isinstance(route, Route) and route not in pages.routes
        for method in (route.methods or set()) - {"HEAD"}
    }
    described = {
        (path, method) for path, methods in document["paths"].items() for method in methods
    }
    assert len(routes) == len([*api.app.routes]) - len(pages.routes)
    assert described == routes


async def test_every_reference_leads_somewhere(api: Api) -> None:
    document = await description(api)

    def references(value: Any) -> set[str]:
        if isinstance(value, dict):
            own = {value["$ref"]} if "$ref" in value else set()
            return own.union(*map(references, value.values()))
        return set().union(*map(references, value)) if isinstance(value, list) else set()

    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert references(document) <= known


async def test_limits_and_shapes_come_from_the_types(api: Api) -> None:
    document = await description(api)

    schemas = document["components"]["schemas"]
    create = document["paths"]["/api/orders"]["post"]
    assert create["requestBody"]["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/NewOrder"
    }
    assert schemas["NewOrder"]["additionalProperties"] is False
    assert schemas["NewOrder"]["properties"]["userId"]["anyOf"][0]["maxLength"] == 200
    assert create["responses"]["201"]["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/OrderAnswer"
    }
    order = (await api.post("/api/orders", {"type": "VIP"})).json["order"]
    assert set(order) == set(schemas["OrderJSON"]["required"])
    bot = (await api.post("/api/bots")).json["bot"]
    assert set(bot) == set(schemas["BotJSON"]["required"])


READS = [
    "/api/orders",
    "/api/orders/{id}",
    "/api/bots",
    "/api/bots/{id}",
    "/api/config",
    "/openapi.json",
]


async def filled(api: Api, path: str) -> str:
    """The path of something that is there."""
    made = await (api.bot() if "bots" in path else api.order())
    return path.format(id=made["id"])


@pytest.mark.parametrize("path", READS)
async def test_a_read_answers_with_the_members_that_its_type_has(api: Api, path: str) -> None:
    document = await description(api)
    answer = await api.get(await filled(api, path))

    described = document["paths"][path]["get"]["responses"]["200"]["content"]
    schema = described[answer.headers["content-type"]]["schema"]
    if "$ref" not in schema:
        assert (path, schema) == ("/openapi.json", {"type": "object"})
        return
    assert set(answer.json) == set(member_names(document, schema))


def member_names(document: Any, schema: Any) -> list[str]:
    name = schema["$ref"].rpartition("/")[2]
    members: list[str] = document["components"]["schemas"][name]["required"]
    return members


@pytest.mark.parametrize("path", READS)
async def test_a_read_takes_the_parameters_that_are_described_and_no_other(
    api: Api, path: str
) -> None:
    document = await description(api)
    where = await filled(api, path)
    described = {
        one["name"]: one["schema"]
        for one in document["paths"][path]["get"]["parameters"]
        if one["in"] == "query"
    }

    for name, schema in described.items():
        for value, status in examples(document, schema):
            assert (await api.get(f"{where}?{name}={value}")).status == status, (name, value)
    assert (await api.get(f"{where}?other=1")).problem == (400, "unknown-parameter")


def examples(document: Any, schema: Any) -> list[tuple[Any, int]]:
    """Values at the bounds of a parameter, with the expected status."""
    if "$ref" in schema:
        values = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]["enum"]
        return [*((value, 200) for value in values), ("OTHER", 400), ("null", 400)]
    if schema["type"] == "integer":
        low, high = schema["minimum"], schema["maximum"]
        good = [(value, 200) for value in (low, high, schema["default"])]
        return [*good, (low - 1, 400), (high + 1, 400), (f"{high}.0", 400), (f"0{low}", 400)]
    return [("", 400), ("x" * (schema["maxLength"] + 1), 400)]


async def test_the_parameters_of_the_list_of_orders_are_described(api: Api) -> None:
    document = await description(api)
    parameters = document["paths"]["/api/orders"]["get"]["parameters"]

    assert [(one["name"], one["in"]) for one in parameters] == [
        ("status", "query"),
        ("limit", "query"),
        ("cursor", "query"),
        ("asOf", "query"),
        ("If-Position-At-Least", "header"),
    ]
    limit, cursor = parameters[1]["schema"], parameters[2]["schema"]
    assert (limit["minimum"], limit["maximum"], limit["default"]) == (1, PAGE_MAX, PAGE_DEFAULT)
    assert cursor["maxLength"] == CURSOR_LENGTH_MAX
    assert all(one["schema"]["description"] for one in parameters)


@pytest.mark.parametrize("path", ["/api/orders/{id}", "/api/bots/{id}"])
async def test_an_id_is_described_as_it_is_read(api: Api, path: str) -> None:
    document = await description(api)
    one = document["paths"][path]["get"]["parameters"][0]

    assert (one["name"], one["in"], one["required"]) == ("id", "path", True)
    assert re.fullmatch(one["schema"]["pattern"], str(uuid7()))
    assert not re.fullmatch(one["schema"]["pattern"], str(uuid7()).upper())


async def test_the_problems_of_queries_are_documented(database: str) -> None:
    async with proxy_to(database) as proxy, open_api(proxy.conninfo) as api:
        document = await description(api)
        statuses = [(path, 400, await api.get(f"{path}?x=1")) for path in READS]
        for path in ("/api/orders/{id}", "/api/bots/{id}"):
            statuses.append((path, 404, await api.get(path.format(id=uuid7()))))
        proxy.refusing = True
        proxy.drop_all()
        for path in READS[:4]:
            statuses.append((path, 503, await api.get(path.format(id=uuid7()))))

    for path, status, answer in statuses:
        response = document["paths"][path]["get"]["responses"][str(status)]
        assert answer.status == status
        assert set(member_names(document, response["content"][PROBLEM]["schema"])) == set(
            answer.json
        )
        assert ("Retry-After" in response.get("headers", {})) == ("retry-after" in answer.headers)


async def test_the_stream_is_described_as_one(api: Api) -> None:
    document = await description(api)
    stream = document["paths"]["/api/stream"]["get"]

    schema = stream["responses"]["200"]["content"]["text/event-stream"]["schema"]
    assert (schema["type"], schema["contentMediaType"]) == ("string", "application/json")
    members = {"position", "topic", "id", "version", "recordedAt", "data"}
    assert set(member_names(document, schema["contentSchema"])) == members
    assert [(one["name"], one["in"]) for one in stream["parameters"]] == [
        ("after", "query"),
        ("pulse", "query"),
        ("Last-Event-ID", "header"),
    ]
    after, pulse, last = [one["schema"] for one in stream["parameters"]]
    assert (after["maximum"], pulse["maximum"]) == (2**63 - 1, 15)
    # Ids of older versions are positions alone.
    for given in ("7", "7-6a3fc1d2e4b5f607.1"):
        assert re.search(last["pattern"], given)
    assert {"400", "503"} <= set(stream["responses"])


async def test_only_endpoints_that_use_an_idempotency_key_list_it(api: Api) -> None:
    document = await description(api)
    headers = {
        (path, method): {one["name"]: one for one in operation["parameters"]}
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if path.startswith(("/api/orders", "/api/bots"))
    }

    callback = headers.pop(("/api/orders/complete", "post"))
    assert set(callback) == {UPSTASH_SIGNATURE, STANDARD_ID, STANDARD_TIMESTAMP, STANDARD_SIGNATURE}
    assert "401" in document["paths"]["/api/orders/complete"]["post"]["responses"]
    for (_, method), parameters in headers.items():
        assert ("Idempotency-Key" in parameters) == (method != "get")
    key = headers["/api/orders", "post"]["Idempotency-Key"]["schema"]
    assert key["maxLength"] == IDEMPOTENCY_KEY_CHARACTERS_MAX


def test_health_is_described_too() -> None:
    document = describe(health.routes)

    live, ready = (
        document["paths"]["/health/live"]["get"],
        document["paths"]["/health/ready"]["get"],
    )
    assert live["responses"]["200"]["content"]["application/json"]["schema"]
    assert ("503" in live["responses"], "503" in ready["responses"]) == (False, True)


async def test_the_constants_in_force_are_published(api: Api) -> None:
    # S0-84, S0-85: no lock expires, so there is no such time to tell
    body = (await api.get("/api/config")).json

    assert body["botProcessingDelaySeconds"] == 10
    assert (body["attemptsMax"], body["vipAgingSeconds"]) == (3, None)
    assert body["limits"]["batchMax"] == 1000
    assert body["version"]
    assert not [name for name in body if "lock" in name.lower()]
