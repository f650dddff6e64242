"""Idempotency keys are stored for the configured days, then deleted."""

import asyncio
import json
from typing import Any

import pytest

from daybook.api.runtime.service import Service
from daybook.eventlog.postgres.connections import connect, reader_conninfo
from daybook.eventlog.writing.idempotency import DELETE_EXPIRED_KEYS, delete_expired_keys
from daybook.processors.processor import BATCH_MAX, RetentionRules
from daybook.processors.retention import Retention
from tests.support.asgi_client import api_of
from tests.support.committer import eventually, rows

pytestmark = pytest.mark.anyio

FILL_KEYS = """
INSERT INTO idempotency_keys (principal, key, created_at, fingerprint, command_id, status, body)
SELECT 'test', 'k' || number, clock_timestamp() - %(age)s::interval, '', gen_random_uuid(), 200, ''
FROM generate_series(1, %(count)s) AS number
"""
GROW_OLDER = "UPDATE idempotency_keys SET created_at = created_at - %(age)s::interval"


def keys_count(conninfo: str) -> int:
    ((count,),) = rows(conninfo, "SELECT count(*) FROM idempotency_keys")
    return int(count)


@pytest.mark.parametrize(
    ("age", "is_kept"), [("6 days 23:59", True), ("7 days", False), ("7 years", False)]
)
async def test_a_key_is_kept_for_as_many_days_as_are_set_and_no_longer(
    database: str, age: str, is_kept: bool
) -> None:
    async with Service(database, read_models=(), processors=()) as service:
        await api_of(service).post("/api/bots", idempotency_key="k1")
    rows(database, GROW_OLDER, {"age": age})
    rows(database, FILL_KEYS, {"age": "8 days", "count": 1})
    rules = RetentionRules(idempotency_keep_days=7)
    async with Service(database, retention_rules=rules, read_models=()) as service:
        await eventually(lambda: keys_count(database) == is_kept)
        again = await api_of(service).post("/api/bots", idempotency_key="k1")

    assert ("idempotent-replayed" in again.headers) == is_kept


async def test_a_key_that_is_forgotten_has_no_second_effect(database: str) -> None:
    # BAD_INPUT 58, I-05
    async with Service(database, read_models=(), processors=()) as service:
        api = api_of(service)
        order = (await api.post("/api/orders", {"type": "VIP"}, idempotency_key="k1")).json["order"]
        path = f"/api/orders/{order['id']}"
        await api.delete(path, idempotency_key="k2")
        await api.post(f"{path}/requeue", idempotency_key="refused")
        await api.post(f"{path}/restore")
        rows(database, GROW_OLDER, {"age": "31 days"})
        async with await connect(reader_conninfo(database)) as connection:
            assert await delete_expired_keys(connection, days=30, limit=100) == 3
        before = rows(database, "SELECT count(*) FROM log")

        again = await api.post("/api/orders", {"type": "VIP"}, idempotency_key="k1")
        other = await api.post("/api/orders", {"type": "NORMAL"}, idempotency_key="k1")
        deleted = await api.delete(path, idempotency_key="k2")
        for answer in (again, other, deleted):
            assert answer.problem == (409, "already-exists")
            assert order["id"] in answer.json["detail"]
        assert rows(database, "SELECT count(*) FROM log") == before
        # The key of a refused command may be used again.
        assert (await api.delete(path, idempotency_key="refused")).status == 200


async def test_more_than_one_batch_is_forgotten_and_nothing_that_is_young(database: str) -> None:
    rows(database, FILL_KEYS, {"age": "31 days", "count": 3 * BATCH_MAX + 1})
    rows(database, FILL_KEYS.replace("'k'", "'young'"), {"age": "29 days", "count": 10})
    async with Service(database, read_models=(), processors=[Retention()]):
        await eventually(lambda: keys_count(database) == 10)


async def test_with_nothing_to_forget_a_look_is_a_glance_at_an_index(own_database: str) -> None:
    """However many keys there are: it happens every second."""
    rows(own_database, FILL_KEYS, {"age": "29 days", "count": 20_000})
    rows(own_database, "VACUUM ANALYZE idempotency_keys")
    async with await connect(reader_conninfo(own_database)) as connection:
        explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {DELETE_EXPIRED_KEYS}"
        given = {"days": 30, "limit": BATCH_MAX}
        ((plan,),) = await (await connection.execute(explain.encode(), given)).fetchall()

    assert blocks_read(plan) < 10, json.dumps(plan)


def blocks_read(plan: Any) -> int:
    top = plan[0]["Plan"]
    return int(top["Shared Hit Blocks"] + top["Shared Read Blocks"])


async def test_two_at_once_forget_every_key_once(database: str) -> None:
    rows(database, FILL_KEYS, {"age": "31 days", "count": 2000})
    async with (
        await connect(reader_conninfo(database)) as one,
        await connect(reader_conninfo(database)) as other,
    ):
        forgotten = await asyncio.gather(
            *(
                delete_expired_keys(connection, days=30, limit=300)
                for connection in (one, other) * 10
            )
        )

    assert sum(forgotten) == 2000
    assert keys_count(database) == 0
