"""Latency from enqueue to claim by an idle worker in a long poll."""

import asyncio
import random
import time
from functools import partial

from bench.harness.rounds import Contender, Round, console, measure
from bench.harness.scratch_database import scratch_database
from bench.harness.service import service
from bench.queues.daybook import NEW_JOB, claim, connected, report_done
from bench.workloads.order_lifecycle import run

NAME = "pick-up by an idle worker"
ROUND_SECONDS = 4.0
# Minimum and maximum wait of the worker before a job is created.
IDLE_SECONDS = (0.005, 0.025)
POLL_SECONDS = 30
P50_MS_MAX = 10
P99_MS_MAX = 40


def measure_pick_up(server: str, *, rounds: int, seconds: float = ROUND_SECONDS) -> None:
    with scratch_database(server) as database, service(database) as port:
        contender = Contender(NAME, partial(_round, port))
        picked = measure([contender], rounds=rounds, seconds=seconds)[NAME]
    console.print(
        f"From sending a job until an idle worker has it: p50 {picked.p50_ms:.1f} ms, "
        f"p99 {picked.p99_ms:.1f} ms (to reach: {P50_MS_MAX} and {P99_MS_MAX})"
    )


def _round(port: int, seconds: float) -> Round:
    return run(_pick_up(port, seconds))


async def _pick_up(port: int, seconds: float) -> Round:
    latencies: list[float] = []
    began = time.perf_counter()
    async with connected(port) as creator, connected(port) as worker:
        while time.perf_counter() < began + seconds:
            waiting = asyncio.create_task(claim(worker, 1, wait_seconds=POLL_SECONDS))
            await asyncio.sleep(random.uniform(*IDLE_SECONDS))
            sent_at = time.perf_counter()
            creating = asyncio.create_task(creator.enqueue_ids([NEW_JOB]))
            claimed = await waiting
            latencies.append(time.perf_counter() - sent_at)
            await creating
            await report_done(worker, claimed)
    return Round(count=len(latencies), seconds=time.perf_counter() - began, latencies=latencies)
