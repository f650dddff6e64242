"""Upstream queries."""

from collections.abc import Iterator

import pytest

from daybook.api.runtime.service import Service
from daybook.processors.upstreams.poller import Upstreams
from tests.processors.upstreams.test_poller import STREAM, alive, error, feed_of
from tests.support.asgi_client import Api, api_of
from tests.support.committer import eventually
from tests.support.running.feeds import Upstream, serving_feed
from tests.support.running.nearby import NEARBY

pytestmark = pytest.mark.anyio

WHERE = f"/api/upstreams/{STREAM}"


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with serving_feed() as feed:
        yield feed


def polling(database: str, upstream: Upstream) -> Service:
    processor = Upstreams({STREAM: feed_of(upstream)}, NEARBY)
    return Service(database, read_models=(), processors=(processor,))


async def test_an_upstream_returns_its_progress_and_records(
    database: str, upstream: Upstream
) -> None:
    upstream.add(1, 2, 3)
    async with polling(database, upstream) as service:
        api = api_of(service)
        await eventually(lambda: alive(database) == {1, 2, 3})
        upstream.add(2, version=2, deleted_at="now")
        await eventually(lambda: alive(database) == {1, 3})
        (body,) = (await api.get("/api/upstreams")).json["upstreams"]
        first = (await api.get(f"{WHERE}/records?limit=2")).json
        second = (await api.get(f"{WHERE}/records?limit=2&cursor={first['nextCursor']}")).json
        (two,) = (await api.get(f"{WHERE}/records?record=2")).json["records"]

    assert (body["name"], body["cursor"], body["error"]) == (STREAM, "3", None)
    assert body["polledAt"] is not None
    records = first["records"] + second["records"]
    assert sorted(record["id"] for record in records) == ["1", "2", "3"]
    assert second["nextCursor"] is None
    assert (two["deleted"], two["vanished"], two["revision"]) == (True, False, "2")
    assert two["data"] == {"id": 2, "version": 1}, "as it was last seen"


async def test_an_unreadable_upstream_returns_its_error(database: str, upstream: Upstream) -> None:
    for _ in range(50):
        upstream.fail(503)
    async with polling(database, upstream) as service:
        await eventually(lambda: error(database) is not None)
        body = (await api_of(service).get(WHERE)).json["upstream"]
    assert (body["error"], body["polledAt"]) == ("The feed answered 503.", None)


@pytest.mark.parametrize("path", [WHERE, f"{WHERE}/records"])
async def test_unknown_names_are_not_found(api: Api, path: str) -> None:
    assert (await api.get(path)).problem == (404, "not-found")
    assert (await api.get("/api/upstreams/two words")).problem == (400, "bad-name")
    assert (await api.get("/api/upstreams")).json == {"upstreams": []}


@pytest.mark.parametrize("query", ["cursor=abc", "limit=0", "limit=1001", "record=", "x=1"])
async def test_bad_parameters_are_refused(database: str, upstream: Upstream, query: str) -> None:
    upstream.add(1)
    async with polling(database, upstream) as service:
        await eventually(lambda: alive(database) == {1})
        answer = await api_of(service).get(f"{WHERE}/records?{query}")
    assert answer.status == 400
