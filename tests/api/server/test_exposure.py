"""Routes that clients without a key can reach."""

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
async def test_no_path_redirects(shut: Api, path: str) -> None:
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


async def test_no_debug_route_is_served(shut: Api) -> None:
    assert shut.app.debug is False
    for path in ("/debug", "/console", "/docs", "/admin", "/server-status"):
        assert (await shut.get(path)).status == 404


async def test_only_openapi_public_config_and_health_need_no_key(
    shut: Api,
) -> None:
    for path in ("/metrics", "/api/doctor", "/api/events", "/api/queues"):
        assert (await shut.get(path)).status == 401, path
    for path in ("/openapi.json", "/api/config", "/health/live", "/health/ready"):
        assert (await shut.get(path)).status == 200, path
