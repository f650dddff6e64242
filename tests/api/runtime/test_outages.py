"""A database that is down, read-only, full or slow: responses, remaining reads, and recovery."""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from daybook.eventlog.postgres.embedded import EmbeddedPostgres
from daybook.eventlog.postgres.migrate import migrate
from daybook.projections.registry import MIGRATIONS
from tests.api.conftest import DEADLINE_SECONDS
from tests.conftest import reachable_directory
from tests.support.api_tickets import WAITLIST, open_counter_api, open_restaurant, party
from tests.support.asgi_client import Answer, Api
from tests.support.committer import rows

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("short_deadline")]

RETURN_SECONDS = 2.0
# Generous, because the machine may be busy.
SLACK_SECONDS = 4.0
ORDER = {"type": "NORMAL"}
DISK_FULL = """
CREATE FUNCTION refuse_as_full() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'no space left on device' USING ERRCODE = 'disk_full'; END $$;
CREATE TRIGGER full_disk BEFORE INSERT ON daybook.stored_events
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_as_full()
"""
ROOM_AGAIN = "DROP FUNCTION refuse_as_full() CASCADE"


async def timed(asked: Any) -> tuple[Answer, float]:
    began = time.monotonic()
    answer: Answer = await asked
    return answer, time.monotonic() - began


async def assert_unavailable(asked: Any, *kinds: str) -> str:
    """Returns the problem code."""
    answer, seconds = await timed(asked)
    status, kind = answer.problem
    assert status == 503
    assert kind in (kinds or ["unavailable"])
    assert answer.headers["retry-after"] == "1"
    assert seconds < DEADLINE_SECONDS + SLACK_SECONDS
    return kind


async def assert_read_soon(api: Api, path: str) -> None:
    """The first read may meet a closed connection, and is retried."""
    until = time.monotonic() + RETURN_SECONDS
    while (answer := await api.get(path)).status != 200:
        assert answer.status == 503
        assert time.monotonic() < until
        await asyncio.sleep(0.05)


async def assert_all_well_soon(api: Api, **headers: str) -> None:
    """Recovers without any action but retries."""
    began = time.monotonic()
    for method, path, body, status in (
        ("POST", "/api/orders", ORDER, 201),
        ("GET", "/api/orders", None, 200),
        ("GET", "/health/ready", None, 200),
    ):
        while (await api.ask(method, path, body, **headers)).status != status:
            assert time.monotonic() - began < RETURN_SECONDS + SLACK_SECONDS, path
            await asyncio.sleep(0.05)


@asynccontextmanager
async def submitter(conninfo: str) -> AsyncIterator[Api]:
    async with open_counter_api(conninfo) as api:
        await open_restaurant(api)
        await api.order()
        yield api


@contextmanager
def own_server() -> Iterator[tuple[Path, EmbeddedPostgres]]:
    directory = reachable_directory()
    postgres = EmbeddedPostgres(directory, settings={"fsync": "off"})
    try:
        migrate(postgres.start(), MIGRATIONS)
        yield directory, postgres
    finally:
        postgres.stop()
        shutil.rmtree(directory)


async def test_a_stopped_server_is_reported_and_recovered_from() -> None:
    with own_server() as (directory, postgres):
        async with submitter(postgres.conninfo) as api:
            await asyncio.to_thread(postgres.stop)
            await assert_unavailable(api.post("/api/orders", ORDER))
            await assert_unavailable(api.get("/api/orders"))
            await assert_unavailable(api.post(f"{WAITLIST}/tickets", party()))
            await assert_unavailable(api.get("/health/ready"))
            for path in ("/health/live", "/api/config", "/openapi.json", "/metrics"):
                assert (await api.get(path)).status == 200, path
            assert "daybook_database_up 0" in (await api.get("/metrics")).body.decode()
            again = EmbeddedPostgres(directory)
            await asyncio.to_thread(again.start)
            try:
                await assert_all_well_soon(api)
                # No request answered with 503 was executed.
                listed = await api.get("/api/orders")
                assert len(listed.json["orders"]) == 2
            finally:
                await asyncio.to_thread(again.stop)


async def test_a_read_only_database_still_serves_reads(own_database: str) -> None:
    async with submitter(own_database) as api:
        set_for_all(own_database, "default_transaction_read_only = on")
        await assert_unavailable(api.post("/api/orders", ORDER))
        await assert_unavailable(api.post(f"{WAITLIST}/tickets", party()))
        await assert_read_soon(api, "/api/orders")
        await assert_read_soon(api, f"{WAITLIST}/board")
        await assert_unavailable(api.get("/health/ready"))
        set_for_all(own_database, "default_transaction_read_only = off")
        await assert_all_well_soon(api)


def set_for_all(conninfo: str, setting: str) -> None:
    """For all sessions of this database; open ones are terminated, as in a failover."""
    name = psycopg.conninfo.conninfo_to_dict(conninfo)["dbname"]
    with psycopg.connect(make_conninfo(conninfo, dbname="postgres"), autocommit=True) as admin:
        admin.execute(f'ALTER DATABASE "{name}" SET {setting}')
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name]
        )


async def test_a_full_disk_is_named_and_reading_goes_on(own_database: str) -> None:
    async with submitter(own_database) as api:
        with psycopg.connect(own_database, autocommit=True) as owner:
            owner.execute(DISK_FULL)
        await assert_unavailable(api.post("/api/orders", ORDER), "storage-full")
        ready = await api.get("/health/ready")
        assert (ready.status, "disk is full" in ready.json["detail"]) == (503, True)
        assert len((await api.get("/api/orders")).json["orders"]) == 1
        with psycopg.connect(own_database, autocommit=True) as owner:
            owner.execute(ROOM_AGAIN)
        # Readiness recovers before the next write: a load balancer sends no request until then.
        assert (await api.get("/health/ready")).status == 200
        assert rows(own_database, "SELECT count(*) FROM log WHERE topic = 'probe'") == [(0,)]
        await assert_all_well_soon(api)
    assert orders_count(own_database) == 2


async def test_a_slow_database_times_out(own_database: str) -> None:
    async with submitter(own_database) as api:
        with psycopg.connect(own_database) as holder:
            holder.execute("LOCK TABLE daybook.stored_events IN EXCLUSIVE MODE")
            # There may be too little time left to learn that it was not committed.
            kind = await assert_unavailable(
                api.post("/api/orders", ORDER, idempotency_key="slow"),
                "unavailable",
                "outcome-unknown",
            )
            assert len((await api.get("/api/orders")).json["orders"]) == 1
        if kind == "unavailable":
            assert orders_count(own_database) == 1
        await assert_all_well_soon(api, idempotency_key="slow")
    # A retry with its key has one effect, whether or not the first attempt was committed.
    assert orders_count(own_database) == 2


def orders_count(conninfo: str) -> int:
    ((count,),) = rows(conninfo, "SELECT count(*) FROM log WHERE topic = 'order.created'")
    return int(count)
