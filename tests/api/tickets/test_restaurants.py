"""Restaurant endpoints."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.api_tickets import RESTAURANT, WAITLIST, join, open_counter_api, open_restaurant
from tests.support.asgi_client import Api
from tests.support.committer import fold_of_the_log, live_rows, rows

pytestmark = pytest.mark.anyio


@pytest.fixture
async def api(database: str) -> AsyncIterator[Api]:
    async with open_counter_api(database) as opened:
        yield opened


async def test_a_restaurant_is_opened_once_with_its_defaults(api: Api, database: str) -> None:
    first = await api.post("/api/restaurants", {"slug": "la-scala-2", "name": "La Scala"})
    again = await api.post("/api/restaurants", {"slug": "la-scala-2", "name": "La Scala"})
    other = await api.post("/api/restaurants", {"slug": "la-scala-2", "name": "Another"})

    body = first.json["restaurant"]
    assert (first.status, again.status) == (201, 200)
    assert again.json == first.json
    assert other.problem == (409, "restaurant-exists")
    assert (body["tokenPrefix"], body["averageMinutesPerParty"]) == ("LASCALA2", 10)
    assert (body["resetPolicy"], body["timeZone"]) == ("never", "UTC")
    assert (body["noShowGraceSeconds"], body["waiting"]) == (300, 0)
    assert rows(database, "SELECT count(*) FROM log") == [(1,)]


async def test_changed_settings_apply_to_later_guests(api: Api, database: str) -> None:
    await open_restaurant(api)
    before = await join(api, 1)
    changed = await api.patch(WAITLIST, {"tokenPrefix": "NEW", "noShowGraceSeconds": None})
    after = await join(api, 2)

    assert changed.json["restaurant"]["tokenPrefix"] == "NEW"
    assert changed.json["restaurant"]["noShowGraceSeconds"] is None
    assert (await api.get(WAITLIST)).json["restaurant"]["name"] == RESTAURANT["name"]
    assert [one["tokenNumber"] for one in (before, after)] == ["RDEMO123-000001", "RNEW-000002"]
    assert live_rows(database) == fold_of_the_log(database)


async def test_restaurants_are_listed_page_by_page(api: Api) -> None:
    for slug in ("c", "a", "b"):
        await open_restaurant(api, slug)
    first = (await api.get("/api/restaurants?limit=2")).json
    second = (await api.get(f"/api/restaurants?limit=2&cursor={first['nextCursor']}")).json

    slugs = [one["slug"] for page in (first, second) for one in page["restaurants"]]
    assert slugs == ["a", "b", "c"]
    assert second["nextCursor"] is None


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"slug": "Trattoria"}, "schema"),
        ({"slug": "a--b"}, "schema"),
        ({"slug": "-a"}, "schema"),
        ({"slug": "a" * 61}, "schema"),
        ({"tokenPrefix": "demo"}, "schema"),
        ({"tokenPrefix": ""}, "schema"),
        ({"timeZone": "Berlin"}, "unknown-time-zone"),
        ({"resetPolicy": "weekly"}, "schema"),
        ({"averageMinutesPerParty": 0}, "schema"),
        ({"noShowGraceSeconds": 0}, "schema"),
        ({"name": "two\nlines"}, "schema"),
    ],
)
async def test_an_invalid_body_opens_no_restaurant(
    api: Api, changes: dict[str, Any], code: str
) -> None:
    answer = await api.post("/api/restaurants", {**RESTAURANT, **changes})

    assert answer.problem == (422, code)
    assert (await api.get("/api/restaurants")).json["restaurants"] == []
