"""`daybook bench guard`: latency of ordinary clients, with and without slow clients."""

import asyncio
import time

import click
import uvloop
from msgspec import Struct

from bench.harness.client import HTTPConnection
from bench.harness.rounds import Result, Round, console, ratio, show, summary
from bench.harness.scratch_database import describe_server, scratch_database
from bench.harness.service import service
from bench.workloads.slow_client_load import slow_clients
from bench.write import DatabaseChoice

CALLERS = 4
CONNECT_SECONDS = 2.0
ALONE, AMONG_SLOW = "alone", "among slow clients"
ORDER = {"type": "NORMAL"}


class Outcome(Struct, frozen=True):
    results: dict[str, Result]
    lives: list[float]


@click.command("guard")
@click.option("--slow", default=1000, show_default=True, type=click.IntRange(2))
@click.option("--seconds", default=60.0, show_default=True, help="Length of the load.")
@click.pass_obj
def command(choice: DatabaseChoice, slow: int, seconds: float) -> None:
    """Measure orders/s of ordinary clients, alone and among slow ones."""
    with choice.conninfo(console.print) as server, scratch_database(server) as database:
        console.print(describe_server(server))
        with service(database) as port:
            outcome = uvloop.run(measure_among_slow(port, slow=slow, seconds=seconds))
    show(f"{CALLERS} clients and {slow} slow ones", "orders/s", outcome.results, baseline=ALONE)
    alone, among = (outcome.results[name].p99_ms or 0 for name in (ALONE, AMONG_SLOW))
    console.print(
        f"p99 among slow clients ÷ alone: {ratio(among, alone)}; {len(outcome.lives)} slow "
        f"connections were closed, the last after {max(outcome.lives, default=0):.1f} s."
    )


async def measure_among_slow(port: int, *, slow: int, seconds: float) -> Outcome:
    """Measures alone before and after, so that other load is not taken for the slow clients."""
    alone = [await _work(port, seconds / 6)]
    async with slow_clients(port, slow) as lives:
        # Slow clients connect all at once, which is not measured.
        await asyncio.sleep(CONNECT_SECONDS)
        among = await _work(port, seconds)
    alone.append(await _work(port, seconds / 6))
    return Outcome({ALONE: summary(alone), AMONG_SLOW: summary([among])}, lives)


async def _work(port: int, seconds: float) -> Round:
    latencies: list[float] = []
    began = time.perf_counter()

    async def call() -> None:
        connection = await HTTPConnection.open("127.0.0.1", port)
        while (sent_at := time.perf_counter()) < began + seconds:
            await connection.send("POST", "/api/orders", ORDER)
            latencies.append(time.perf_counter() - sent_at)
        connection.close()

    await asyncio.gather(*(call() for _ in range(CALLERS)))
    return Round(len(latencies), time.perf_counter() - began, latencies)
