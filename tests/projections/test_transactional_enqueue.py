"""A job enqueued in the caller's transaction commits or rolls back with it."""

import asyncio
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import AsyncConnection
from uuid_utils.compat import uuid7

import daybook
from daybook.domain.jobs.work import Outcome
from daybook.eventlog.origin import Origin
from daybook.eventlog.postgres.connections import owner_conninfo
from daybook.projections.transactional_enqueue import enqueue, enqueue_async
from tests.support.committer import fold_of_the_log, live_rows, rows
from tests.support.jobs import new_job, open_workshop, raw

pytestmark = pytest.mark.anyio

BOOK = "CREATE TABLE public.bookings (id int PRIMARY KEY)"


def origin() -> Origin:
    return Origin(command_id=uuid7(), actor="booking")


def test_a_booking_and_its_jobs_commit_together(own_database: str) -> None:
    # S4-11, D-65
    rows(own_database, BOOK)
    with psycopg.connect(own_database) as connection:
        connection.execute("INSERT INTO bookings VALUES (1)")
        jobs = [new_job(type_=t, subject="1", payload=raw("{}")) for t in ("a", "b", "c")]
        assert all(one.is_new for one in enqueue(connection, jobs, origin()))
        # The caller's search_path is restored.
        connection.execute("INSERT INTO bookings VALUES (2)")
    assert rows(own_database, "SELECT count(*) FROM jobs") == [(3,)]
    assert live_rows(own_database) == fold_of_the_log(own_database)


def test_a_booking_that_is_rolled_back_leaves_no_job(database: str) -> None:
    with psycopg.connect(database) as connection:
        enqueue(connection, [new_job()], origin())
        connection.rollback()
    assert rows(database, "SELECT count(*) FROM jobs") == [(0,)]
    assert rows(database, "SELECT count(*) FROM log") == [(0,)]


async def test_it_works_on_an_async_connection_and_the_job_runs(database: str) -> None:
    async with await AsyncConnection.connect(database) as connection:
        await enqueue_async(connection, [new_job(payload=raw('{"n":1}'))], origin())
    async with open_workshop(database) as workshop:
        ((job),) = await workshop.claim()
        assert bytes(job.payload) == b'{"n":1}'


async def test_concurrent_enqueues_of_a_unique_key_create_one_job(database: str) -> None:
    def book(_: Any) -> bool:
        with psycopg.connect(database) as connection:
            ((one),) = enqueue(connection, [new_job(unique_key="k")], origin())
            return one.is_new

    async with open_workshop(database) as workshop:

        async def ask() -> bool:
            ((one),) = await workshop.enqueue(new_job(unique_key="k"))
            return one.is_new

        threads = [asyncio.to_thread(book, n) for n in range(8)]
        made = await asyncio.gather(*threads, *(ask() for _ in range(8)))
    assert sum(made) == 1
    assert rows(database, "SELECT count(*) FROM jobs") == [(1,)]


def test_enqueue_works_with_any_row_factory(database: str) -> None:
    with psycopg.connect(owner_conninfo(database), row_factory=psycopg.rows.dict_row) as connection:
        ((one),) = enqueue(connection, [new_job()], origin())
        assert one.job.number == 1


def test_the_public_enqueue_returns_a_job_and_refuses_invalid_values(database: str) -> None:
    with psycopg.connect(database) as connection:
        first = daybook.enqueue(
            connection, queue="email", type="send", payload={"to": "a"}, unique_key="k"
        )
        second = daybook.enqueue(connection, queue="email", type="send", unique_key="k")
        assert first == second
        with pytest.raises(ValueError, match="priority"):
            daybook.enqueue(connection, queue="email", type="send", priority=11)
    query = "SELECT actor, data -> 'payload' FROM log"
    assert rows(database, query) == [("enqueue", {"to": "a"})]


async def test_a_dead_job_is_restarted_in_the_callers_transaction(database: str) -> None:
    # S4-05, D-62, I-22, I-26
    def again(**fields: Any) -> UUID:
        with psycopg.connect(database) as connection:
            return daybook.enqueue(
                connection, queue="email", type="send", unique_key="k", partition="lane", **fields
            )

    async with open_workshop(database) as workshop:
        job_id = again()
        ((job),) = await workshop.claim()
        await workshop.finish(job, Outcome.FAIL, error="broken")
        assert again() == job_id
        assert await workshop.claim() == []
        # Of four concurrent callers, one restarts it.
        asked = [asyncio.to_thread(again, on_dead="restart") for _ in range(4)]
        assert {*await asyncio.gather(*asked)} == {job_id}
        assert rows(database, "SELECT count(*) FROM log WHERE topic = 'job.requeued'") == [(1,)]
        ((second),) = await workshop.claim()
        assert (second.id, second.life, second.attempts) == (job_id, 2, 1)
    assert live_rows(database) == fold_of_the_log(database)


def test_enqueue_flushes_at_commit_with_synchronous_commit_off(database: str) -> None:
    """A job seen and then lost in a crash would leave its position to another event."""
    for usual, used in (("off", "on"), ("on", "on"), ("local", "local")):
        with psycopg.connect(database, options=f"-c synchronous_commit={usual}") as connection:
            daybook.enqueue(connection, queue="email", type="send")
            assert connection.execute("SHOW synchronous_commit").fetchone() == (used,)
            connection.commit()
            assert connection.execute("SHOW synchronous_commit").fetchone() == (usual,)
