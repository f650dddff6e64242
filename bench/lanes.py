"""`daybook bench lanes`: cost of many lanes, against few and none.

In each database every lane has a pending job. One worker then runs life cycles of ten jobs: it
creates ten in random lanes, claims ten lane heads and completes them. The contender without lanes
has as many pending jobs as the one with most lanes.
"""

import random
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import click
from rich.progress import track
from uuid_utils.compat import uuid7

from bench.harness.rounds import Contender, Result, Round, console, measure, ratio, show
from bench.harness.scratch_database import describe_server, scratch_database, tidy
from bench.workloads.order_lifecycle import Submit, committer, origin, run
from bench.write import DatabaseChoice
from daybook.domain.jobs.create import CreateJobs, JobRequest
from daybook.domain.jobs.job import Job
from daybook.domain.jobs.work import ClaimJobs, FinishJobs, JobSelector, Outcome
from daybook.domain.jobs.work import JobResult as Report

FEW, MANY = 10, 100_000
COUNTS = (FEW, 1_000, MANY)
AT_A_TIME = 10
FILL_AT_A_TIME = 1_000
# Target ratio of many lanes to few.
TARGET = 0.7
QUEUE = "lanes"
WITHOUT = "without lanes"


@click.command("lanes")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1))
@click.option("--seconds", default=3.0, show_default=True, help="Length of one round.")
@click.pass_obj
def command(choice: DatabaseChoice, rounds: int, seconds: float) -> None:
    """Measure life cycles of jobs in 10, 1,000 and 100,000 lanes, and without lanes."""
    with ExitStack() as stack:
        server = stack.enter_context(choice.conninfo(console.print))
        console.print(describe_server(server))
        contenders = [_contender(stack, server, count) for count in (*COUNTS, None)]
        results = measure(contenders, rounds=rounds, seconds=seconds)
    show("Jobs created, claimed and completed", "jobs/s", results, baseline=_name(FEW))
    _summarize(results)


def _name(count: int | None) -> str:
    return WITHOUT if count is None else f"{count:,} lanes"


def _contender(stack: ExitStack, server: str, count: int | None) -> Contender:
    conninfo = stack.enter_context(scratch_database(server))
    partitions = [None] * MANY if count is None else [f"lane {n}" for n in range(count)]
    run(_filled(conninfo, partitions, f"filling {_name(count)}"))
    tidy(conninfo)
    return Contender(_name(count), partial(_measured, conninfo, partitions))


async def _filled(conninfo: str, partitions: Sequence[str | None], description: str) -> Round:
    began = time.perf_counter()
    async with committer(conninfo, 1) as submit:
        firsts = range(0, len(partitions), FILL_AT_A_TIME)
        for first in track(firsts, description, console=console, transient=True):
            await _create(submit, partitions[first : first + FILL_AT_A_TIME])
    return Round(count=len(partitions), seconds=time.perf_counter() - began, latencies=[])


def _measured(conninfo: str, partitions: Sequence[str | None], seconds: float) -> Round:
    return run(_life_cycles(conninfo, partitions, seconds))


async def _life_cycles(conninfo: str, partitions: Sequence[str | None], seconds: float) -> Round:
    chance = random.Random(7)
    count, latencies = 0, []
    async with committer(conninfo, 1) as submit:
        began = time.perf_counter()
        while time.perf_counter() < began + seconds:
            started = time.perf_counter()
            await _create(submit, chance.choices(partitions, k=AT_A_TIME))
            jobs = await _claim(submit)
            await submit(FinishJobs(results=[_done(job) for job in jobs], jitter=0), origin())
            latencies.append(time.perf_counter() - started)
            count += len(jobs)
        took = time.perf_counter() - began
    return Round(count=count, seconds=took, latencies=latencies)


async def _create(submit: Submit, partitions: Sequence[str | None]) -> None:
    new = [
        JobRequest(queue=QUEUE, type="bench", partition=partition).new_job(uuid7())
        for partition in partitions
    ]
    await submit(CreateJobs(new), origin())


async def _claim(submit: Submit) -> list[Job]:
    selector = JobSelector((QUEUE,), ("bench",))
    claim = ClaimJobs(selector=selector, worker="w", limit=AT_A_TIME, claim_id=uuid7())
    answer: Any = (await submit(claim, origin())).result
    jobs: list[Job] = answer
    return jobs


def _done(job: Job) -> Report:
    assert job.claim is not None
    return Report(job_id=job.id, claim_id=job.claim.id, outcome=Outcome.DONE)


def _summarize(results: dict[str, Result]) -> None:
    most, few, without = (results[_name(count)].rate for count in (MANY, FEW, None))
    console.print(f"{_name(MANY)} ÷ {_name(FEW)}: {ratio(most, few)} (to reach: {TARGET:g})")
    console.print(f"{_name(MANY)} ÷ {WITHOUT}: {ratio(most, without)}")
