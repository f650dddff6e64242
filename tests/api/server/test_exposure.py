"""What strangers find when they look for what is left lying about."""

from collections.abc import AsyncIterator

import pytest

from tests.support.asgi_client import Api, open_api

pytestmark = pytest.mark.anyio


@pytest.fixture
async def shut(database: str) -> AsyncIterator[Api]:
    async with open_api(database, auth="keys", app_base_url="https://daybook.example") as api:
        yield api


@pytest.mark.parametrize(
    "path", ["/", "/ops", "/login", "/api/orders", "/api/orders/", "//evil.example", "/nowhere"]
)
async def test_nobody_is_sent_anywhere_else(shut: Api, path: str) -> None:
    headers = {"Host": "daybook.example", "X-Forwarded-Proto": "http"}
    for method in ("GET", "POST"):
        answer = await shut.send(method, path, headers=headers)
        assert not 300 <= answer.status < 400
        assert "location" not in answer.headers


@pytest.mark.parametrize(
    "path",
    [
        "/.git/config",
        "/.git/",
        "/.svn/entries",
        "/pyproject.toml",
        "/api/app.py",
        "/web/x/.git/config",
        "/web/x/../../.git/config",
        "/web/x/kit",
        "/web/x/kit/",
        "/web/",
    ],
)
async def test_nothing_of_the_repository_is_served(shut: Api, path: str) -> None:
    assert (await shut.get(path)).problem == (404, "not-found")


async def test_there_is_no_debugging_for_strangers(shut: Api) -> None:
    assert shut.app.debug is False
    for path in ("/debug", "/console", "/docs", "/admin", "/server-status"):
        assert (await shut.get(path)).status == 404


async def test_only_description_constants_and_health_are_told_to_strangers(
    shut: Api,
) -> None:
    for path in ("/metrics", "/api/doctor", "/api/events", "/api/queues"):
        assert (await shut.get(path)).status == 401, path
    for path in ("/openapi.json", "/api/config", "/health/live", "/health/ready"):
        assert (await shut.get(path)).status == 200, path
