"""The description of the API, and the constants it publishes."""

from typing import Any

import pytest
from starlette.routing import Route

from tests.api.http import Api

pytestmark = pytest.mark.anyio


async def description(api: Api) -> Any:
    answer = await api.get("/openapi.json")
    assert answer.status == 200
    return answer.json


async def test_every_route_is_described(api: Api) -> None:
    told = await description(api)

    routes = {
        (route.path, method.lower())
        for route in api.app.routes
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    }
    described = {(path, method) for path, methods in told["paths"].items() for method in methods}
    assert len(routes) == len([*api.app.routes])
    assert described == routes


async def test_every_reference_leads_somewhere(api: Api) -> None:
    told = await description(api)

    def references(value: Any) -> set[str]:
        if isinstance(value, dict):
            own = {value["$ref"]} if "$ref" in value else set()
            return own.union(*map(references, value.values()))
        return set().union(*map(references, value)) if isinstance(value, list) else set()

    known = {f"#/components/schemas/{name}" for name in told["components"]["schemas"]}
    assert references(told) <= known


async def test_limits_and_shapes_come_from_the_types(api: Api) -> None:
    told = await description(api)

    schemas = told["components"]["schemas"]
    create = told["paths"]["/api/orders"]["post"]
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


async def test_the_constants_in_force_are_published(api: Api) -> None:  # S0-84
    told = (await api.get("/api/config")).json

    assert told["botProcessingDelaySeconds"] == 10
    assert (told["attemptsMax"], told["vipAgingSeconds"]) == (3, None)
    assert told["limits"]["batchMax"] == 1000
    assert told["version"]
