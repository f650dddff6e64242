"""The database's clock jumps under a running service: leases and timers keep their length, nothing
waits for a day, and the log records the jump. I-44
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from shutil import rmtree

import pytest

from daybook.api.runtime.service import Service
from daybook.domain.jobs.manage import ConfigureQueue
from daybook.domain.jobs.queue import Rate
from daybook.domain.jobs.work import Outcome
from daybook.domain.orders.claim import CompletionMode
from daybook.eventlog.postgres.migrate import migrate
from daybook.processors.clock_jumps import ClockJumps
from daybook.processors.job_lease_expiry import JobLeaseExpiry
from daybook.processors.order_dispatch import OrderDispatch
from daybook.processors.order_recovery import OrderClaimRecovery
from daybook.processors.order_timers import OrderTimers
from daybook.processors.processor import OrderRules
from daybook.projections.jobs.heartbeats import LeaseExtension, extend_leases
from daybook.projections.registry import MIGRATIONS
from tests.conftest import empty, fresh_database, reachable_directory
from tests.support.committer import Submitter, eventually, fold_of_the_log, live_rows, rows
from tests.support.databases.faketime import FakeClock, needs_faketime, server_with_fake_clock
from tests.support.jobs import Workshop
from tests.support.running.service import auto_bot, claimed, completed

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.alone, needs_faketime]

READ_JUMPS = """
SELECT (data ->> 'seconds')::float8 FROM log WHERE topic = 'clock.jumped' ORDER BY position
"""
HOUR, DAY = 3600.0, 86400.0
JUMPS = [pytest.param(HOUR, id="+1h"), pytest.param(-HOUR, id="-1h"), pytest.param(DAY, id="+1d")]


@pytest.fixture(scope="module")
def faked() -> Iterator[tuple[str, FakeClock]]:
    """A migrated database on a server whose clock can be moved, and the clock."""
    directory = reachable_directory()
    with (
        server_with_fake_clock(directory) as (conninfo, clock),
        fresh_database(conninfo, "template0") as database,
    ):
        migrate(database, MIGRATIONS)
        yield database, clock
    rmtree(directory)


@pytest.fixture
def clock(faked: tuple[str, FakeClock]) -> FakeClock:
    return faked[1]


@pytest.fixture
def database(faked: tuple[str, FakeClock]) -> Iterator[str]:
    database, clock = faked
    yield database
    clock.set(0)
    empty(database)


@pytest.fixture
async def service(database: str) -> AsyncIterator[Service]:
    processors = (
        ClockJumps(),
        JobLeaseExpiry(),
        OrderTimers(),
        OrderClaimRecovery(),
        OrderDispatch(),
    )
    rules = OrderRules(delay_seconds=1)
    async with Service(
        database, order_rules=rules, read_models=(), processors=processors
    ) as running:
        # The leader has looked at the clock before it jumps.
        await asyncio.sleep(1.2)
        yield running


def failures(database: str) -> int:
    ((count,),) = rows(database, "SELECT count(*) FROM log WHERE topic = 'job.failed'")
    assert isinstance(count, int)
    return count


def jumps(database: str) -> list[float]:
    return [row[0] for row in rows(database, READ_JUMPS)]


@pytest.mark.parametrize("seconds", JUMPS)
async def test_a_jump_ends_no_lease_that_lasts(
    service: Service, database: str, clock: FakeClock, seconds: float
) -> None:
    workshop = Workshop(Submitter(service.committer))
    await workshop.jobs(20)
    claimed_job = await workshop.claim(20, lease_seconds=4)
    clock.set(seconds)
    await asyncio.sleep(2.5)
    assert failures(database) == 0
    extensions = [LeaseExtension(job.id, job.claim.id, 4) for job in claimed_job if job.claim]
    assert len(await service.read(lambda reader: extend_leases(reader, extensions))) == 20
    await asyncio.sleep(2.5)
    assert failures(database) == 0
    for job in claimed_job:
        await workshop.finish(job)
    (noticed,) = jumps(database)
    assert noticed == pytest.approx(seconds, abs=1)
    assert live_rows(database) == fold_of_the_log(database)


@pytest.mark.parametrize("seconds", JUMPS)
async def test_a_lost_worker_is_noticed_in_time_although_the_clock_jumped(
    service: Service, database: str, clock: FakeClock, seconds: float
) -> None:
    workshop = Workshop(Submitter(service.committer))
    await workshop.job()
    await workshop.claim(lease_seconds=3)
    clock.set(seconds)
    await asyncio.sleep(2)
    assert failures(database) == 0
    # Two leases and a sweep of one second: F-19.
    await eventually(lambda: failures(database) == 1, 5)


async def test_three_jumps_make_no_dead_letter_of_a_healthy_job(
    service: Service, database: str, clock: FakeClock
) -> None:
    workshop = Workshop(Submitter(service.committer))
    await workshop.job(attempts_max=3)
    (job,) = await workshop.claim(lease_seconds=4)
    assert job.claim is not None
    extension = LeaseExtension(job.id, job.claim.id, 4)
    for count in (1, 2, 3):
        clock.set(count * HOUR)
        await asyncio.sleep(1.5)
        assert await service.read(lambda reader: extend_leases(reader, [extension]))
    assert (await workshop.finish(job)).attempts == 1
    assert len(jumps(database)) == 3


@pytest.mark.parametrize("mode", list(CompletionMode))
async def test_claims_of_orders_last_as_long_as_they_would_have(
    service: Service, database: str, clock: FakeClock, mode: CompletionMode
) -> None:
    submitter = Submitter(service.committer)
    ended = "order.completed" if mode is CompletionMode.TIMER else "order.released"
    query = f"SELECT aggregate_id FROM log WHERE topic = '{ended}'"
    for seconds in (DAY, 0):
        before = len(rows(database, query))
        await claimed(submitter, 3, mode)
        clock.set(seconds)
        await asyncio.sleep(2)
        assert len(rows(database, query)) == before
        await eventually(lambda n=before: len(rows(database, query)) == n + 1, 4)


async def test_orders_go_on_after_a_day_and_back(
    service: Service, database: str, clock: FakeClock
) -> None:
    """1,790 orders waited for a day when bots and claims of the future came back with it."""
    submitter = Submitter(service.committer)
    for _ in range(5):
        await auto_bot(submitter)
    clock.set(DAY)
    await asyncio.sleep(1.2)
    for _ in range(20):
        await submitter.order()
    await asyncio.sleep(1.5)
    clock.set(0)
    await eventually(lambda: len(completed(database)) == 20, 12)


async def test_a_retry_of_the_future_comes_when_its_rest_is_over(
    service: Service, clock: FakeClock
) -> None:
    workshop = Workshop(Submitter(service.committer))
    clock.set(DAY)
    await asyncio.sleep(1.2)
    await workshop.job()
    (job,) = await workshop.claim()
    await workshop.finish(job, Outcome.RETRY, error="not now", retry_delay_seconds=2)
    clock.set(0)
    await asyncio.sleep(1)
    assert await workshop.claim() == []
    await asyncio.sleep(4)
    (again,) = await workshop.claim()
    assert again.id == job.id


async def test_a_rate_goes_on_after_a_day_and_back(service: Service, clock: FakeClock) -> None:
    workshop = Workshop(Submitter(service.committer))
    await workshop.submit(ConfigureQueue(name="email", rate=Rate(5, 2)))
    await workshop.jobs(20)
    clock.set(DAY)
    await asyncio.sleep(1.2)
    assert len(await workshop.claim(20)) == 5
    clock.set(0)
    await asyncio.sleep(4)
    assert len(await workshop.claim(20)) == 5
