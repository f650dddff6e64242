"""The composed service and its health, on a real database, without a network."""

import asyncio
from collections.abc import Sequence

import pytest
from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from uuid_utils.compat import uuid7

from daybook.api.runtime.service import Service
from daybook.domain.event import Event
from daybook.domain.orders.commands import CreateOrder
from daybook.domain.orders.order import OrderKind
from daybook.eventlog.codec import FollowedEvent
from daybook.eventlog.origin import Origin
from daybook.eventlog.reading.follower import PAUSE_SECONDS
from tests.support.asgi_client import Answer, api_of
from tests.support.committer import rows
from tests.support.databases.tcp_proxy import proxy_to

pytestmark = pytest.mark.anyio


async def ask(service: Service, path: str, method: str = "GET") -> Answer:
    return await api_of(service).send(method, path)


async def ready_with(service: Service, status: int) -> Answer:
    """Polls until that is the response, for about ten seconds."""
    for _ in range(500):
        answer = await ask(service, "/health/ready")
        if answer.status == status:
            return answer
        await asyncio.sleep(0.02)
    raise AssertionError(f"readiness stayed at {answer.status}")


def create_order() -> tuple[CreateOrder, Origin]:
    command = CreateOrder(order_id=uuid7(), kind=OrderKind.NORMAL)
    return command, Origin(command_id=uuid7(), actor="test")


class Broken:
    """A read model that raises."""

    name = "broken"
    kinds: tuple[type[Event], ...] | None = None
    needs_payload = True
    pause_seconds = PAUSE_SECONDS

    async def apply(
        self, _connection: AsyncConnection[TupleRow], _events: Sequence[FollowedEvent]
    ) -> None:
        raise RuntimeError("a defect")


async def test_readiness_names_the_position_of_the_log(database: str) -> None:
    async with Service(database) as service:
        before = await ask(service, "/health/ready")
        await service.committer.submit(*create_order())
        after = await ask(service, "/health/ready")

    assert (before.status, before.json) == (200, {"status": "ready", "position": 0})
    assert (after.status, after.json) == (200, {"status": "ready", "position": 1})


async def test_liveness_does_not_need_the_database() -> None:
    async with Service("host=/nonexistent dbname=none") as service:
        answer = await ask(service, "/health/live")

    assert (answer.status, answer.json) == (200, {"status": "ok"})


async def test_readiness_fails_while_the_database_is_unreachable_and_recovers(
    database: str,
) -> None:
    async with proxy_to(database) as proxy, Service(proxy.conninfo) as service:
        assert (await ask(service, "/health/ready")).status == 200

        proxy.refusing = True
        proxy.drop_all()
        away = await ask(service, "/health/ready")
        proxy.refusing = False
        await ready_with(service, 200)

    assert away.status == 503
    assert away.headers["content-type"] == "application/problem+json"
    assert away.headers["retry-after"] == "1"
    assert away.json == {
        "type": "urn:daybook:problem:unavailable",
        "title": "Service Unavailable",
        "status": 503,
        "detail": "The database cannot be reached.",
        "error": "The database cannot be reached.",
        "code": "unavailable",
    }


async def test_readiness_is_refused_once_a_read_model_has_stopped_following(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Service(database, read_models=(Broken(),)) as service:
        await service.committer.submit(*create_order())
        answer = await ready_with(service, 503)

    assert answer.json["detail"] == "The read model broken has stopped following the log."
    assert "RuntimeError: a defect" in caplog.text


async def test_accepted_commands_are_committed_before_the_service_stops(database: str) -> None:
    async with Service(database) as service:
        accepted = [service.committer.submit(*create_order()) for _ in range(20)]

    receipts = await asyncio.gather(*accepted)
    assert len({receipt.position for receipt in receipts}) == 20


@pytest.mark.parametrize("path", ["/nothing", "/health", "/health/live/"])
async def test_an_unknown_path_is_a_problem(path: str) -> None:
    async with Service("host=/nonexistent dbname=none") as service:
        answer = await ask(service, path)

    assert answer.status == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json["type"] == "urn:daybook:problem:not-found"
    assert answer.json["code"] == "not_found"


async def test_a_method_that_a_path_does_not_take_is_a_problem() -> None:
    async with Service("host=/nonexistent dbname=none") as service:
        answer = await ask(service, "/health/live", "DELETE")

    assert answer.status == 405
    assert answer.headers["content-type"] == "application/problem+json"
    assert "GET" in answer.headers["allow"]
    assert answer.json["code"] == "method_not_allowed"


async def test_readiness_names_a_cursor_that_is_ahead_of_the_log(database: str) -> None:
    left = "INSERT INTO followers (name, position, count, digest) VALUES ('left', 9, 0, '')"
    async with Service(database) as service:
        await ready_with(service, 200)
        rows(database, left)
        answer = await ready_with(service, 503)

    assert "ahead of the log" in answer.json["detail"]
    assert "left" in answer.json["detail"]
