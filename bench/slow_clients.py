"""`daybook bench guard`: what slow clients cost everybody else, side by side with none of them."""

import asyncio
import time

import click
import uvloop
from msgspec import Struct

from bench.harness.client import HTTPConnection
from bench.harness.rounds import Result, Round, console, ratio, show, summary
from bench.harness.scratch_database import describe_server, scratch_database
from bench.harness.service import service
from bench.workloads.slow_client_load import laid
from bench.write import DatabaseChoice

CALLERS = 4
COMING_SECONDS = 2.0
CALM, BESIEGED = "nobody else", "among slow clients"
ORDER = {"type": "NORMAL"}


class Outcome(Struct, frozen=True):
    results: dict[str, Result]
    lives: list[float]


@click.command("guard")
@click.option("--slow", default=1000, show_default=True, type=click.IntRange(2))
@click.option("--seconds", default=60.0, show_default=True, help="How long they hold on.")
@click.pass_obj
def command(choice: DatabaseChoice, slow: int, seconds: float) -> None:
    """Orders a second of ordinary clients, alone and among slow ones; how long those are let."""
    with choice.conninfo(console.print) as server, scratch_database(server) as database:
        console.print(describe_server(server))
        with service(database) as port:
            outcome = uvloop.run(besieged(port, slow=slow, seconds=seconds))
    show(f"{CALLERS} clients and {slow} slow ones", "orders/s", outcome.results, baseline=CALM)
    calm, siege = (outcome.results[name].p99_ms or 0 for name in (CALM, BESIEGED))
    console.print(
        f"Their p99 is {ratio(siege, calm)} times that without; {len(outcome.lives)} slow "
        f"connections were closed, the last after {max(outcome.lives, default=0):.1f} s."
    )


async def besieged(port: int, *, slow: int, seconds: float) -> Outcome:
    """Calm, siege, calm: what else the machine does would otherwise be taken for the siege."""
    calm = [await _work(port, seconds / 6)]
    async with laid(port, slow) as lives:
        # The first of them come all at once: nobody is measured while they do.
        await asyncio.sleep(COMING_SECONDS)
        among = await _work(port, seconds)
    calm.append(await _work(port, seconds / 6))
    return Outcome({CALM: summary(calm), BESIEGED: summary([among])}, lives)


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
