"""`daybook bench office`: queries and bulk actions of the operations console.

Compares cancelling jobs by page and one by one, reading rates from a short and a long log, and
committing commands with and without a running verification.
"""

import asyncio
import time
from functools import partial
from uuid import UUID

import click
import psycopg
from uuid_utils.compat import uuid7

from bench.harness.rounds import Contender, Result, Round, console, measure, ratio, show
from bench.harness.scratch_database import describe_server, scratch_database
from bench.workloads.backlog import COPY_JOB
from bench.workloads.order_lifecycle import run
from bench.write import DatabaseChoice
from daybook.api.keys.access import OPEN
from daybook.api.runtime.background.task import RequestedTask
from daybook.api.runtime.service import Service
from daybook.domain.jobs.create import CreateJobs, JobRequest
from daybook.domain.jobs.job import JobStatus
from daybook.domain.jobs.manage import CancelJob, CancelJobs
from daybook.eventlog.origin import Origin
from daybook.eventlog.postgres.connections import owner_conninfo
from daybook.projections.jobs.job_filter import JobFilter
from daybook.projections.jobs.job_list import read_jobs
from daybook.projections.jobs.queue_rates import read_rates

PAGE = 100
AT_ONCE = 6
ONE_BY_ONE = "cancel one by one"
SIX = f"cancel {AT_ONCE} at a time, as a browser could"
BULK = f"cancel pages of {PAGE}"
SHORT_COUNT, LONG_COUNT = 10_000, 200_000
SHORT = f"rates, {SHORT_COUNT:,} events"
LONG = f"rates, {LONG_COUNT:,} events"
QUIET = "create jobs, in quiet"
REBUILDING = "create jobs, during a verification"


@click.command("office")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1))
@click.option("--seconds", default=2.0, show_default=True, help="Length of one round.")
@click.pass_obj
def command(choice: DatabaseChoice, rounds: int, seconds: float) -> None:
    """Measure bulk actions, rates, and the cost of a rebuild for other commands."""
    with (
        choice.conninfo(console.print) as server,
        scratch_database(server) as short,
        scratch_database(server) as long,
    ):
        console.print(describe_server(server))
        fill(short, SHORT_COUNT)
        fill(long, LONG_COUNT)
        of = partial(measure, rounds=rounds, seconds=seconds)
        logs = {SHORT: short, LONG: long}
        read = of([Contender(name, partial(_rates, log)) for name, log in logs.items()])
        show("Rates read", "a second", read, baseline=SHORT)
        cancelled = of([Contender(n, partial(_cancel, short, n)) for n in (ONE_BY_ONE, SIX, BULK)])
        show("Jobs cancelled", "a second", cancelled, baseline=ONE_BY_ONE)
        created = of([Contender(n, partial(_create, long, n)) for n in (QUIET, REBUILDING)])
        show("Batches of jobs created", "a second", created, baseline=QUIET)
    _summarize({**cancelled, **read, **created})


def _summarize(results: dict[str, Result]) -> None:
    rate = {name: result.rate for name, result in results.items()}
    console.print(
        f"Pages cancel {ratio(rate[BULK], rate[ONE_BY_ONE])} times as fast as one by one; rates of "
        f"the long log are read {ratio(rate[LONG], rate[SHORT])} times as fast as of the short "
        f"one; while a rebuild compares, {ratio(rate[REBUILDING], rate[QUIET])} of the rate is "
        "left on this machine, which both share."
    )


def fill(database: str, count: int) -> None:
    """Creates pending jobs and their events."""
    run(_create_first(database))
    with psycopg.connect(owner_conninfo(database)) as connection:
        connection.execute(COPY_JOB.encode(), {"count": count})
    with psycopg.connect(owner_conninfo(database), autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")


async def _create_first(database: str) -> Round:
    async with _service(database) as service:
        await service.committer.submit(_new_jobs(1), _origin())
    return Round(1, 1.0, [])


def _service(database: str) -> Service:
    return Service(database, read_models=(), processors=())


def _origin() -> Origin:
    return Origin(command_id=uuid7(), actor=OPEN.actor)


def _new_jobs(count: int) -> CreateJobs:
    request = JobRequest(queue="mail", type="send")
    return CreateJobs([request.new_job(uuid7()) for _ in range(count)])


def _cancel(database: str, name: str, seconds: float) -> Round:
    return run(_cancelling(database, name, seconds))


async def _cancelling(database: str, name: str, seconds: float) -> Round:
    """Cancels page by page; the creation of each page is not timed."""
    latencies, count, spent = list[float](), 0, 0.0
    async with _service(database) as service:
        while spent < seconds:
            await service.committer.submit(_new_jobs(PAGE), _origin())
            began = time.perf_counter()
            ids = await _pending(service)
            if name == BULK:
                command = CancelJobs(job_ids=ids, expected_status=JobStatus.PENDING)
                await service.committer.submit(command, _origin())
            else:
                await _each(service, ids, 1 if name == ONE_BY_ONE else AT_ONCE)
            latencies.append(time.perf_counter() - began)
            spent, count = spent + latencies[-1], count + len(ids)
    return Round(count, spent, latencies)


async def _pending(service: Service) -> list[UUID]:
    wanted = JobFilter(status=JobStatus.PENDING)
    page = await service.read(lambda reader: read_jobs(reader, wanted, limit=PAGE))
    return [job.id for job in page.jobs]


async def _each(service: Service, ids: list[UUID], at_once: int) -> None:
    for first in range(0, len(ids), at_once):
        some = ids[first : first + at_once]
        commands = [service.committer.submit(CancelJob(one), _origin()) for one in some]
        await asyncio.gather(*commands)


def _rates(database: str, seconds: float) -> Round:
    return run(_reading(database, seconds))


async def _reading(database: str, seconds: float) -> Round:
    latencies: list[float] = []
    async with _service(database) as service:
        began = time.perf_counter()
        while (asked_at := time.perf_counter()) < began + seconds:
            await service.read(lambda reader: read_rates(reader, after=None))
            latencies.append(time.perf_counter() - asked_at)
        return Round(len(latencies), time.perf_counter() - began, latencies)


def _create(database: str, name: str, seconds: float) -> Round:
    return run(_creating(database, name, seconds))


async def _creating(database: str, name: str, seconds: float) -> Round:
    latencies: list[float] = []
    async with _service(database) as service:
        if name == REBUILDING:
            task = service.background_tasks.start_rebuild(
                "verify", ("jobs", "finished_jobs"), None, RequestedTask()
            )
            while task.is_running and task.goal == 0:  # noqa: ASYNC110 (it has no event)
                await asyncio.sleep(0.01)
        began = time.perf_counter()
        while (sent_at := time.perf_counter()) < began + seconds:
            await service.committer.submit(_new_jobs(10), _origin())
            latencies.append(time.perf_counter() - sent_at)
        return Round(len(latencies), time.perf_counter() - began, latencies)
