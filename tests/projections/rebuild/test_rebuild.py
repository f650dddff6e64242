"""Rebuilds: every projection equals the log, can be compared with it and rebuilt from it."""

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from uuid_utils.compat import uuid7

from daybook.eventlog.postgres.connections import connect, owner_conninfo, reader_conninfo
from daybook.eventlog.reading.follower import Follower
from daybook.projections.jobs.heartbeats import LeaseExtension, extend_leases
from daybook.projections.rebuild import rebuild as rebuild_module
from daybook.projections.rebuild import replay
from daybook.projections.rebuild.errors import RebuildError
from daybook.projections.rebuild.rebuild import rebuilding
from daybook.projections.rebuild.targets import MAPPER, TARGETS
from daybook.projections.registry import READ_MODELS
from daybook.projections.snapshot import begin_snapshot
from tests.support.committer import fold_of_the_log, live_rows, open_submitter, rows
from tests.support.jobs import open_workshop
from tests.support.rebuilds import (
    ALL,
    Evening,
    Interrupting,
    Unwatched,
    chosen,
    follow,
    found,
    make_anew,
    roll_back,
    verify,
    wrong,
)

pytestmark = pytest.mark.anyio

READ_MODEL_NAMES = [model.name for model in READ_MODELS]

# All visible properties of tables, except the physical order of rows.
DESCRIBE_TABLES = """
SELECT relname, reloptions::text, pg_get_userbyid(relowner), relacl::text,
       (SELECT array_agg((attname, format_type(atttypid, atttypmod), attnotnull, attgenerated::text,
                          attstorage::text, pg_get_expr(adbin, adrelid))::text ORDER BY attnum)
        FROM pg_attribute LEFT JOIN pg_attrdef ON (adrelid, adnum) = (attrelid, attnum)
        WHERE attrelid = pg_class.oid AND attnum > 0),
       (SELECT array_agg(indexdef ORDER BY indexdef) FROM pg_indexes
        WHERE schemaname = 'daybook' AND tablename = relname),
       (SELECT array_agg(conname || ' ' || pg_get_constraintdef(oid) ORDER BY conname)
        FROM pg_constraint WHERE conrelid = pg_class.oid)
FROM pg_class
WHERE relnamespace = 'daybook'::regnamespace AND relkind = 'r'
ORDER BY relname
"""
FIND_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'daybook'"
FIND_COPIES = """
SELECT schemaname, tablename FROM pg_tables WHERE schemaname IN ('daybook_shadow', 'daybook_before')
"""

# Tables that are no projections, and why they cannot be rebuilt.
NO_PROJECTIONS = {
    "stored_events": "the log itself",
    "migrations": "what the schema is",
    "followers": "where read models are; exchanged together with them",
    "rebuilds": "where rebuilds are",
    "idempotency_keys": "what was answered",
    "spent_keys": "what was answered once",
    "imports": "how far an import is",
    "log_epochs": "on which servers and timelines the log has been",
    "queue_paces": "losing it costs one burst",
    "lanes": "only ever locked",
    "upstream_checks": "what polls found is no event",
    "checkpoints": "copies of live tables",
    "checkpoint_rows": "copies of live tables",
    "guest_keys": "what was destroyed must not come back",
    "guest_service_key": "which key the service was started with",
    "admissions": "who was refused left no event",
    "quarantined_rows": "rows that no table can hold again",
    "quarantine_scans": "how far the log was searched for what cannot be read",
}


async def test_every_table_is_a_projection_or_listed_as_an_exception(own_database: str) -> None:
    projected = {table for target in TARGETS for table in target.tables}
    assert {name for (name,) in rows(own_database, FIND_TABLES)} == projected | set(NO_PROJECTIONS)


# SX-02
@pytest.mark.parametrize("chunk", [pytest.param(1, marks=pytest.mark.slow), 7, 50, 20_000])
async def test_every_projection_equals_the_log_with_any_chunk_size(
    evening: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "CHUNK", chunk)
    comparisons = await verify(evening)
    assert wrong(comparisons) == []
    assert list(comparisons) == ALL
    assert all(comparisons[name].rows_count for name in ("orders", "jobs", "finished_orders"))
    assert rows(evening, FIND_COPIES) == []


async def test_a_rebuilt_table_has_the_rows_indexes_and_grants_of_the_old_one(
    evening: str,
) -> None:
    before = rows(evening, DESCRIBE_TABLES), live_rows(evening)
    rebuilt = await make_anew(evening)
    assert list(rebuilt) == ALL
    assert (rows(evening, DESCRIBE_TABLES), live_rows(evening)) == before
    assert live_rows(evening) == fold_of_the_log(evening)
    assert wrong(await verify(evening)) == []


TAMPERING: dict[str, tuple[str, Callable[[Any], str]]] = {
    "UPDATE orders SET status = 'DEAD' WHERE id = %(id)s": (
        "orders",
        lambda one: f"orders, id {one}: status is 'DEAD', should be 'PENDING'",
    ),
    "DELETE FROM orders WHERE id = %(id)s": (
        "orders",
        lambda one: f"orders, id {one}: is missing",
    ),
    "UPDATE orders SET id = '00000000-0000-0000-0000-000000000000' WHERE id = %(id)s": (
        "orders",
        lambda _: "orders, id 00000000-0000-0000-0000-000000000000: should not be there",
    ),
    "INSERT INTO job_types SELECT 'email', id::text FROM orders WHERE id = %(id)s": (
        "jobs",
        lambda one: f"job_types, queue email, type {one}: should not be there",
    ),
    "UPDATE finished_orders SET user_id = 'nobody' WHERE number = 1 AND %(id)s IS NOT NULL": (
        "finished_orders",
        lambda _: "finished_orders, number 1: user_id is 'nobody', should be None",
    ),
    "UPDATE followers SET count = 7 WHERE name = 'finished_orders' AND %(id)s IS NOT NULL": (
        "finished_orders",
        lambda _: "followers, name finished_orders: count is 7, should be 1",
    ),
}


@pytest.mark.parametrize("tampering", TAMPERING)
async def test_a_manual_change_is_found_and_repaired(own_database: str, tampering: str) -> None:
    async with open_submitter(own_database) as submitter:
        await submitter.order()
        cooked = await submitter.claim(await submitter.bot())
        assert cooked is not None
        await submitter.complete(cooked)
        order = await submitter.order()
    await follow(own_database)
    rows(own_database, tampering, {"id": order.id})
    name, difference = TAMPERING[tampering]

    assert difference(order.id) in wrong(await verify(own_database, name))
    assert difference(order.id) in wrong(found(await make_anew(own_database, name)))
    assert wrong(await verify(own_database)) == []


async def test_only_the_first_of_many_wrong_rows_are_named_and_all_are_counted(
    own_database: str,
) -> None:
    async with open_workshop(own_database) as workshop:
        await workshop.jobs(200)
    rows(own_database, "UPDATE jobs SET priority = 9")

    jobs = (await verify(own_database, "jobs"))["jobs"]

    assert (len(jobs.differences), jobs.differences_count, jobs.rows_count) == (20, 200, 201)


async def test_a_heartbeat_is_no_difference_and_its_lease_outlives_a_rebuild(
    own_database: str,
) -> None:
    async with open_workshop(own_database) as workshop:
        await workshop.jobs(2)
        beating, still = await workshop.claim(2, lease_seconds=30)
        assert beating.claim is not None
        assert still.claim is not None
        async with await connect(owner_conninfo(own_database)) as connection:
            extension = LeaseExtension(beating.id, beating.claim.id, lease_seconds=1000)
            ((extended),) = await extend_leases(connection, [extension])
        await make_anew(own_database)
        leases = dict(rows(own_database, "SELECT id, lease_until FROM jobs"))
        assert leases == {beating.id: extended.until, still.id: still.claim.until}
        await workshop.finish(beating)
    assert wrong(await verify(own_database)) == []


@pytest.mark.slow
async def test_writers_continue_during_a_rebuild_without_errors(own_database: str) -> None:
    async with open_submitter(own_database, writers=2) as submitter:
        over = asyncio.Event()

        async def guest(seed: int) -> None:
            evening = Evening(submitter, seed)
            while not over.is_set():
                await evening.go_on(1)

        guests = [asyncio.create_task(guest(seed)) for seed in range(8)]
        for _ in range(2):
            assert wrong(found(await make_anew(own_database))) == []
        over.set()
        await asyncio.gather(*guests)
    assert wrong(await verify(own_database)) == []
    assert live_rows(own_database) == fold_of_the_log(own_database)


async def test_a_follower_continues_at_its_cursor_after_a_switch(
    evening: str,
) -> None:
    models = [Follower(evening, model, MAPPER) for model in READ_MODELS]
    for one in models:
        await one.catch_up()
    await make_anew(evening, *READ_MODEL_NAMES)
    async with open_submitter(evening) as submitter:
        await Evening(submitter).go_on(40)
    for one in models:
        await one.catch_up()
        cursor = await one.cursor()
        assert cursor == await one.recompute(cursor.position)
        await one.close()
    assert wrong(await verify(evening)) == []


async def test_a_lagging_read_model_is_compared_at_its_cursor(evening: str) -> None:
    async with open_submitter(evening) as submitter:
        await Evening(submitter).go_on(40)
    assert wrong(await verify(evening, *READ_MODEL_NAMES)) == []
    await make_anew(evening, *READ_MODEL_NAMES)
    await follow(evening)
    assert wrong(await verify(evening, *READ_MODEL_NAMES)) == []


async def test_an_interrupted_rebuild_changes_nothing_and_the_next_resumes_it(
    evening: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "CHUNK", 10)
    before = live_rows(evening)
    first, second = Interrupting(50), Interrupting(100_000)
    with pytest.raises(KeyboardInterrupt):
        async with rebuilding(evening, first) as rebuild:
            await rebuild.rebuild(TARGETS)
    assert live_rows(evening) == before

    async with rebuilding(evening, second) as rebuild:
        await rebuild.rebuild(TARGETS)
    assert (first.seen[0], second.seen[0]) == (0, first.seen[-1])
    assert live_rows(evening) == before
    assert wrong(await verify(evening)) == []


async def test_a_shadow_table_from_before_a_migration_is_rebuilt_from_the_start(
    evening: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "CHUNK", 10)
    with pytest.raises(KeyboardInterrupt):
        async with rebuilding(evening, Interrupting(50)) as rebuild:
            await rebuild.rebuild(chosen("orders"))
    rows(evening, "ALTER TABLE orders ADD note text")
    await make_anew(evening, "orders")
    assert rows(evening, "SELECT count(note) FROM orders") == [(0,)]
    assert wrong(await verify(evening)) == []


async def test_a_rollback_restores_the_old_tables_with_later_events(
    evening: str,
) -> None:
    async with open_submitter(evening) as submitter:
        bot = await submitter.bot()
        rows(evening, "UPDATE bots SET auto_claim = true WHERE id = %(id)s", {"id": bot.id})
        await make_anew(evening)
        await Evening(submitter).go_on(40)
        await follow(evening)

        assert await roll_back(evening) == ALL
        # The manual change is back; every other row equals the log.
        difference = f"bots, id {bot.id}: auto_claim is True, should be False"
        assert wrong(await verify(evening)) == [difference]
        await Evening(submitter).go_on(20)
    await roll_back(evening, "bots")
    assert wrong(await verify(evening)) == []


async def test_a_rollback_without_a_rebuild_or_past_a_migration_is_refused(
    own_database: str,
) -> None:
    with pytest.raises(RebuildError, match="to roll back to"):
        await roll_back(own_database)
    await make_anew(own_database)
    rows(own_database, "ALTER TABLE bots ADD note text")
    with pytest.raises(RebuildError, match="previous tables of bots are from before a migration"):
        await roll_back(own_database)


@pytest.mark.parametrize(
    "dependent",
    [
        "CREATE VIEW busy AS SELECT * FROM bots",
        "CREATE TABLE notes (bot uuid REFERENCES bots)",
        "CREATE FUNCTION f(bots) RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "CREATE TRIGGER t BEFORE UPDATE ON bots EXECUTE FUNCTION refuse_to_rewrite_history()",
    ],
)
async def test_a_table_with_dependents_is_compared_but_not_switched(
    own_database: str, dependent: str
) -> None:
    rows(own_database, dependent)
    with pytest.raises(RebuildError, match="other objects depend on it"):
        await make_anew(own_database)
    assert wrong(await verify(own_database)) == []
    assert rows(own_database, FIND_COPIES) == []


async def test_a_locked_table_is_not_switched_and_other_sessions_do_not_wait(
    own_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebuild_module, "SWITCH_SECONDS_MAX", 0.5)
    async with open_submitter(own_database) as submitter:
        with psycopg.connect(owner_conninfo(own_database)) as holder:
            process = holder.info.backend_pid
            holder.execute("SELECT * FROM bots")
            trying = asyncio.create_task(make_anew(own_database, "bots"))
            while not trying.done():
                async with asyncio.timeout(1):
                    await submitter.bot()
        with pytest.raises(RebuildError, match=rf"stayed locked for 0 s \(process {process} "):
            await trying
    assert wrong(await verify(own_database)) == []


async def test_a_switch_waits_for_open_snapshots(own_database: str) -> None:
    """A table switched after the snapshot was taken would be empty in it."""
    async with open_submitter(own_database) as submitter:
        await submitter.order()
    async with (
        await connect(reader_conninfo(own_database)) as reader,
        reader.transaction(),
    ):
        await begin_snapshot(reader)
        await reader.execute("SELECT FROM followers")
        trying = asyncio.create_task(make_anew(own_database, "orders"))
        await asyncio.sleep(0.3)
        ((count,),) = await (await reader.execute("SELECT count(*) FROM orders")).fetchall()
        assert (count, trying.done()) == (1, False)
    await trying


async def test_only_one_rebuild_runs_at_a_time(
    own_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebuild_module, "ACQUIRE_SECONDS_MAX", 0.2)
    async with rebuilding(own_database, Unwatched()):
        with pytest.raises(RebuildError, match="Another rebuild is running"):
            await verify(own_database)


APPEND = """
INSERT INTO stored_events (originator_id, originator_version, topic, state, command_id,
                           correlation_id, actor)
SELECT %(id)s, %(version)s, %(topic)s, %(state)s, %(id)s, %(id)s, 'hand'
"""


async def test_an_unfoldable_aggregate_is_left_out_and_its_event_reported(
    own_database: str,
) -> None:
    async with open_submitter(own_database) as submitter:
        order = await submitter.order()
    state = b'{"at":"2026-01-01T00:00:00Z"}'
    event = {"id": order.id, "version": 3, "topic": "order.deleted", "state": state}
    rows(own_database, APPEND, event)
    compared = (await verify(own_database))["orders"]
    (named,) = compared.left_out
    assert f"order {order.id}: the event at position 2 (order.deleted, version 3)" in named
    assert compared.differences_count == 1


async def test_an_unknown_topic_is_reported(own_database: str) -> None:
    event = {"id": uuid7(), "version": 1, "topic": "order.painted", "state": b"{}"}
    rows(own_database, APPEND, event)
    named = [one for table in (await verify(own_database)).values() for one in table.left_out]
    assert named == [f"{event['id']}: position 1 has the unknown topic order.painted"]


async def test_a_user_without_ownership_gets_a_clear_error(own_database: str) -> None:
    role = f"clerk_{uuid7().hex}"
    rows(own_database, f"CREATE ROLE {role} LOGIN; GRANT daybook_service TO {role}")
    try:
        with pytest.raises(RebuildError, match="may not switch tables"):
            await verify(make_conninfo(own_database, user=role))
    finally:
        rows(own_database, f"DROP ROLE {role}")
