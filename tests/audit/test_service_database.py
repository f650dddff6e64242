"""Audit of a database: tables equal the fold of the log, followers skip nothing."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

import anyio
import psycopg
import pytest
from psycopg.rows import TupleRow

from daybook.audit.entries import UnreadableError
from daybook.audit.invariant import Case, Verdict
from daybook.audit.replayed_state import ReplayedState
from daybook.audit.runner import check
from daybook.audit.service_database import Derivation, DerivedTables, ServiceDatabase
from daybook.cli.audit import derive_anew
from daybook.eventlog.postgres.connections import connect, owner_conninfo, reader_conninfo
from daybook.eventlog.reading.follower import Follower
from daybook.projections.jobs.heartbeats import LeaseExtension, extend_leases
from daybook.projections.registry import LIVE_TABLES, READ_MODELS, WRITTEN_MODELS
from daybook.projections.time_travel.checkpoints import take_checkpoints
from tests.support.committer import MAPPER, Submitter, open_submitter
from tests.support.databases.json_checkpoints import copy_as_json
from tests.support.jobs import Workshop

IDS = ("I-33", "I-34", "I-36", "I-38", "I-39")

# Statements of a superuser who tampers with the database.
UNWATCHED = "SET session_replication_role = replica"
# All but the last event were recorded long before it.
STRETCH_TIME = """
UPDATE stored_events SET recorded_at = recorded_at - interval '1 hour'
WHERE notification_id < (SELECT max(notification_id) FROM stored_events);
"""
LET_LEASES_RUN_OUT = "UPDATE jobs SET lease_until = now() - interval '1 hour';"

CHANGES = {
    "I-33": [
        "UPDATE orders SET attempts = attempts + 1",
        "DELETE FROM orders WHERE status = 'PENDING'",
        "DELETE FROM bots",
        "UPDATE bots SET id = gen_random_uuid()",
        "UPDATE jobs SET lease_until = lease_until - interval '1 minute'",
        "UPDATE jobs SET payload = 'false'",
        "UPDATE finished_orders SET attempts = 9",
        "DELETE FROM finished_jobs",
    ],
    "I-34": [
        "UPDATE followers SET count = count + 1",
        "UPDATE followers SET digest = sha256(digest)",
        "UPDATE followers SET position = 0",
        "DELETE FROM stored_events WHERE topic = 'order.completed'",
    ],
    "I-38": [
        LET_LEASES_RUN_OUT,
        "UPDATE jobs SET lease_until = now() - interval '4 minutes'",
        LET_LEASES_RUN_OUT + STRETCH_TIME,
    ],
    "I-39": [
        STRETCH_TIME + "UPDATE followers SET position = 0",
        STRETCH_TIME + "UPDATE followers SET position = position - 3",
        STRETCH_TIME + "UPDATE followers SET position = 5 WHERE name = 'finished_orders'",
    ],
}


@contextmanager
def opened(conninfo: str, **changes: Any) -> Iterator[ServiceDatabase]:
    reader = reader_conninfo(conninfo)
    usual = {
        "tables": LIVE_TABLES,
        "written_models": WRITTEN_MODELS,
        "read_models": READ_MODELS,
        "derive": partial(derive_anew, reader),
    }
    with closing(ServiceDatabase(reader, DerivedTables(**{**usual, **changes}))) as service:
        yield service


def judged(service: ServiceDatabase, **evidence: Any) -> dict[str, Verdict]:
    findings = check(service, Case(replay=ReplayedState(), service=service, **evidence), only=IDS)
    return {one.id: one.verdict for one in findings}


def verdicts(conninfo: str, **changes: Any) -> dict[str, Verdict]:
    with opened(conninfo, **changes) as service:
        return judged(service)


def rewrite(conninfo: str, statements: str) -> None:
    with psycopg.connect(owner_conninfo(conninfo), autocommit=True) as connection:
        connection.execute(UNWATCHED)
        connection.execute(statements.encode())


@asynccontextmanager
async def a_shift(conninfo: str) -> AsyncIterator[Submitter]:
    """Orders and jobs in every status."""
    async with open_submitter(conninfo) as submitter:
        cook, helper = await submitter.bot(), await submitter.bot()
        for _ in range(4):
            await submitter.order()
        for _ in range(2):
            claimed = await submitter.claim(cook)
            assert claimed is not None
            await submitter.complete(claimed)
        await submitter.claim(helper)
        workshop = Workshop(submitter)
        await workshop.jobs(3)
        done, _claimed = await workshop.claim(2)
        await workshop.finish(done)
        yield submitter


async def follow(conninfo: str) -> None:
    for model in READ_MODELS:
        follower = Follower(conninfo, model, MAPPER)
        await follower.catch_up()
        await follower.close()


def work(conninfo: str, orders: int = 0) -> None:
    async def happen() -> None:
        async with a_shift(conninfo) as submitter:
            await follow(conninfo)
            for _ in range(orders):
                await submitter.order()

    anyio.run(happen)


def copy_tables(conninfo: str) -> None:
    async def happen() -> None:
        async with await connect(reader_conninfo(conninfo)) as connection:
            ((head,),) = await (
                await connection.execute("SELECT max(position) FROM log")
            ).fetchall()
            await take_checkpoints(connection, head)

    anyio.run(happen)


@pytest.mark.parametrize(
    ("copying", "statements"),
    [
        (copy_tables, "UPDATE daybook_past.orders SET attempts = 7"),
        (copy_tables, "DELETE FROM daybook_past.bots"),
        (
            copy_tables,
            "UPDATE daybook_past.jobs SET as_of = 3;"
            "UPDATE daybook_past.checkpoints SET position = 3 WHERE kind = 'jobs'",
        ),
        (
            copy_as_json,
            "UPDATE checkpoint_rows SET data = data || '{\"attempts\": 7}' WHERE kind = 'orders'",
        ),
        (copy_as_json, "DELETE FROM checkpoint_rows WHERE kind = 'bots'"),
        (
            copy_as_json,
            "UPDATE checkpoint_rows SET position = 3 WHERE kind = 'jobs';"
            "UPDATE checkpoints SET position = 3 WHERE kind = 'jobs'",
        ),
    ],
)
def test_a_table_is_checked_at_every_position_of_a_copy(
    database: str, copying: Callable[[str], None], statements: str
) -> None:
    work(database)
    copying(database)
    work(database)
    assert verdicts(database)["I-33"] is Verdict.VALID
    rewrite(database, statements)
    assert verdicts(database)["I-33"] is Verdict.INVALID


def test_a_correct_database_is_valid(database: str) -> None:
    work(database)

    assert verdicts(database) == dict.fromkeys(IDS, Verdict.VALID)


def test_an_empty_database_has_no_violation(database: str) -> None:
    assert Verdict.INVALID not in verdicts(database).values()


def test_a_follower_that_lags_briefly_is_valid(database: str) -> None:
    work(database, orders=3)

    assert verdicts(database) == dict.fromkeys(IDS, Verdict.VALID)


@pytest.mark.parametrize(
    ("broken", "statements"), [(broken, one) for broken, many in CHANGES.items() for one in many]
)
def test_a_manual_change_is_found(database: str, broken: str, statements: str) -> None:
    work(database)
    rewrite(database, statements)

    assert verdicts(database)[broken] is Verdict.INVALID


@pytest.mark.parametrize("wrong", ["by batch", "by name", "by chance"])
def test_a_read_model_that_differs_from_its_rebuild_is_found(database: str, wrong: str) -> None:
    work(database)
    calls = iter(range(100))

    def derive(wanted: Derivation) -> TupleRow:
        choices = {"by batch": wanted.batch, "by name": (wanted.name, wanted.batch)}
        return (choices.get(wrong, next(calls)),)

    found = verdicts(database, derive=derive)
    assert (found["I-33"], found["I-36"]) == (Verdict.INVALID, Verdict.INVALID)


def test_a_lease_extended_by_a_heartbeat_is_valid(database: str) -> None:
    async def happen() -> None:
        async with open_submitter(database) as submitter:
            await Workshop(submitter).job()
            (claimed,) = await Workshop(submitter).claim()
        assert claimed.claim is not None
        async with await connect(reader_conninfo(database)) as connection:
            extension = LeaseExtension(claimed.id, claimed.claim.id, lease_seconds=5000)
            assert await extend_leases(connection, [extension])

    anyio.run(happen)

    assert verdicts(database)["I-33"] is Verdict.VALID


def test_time_limits_count_from_the_end_of_a_fault(database: str) -> None:
    work(database)
    rewrite(database, CHANGES["I-39"][0] + ";" + LET_LEASES_RUN_OUT)

    with opened(database) as service:
        found = judged(service, calm_since=datetime.now(UTC))

    assert (found["I-38"], found["I-39"]) == (Verdict.VALID, Verdict.VALID)


def test_an_audit_reads_one_snapshot(database: str) -> None:
    work(database)
    with opened(database) as service:
        rewrite(database, "UPDATE orders SET attempts = 7; UPDATE followers SET count = 0")
        found = judged(service)

    assert set(found.values()) == {Verdict.VALID}


def test_an_unreachable_database_is_not_checked() -> None:
    with pytest.raises(UnreadableError, match="cannot be read"), opened("host=/nowhere"):
        pass
