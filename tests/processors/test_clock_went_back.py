"""A service that starts after the clock went back does not wait for times of older rows."""

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import chain, repeat
from time import monotonic
from typing import Any

import pytest
from uuid_utils.compat import uuid7

from daybook.api.runtime.service import Service
from daybook.domain.jobs.work import Outcome
from daybook.eventlog.postgres.connections import connect, reader_conninfo
from daybook.processors.clock_jumps import ClockJumps
from daybook.processors.database_clock import DatabaseClock
from daybook.processors.job_lease_expiry import JobLeaseExpiry
from daybook.processors.order_dispatch import OrderDispatch
from daybook.processors.processor import Runtime, Session
from daybook.projections.messages.operations import find_due
from tests.processors.upstreams.test_poller import polling, polls_count
from tests.support.committer import Submitter, eventually, open_submitter, rows
from tests.support.jobs import Workshop, open_workshop
from tests.support.running.feeds import serving_feed
from tests.support.running.service import auto_bot

pytestmark = pytest.mark.anyio

INSERT_OPERATION = """
INSERT INTO operations (id, version, number, kind, items, created_at, updated_at, run_at, failures,
                        status)
SELECT gen_random_uuid(), 2, 1, 'push', '[]', at, at, at, 1, 'pending'
FROM (SELECT clock_timestamp() + interval '1 day' AS at) AS tomorrow
"""


async def test_a_retry_is_moved_and_a_chosen_time_is_not(database: str) -> None:
    async with open_workshop(database) as workshop:
        await workshop.jobs(2)
        retried, snoozed = await workshop.claim(2)
        await workshop.finish(retried, Outcome.RETRY, error="not now", retry_delay_seconds=1)
        until = retried.created_at.replace(year=2100)
        await workshop.finish(snoozed, Outcome.SNOOZE, until=until)
    move = "interval '1 day'"
    rows(database, f"UPDATE jobs SET updated_at = updated_at + {move}, run_at = run_at + {move}")
    service = Service(database, read_models=(), processors=(ClockJumps(),))
    async with service as running:
        moved = "SELECT aggregate_id FROM log WHERE topic = 'job.rescheduled'"
        await eventually(lambda: rows(database, moved) == [(retried.id,)], 5)
        await asyncio.sleep(1.1)
        (again,) = await Workshop(Submitter(running.committer)).claim(2)
        assert again.id == retried.id
        assert rows(database, moved) == [(retried.id,)]


async def test_a_lease_of_the_future_ends_when_its_length_is_over(database: str) -> None:
    async with open_workshop(database) as workshop:
        await workshop.job()
        await workshop.claim(lease_seconds=1)
    move = "interval '1 day'"
    rows(
        database,
        f"UPDATE jobs SET started_at = started_at + {move}, lease_until = lease_until + {move}",
    )
    failed = "SELECT (data ->> 'lease_seconds')::float8 FROM log WHERE topic = 'job.failed'"
    async with Service(database, read_models=(), processors=(JobLeaseExpiry(),)):
        await eventually(lambda: rows(database, failed) == [(1.0,)], 5)


async def test_a_bot_of_the_future_takes_an_order(database: str) -> None:
    async with Service(database, read_models=(), processors=()) as running:
        bot = await auto_bot(Submitter(running.committer))
        await Submitter(running.committer).order()
    rows(database, "UPDATE bots SET updated_at = updated_at + interval '1 day'")
    async with Service(database, read_models=(), processors=(OrderDispatch(),)):
        taken = "SELECT bot_id FROM orders WHERE bot_id IS NOT NULL"
        await eventually(lambda: rows(database, taken) == [(bot.id,)], 3)


async def test_an_operation_of_the_future_has_rested_long_enough(database: str) -> None:
    rows(database, INSERT_OPERATION)
    async with Service(database, read_models=(), processors=()) as running:
        found = await running.read(
            lambda reader: find_due(reader, standby_delay_seconds=0, limit=10)
        )
    assert len(found) == 1


async def test_an_upstream_that_was_polled_in_the_future_is_polled_again(database: str) -> None:
    with serving_feed() as upstream:
        async with polling(database, upstream):
            await eventually(lambda: polls_count(database) > 0)
        before = polls_count(database)
        for column in ("updated_at", "polled_at"):
            rows(database, f"UPDATE upstream_cursors SET {column} = {column} + interval '1 day'")
        async with polling(database, upstream):
            await eventually(lambda: polls_count(database) > before, 5)


async def test_jumps_that_could_not_be_recorded_are_recorded_later(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = chain((False,), repeat(True))
    send = Runtime.send

    async def send_later(runtime: Runtime, orders: Any) -> bool:
        return next(taken) and await send(runtime, orders)

    monkeypatch.setattr(Runtime, "send", send_later)
    clock, processor = DatabaseClock(), ClockJumps()
    async with (
        open_submitter(database) as submitter,
        await connect(reader_conninfo(database)) as own,
    ):
        service = Service(database, processors=())
        runtime = Runtime(
            instance=uuid7(),
            conninfo=database,
            committer=submitter.committer,
            notifier=service.notifier,
        )
        # The clock was two hours ahead, then one, and is right again when the processor looks.
        now = datetime.now(UTC)
        for hours in (2, 1):
            clock.look(now + timedelta(hours=hours), began=monotonic())
        assert len(clock.unrecorded) == 1
        for _ in range(2):
            await processor.work(runtime, Session(own, 0, clock))
    jumped = "SELECT round((data ->> 'seconds')::float8 / 3600) FROM log WHERE topic = %(topic)s"
    assert rows(database, jumped, {"topic": "clock.jumped"}) == [(-1.0,), (-1.0,)]
    assert clock.unrecorded == []
