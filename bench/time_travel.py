"""`daybook bench past`: latency of time-travel queries on a long log.

A synthetic log is loaded in steps. After each step, the live tables are set to its state and
checkpoints are taken, as the service would.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

import click
import psycopg
from rich.table import Table

from bench.harness.rounds import console
from bench.harness.scratch_database import describe_server, scratch_database
from bench.workloads.synthetic_log import EVENTS_PER_TICK, OPENING, TICK, Loader
from bench.write import DatabaseChoice
from daybook.cli.progress import bar
from daybook.eventlog.postgres.connections import connect, owner_conninfo, reader_conninfo
from daybook.projections.jobs.job_filter import SECTIONS
from daybook.projections.registry import LIVE_TABLES
from daybook.projections.time_travel.checkpoints import EVENTS_BETWEEN, take_checkpoints
from daybook.projections.time_travel.lists import bots_as_of, jobs_as_of, orders_as_of, queues_as_of
from daybook.projections.time_travel.state_as_of import position_of

EVENTS = 10_000_000
LOOKS = 30
LIMIT = 500
SECONDS_MAX = 1.0
SEED = 7

Look = Callable[[Any, int], Awaitable[Any]]

LISTS: dict[str, Look] = {
    "orders": lambda reader, position: orders_as_of(reader, position, only=None, limit=LIMIT),
    "bots": bots_as_of,
    "jobs": lambda reader, position: jobs_as_of(
        reader, position, fits=lambda _: True, sections=SECTIONS, limit=LIMIT
    ),
    "queues": queues_as_of,
}


@click.command("past")
@click.option("--events", default=EVENTS, show_default=True, type=click.IntRange(50_000))
@click.option("--looks", default=LOOKS, show_default=True, type=click.IntRange(1))
@click.pass_obj
def command(choice: DatabaseChoice, events: int, looks: int) -> None:
    """Measure orders, bots, jobs and queues as of random positions and instants."""
    with choice.conninfo(console.print) as server, scratch_database(server) as conninfo:
        console.print(describe_server(server))
        ticks = fill(conninfo, events)
        taken = asyncio.run(measure(conninfo, events, ticks, looks))
    show(events, taken)


def fill(conninfo: str, events: int) -> int:
    """Returns the number of simulated ticks."""
    step = EVENTS_BETWEEN // EVENTS_PER_TICK
    with (
        psycopg.connect(owner_conninfo(conninfo), autocommit=True) as connection,
        bar("filling the log", "events", events) as shown,
    ):
        loader = Loader(connection)
        while loader.events_count < events:
            loader.load(step)
            loader.set_live_tables(LIVE_TABLES)
            asyncio.run(_take(conninfo, loader.events_count))
            shown.reach(min(loader.events_count, events))
        connection.execute("VACUUM (ANALYZE)")
    return loader.ticks_count


async def _take(conninfo: str, position: int) -> None:
    async with await connect(owner_conninfo(conninfo)) as connection:
        await take_checkpoints(connection, position)


async def measure(conninfo: str, events: int, ticks: int, looks: int) -> dict[str, Sequence[float]]:
    """Returns the durations in seconds, sorted."""
    chance = random.Random(SEED)
    taken: dict[str, Sequence[float]] = {}
    async with await connect(reader_conninfo(conninfo)) as reader:
        for name, look in LISTS.items():
            positions = [chance.randrange(events) for _ in range(looks)]
            instants = [OPENING + chance.randrange(ticks) * TICK for _ in range(looks)]
            taken[f"{name}, position"] = sorted(
                [await _seconds(look(reader, position)) for position in positions]
            )
            taken[f"{name}, instant"] = sorted(
                [await _seconds(_at_instant(reader, look, one)) for one in instants]
            )
    return taken


async def _at_instant(reader: Any, look: Look, instant: Any) -> None:
    await look(reader, await position_of(reader, instant + timedelta(milliseconds=1)))


async def _seconds(look: Awaitable[Any]) -> float:
    began = time.perf_counter()
    await look
    return time.perf_counter() - began


def show(events: int, taken: dict[str, Sequence[float]]) -> None:
    table = Table(title=f"As of, on a log of {events:,} events, ms", title_justify="left")
    table.add_column("")
    for heading in ("looks", "p50", "p95", "max"):
        table.add_column(heading, justify="right")
    for name, seconds in taken.items():
        shown = [seconds[int((len(seconds) - 1) * part)] for part in (0.5, 0.95, 1)]
        table.add_row(name, str(len(seconds)), *(f"{one * 1000:,.0f}" for one in shown))
    console.print(table)
    slowest = max(seconds[-1] for seconds in taken.values())
    console.print(f"The slowest look: {slowest:.2f} s (to reach: {SECONDS_MAX:.0f})")
