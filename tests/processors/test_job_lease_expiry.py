"""An expired lease ends the claim once, and the job is retried or dead."""

import asyncio

import pytest

from daybook.api.runtime.service import Service
from daybook.domain.errors import ClaimLostError
from daybook.processors.job_lease_expiry import JobLeaseExpiry
from daybook.projections.jobs.heartbeats import LeaseExtension, extend_leases
from tests.support.committer import Submitter, eventually, fold_of_the_log, live_rows, rows
from tests.support.jobs import Workshop

pytestmark = pytest.mark.anyio


def service(database: str) -> Service:
    return Service(database, read_models=(), processors=(JobLeaseExpiry(),))


def failures(database: str) -> list[str]:
    query = "SELECT data ->> 'reason' FROM log WHERE topic = 'job.failed' ORDER BY position"
    return [row[0] for row in rows(database, query)]


async def test_a_lease_that_is_over_is_a_counted_failure(database: str) -> None:
    # S1-03, S1-05, S1-16, S1-35, S4-44, D-64
    async with service(database) as running:
        workshop = Workshop(Submitter(running.committer))
        await workshop.job()
        (job,) = await workshop.claim(lease_seconds=0.3)
        await eventually(lambda: failures(database) == ["lease_expired"], 2)
        with pytest.raises(ClaimLostError):
            await workshop.finish(job)
        await asyncio.sleep(0.25)
        ((again),) = await workshop.claim()
        assert (again.id, again.attempts, again.crashes) == (job.id, 2, 1)


async def test_heartbeats_keep_a_lease_for_as_long_as_they_come(database: str) -> None:
    async with service(database) as running:
        workshop = Workshop(Submitter(running.committer))
        await workshop.job()
        (job,) = await workshop.claim(lease_seconds=0.4)
        assert job.claim is not None
        extension = LeaseExtension(job.id, job.claim.id, 0.4)
        for _ in range(12):
            await asyncio.sleep(0.1)
            assert await running.read(lambda reader: extend_leases(reader, [extension]))
        assert failures(database) == []
        await workshop.finish(job)


async def test_a_job_that_kills_its_workers_is_dead_after_its_last_attempt(database: str) -> None:
    # S1-08, D-22
    async with service(database) as running:
        workshop = Workshop(Submitter(running.committer))
        await workshop.job(attempts_max=2)
        for count in (1, 2):
            await eventually(
                lambda: rows(database, "SELECT 1 FROM jobs WHERE status = 'PENDING'") != [], 3
            )
            await asyncio.sleep(0.3)
            assert len(await workshop.claim(lease_seconds=0.1)) == 1
            await eventually(lambda n=count: len(failures(database)) == n, 3)
        ((reason),) = rows(
            database, "SELECT data ->> 'reason' FROM log WHERE topic = 'job.moved_to_dlq'"
        )
        assert reason[0].startswith("crash loop")
    assert live_rows(database) == fold_of_the_log(database)


async def test_two_services_end_a_lease_once(database: str) -> None:
    async with service(database) as one, service(database):
        workshop = Workshop(Submitter(one.committer))
        await workshop.jobs(50)
        await workshop.claim(50, lease_seconds=0.1)
        await eventually(lambda: len(failures(database)) == 50, 4)
        await asyncio.sleep(1.2)
        assert len(failures(database)) == 50
