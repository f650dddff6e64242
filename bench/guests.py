"""`daybook bench guests`: cost of rate limits and guest encryption, against a bare round trip to
the database, which both need."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count
from uuid import UUID

import click
from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from uuid_utils.compat import uuid7

from bench.harness.rounds import Contender, Result, Round, console, measure, ratio, show
from bench.harness.scratch_database import describe_server, scratch_database
from bench.workloads.order_lifecycle import run
from bench.write import DatabaseChoice
from daybook.api.limits.rate_limits import RateLimits
from daybook.api.runtime.guest_encryption import GuestDetails
from daybook.api.runtime.guest_master_key import ServiceKey
from daybook.api.runtime.service import Service
from daybook.api.settings.environment import load

CALLERS = 16
BARE = "a bare round trip"
LIMITED = "both limits, one address each"
SHARED = "both limits, all from one address"
NEW = "seal, a new guest"
KNOWN = "seal, a returning guest"
OPENED_COUNT = 100
OPENED = f"open {OPENED_COUNT} guests at once"

RESTAURANT = UUID("7c9e6679-7425-50de-944b-e07fc1f90ae7")
# High enough that no limit refuses: the benchmark measures admitted requests.
ROOMY = {"DAYBOOK_DATA_DIR": "/nowhere", "DAYBOOK_REQUESTS_PER_ADDRESS_MAX": "1000"}

Action = Callable[[int], Awaitable[object]]


@click.command("guests")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1))
@click.option("--seconds", default=2.0, show_default=True, help="Length of one round.")
@click.pass_obj
def command(choice: DatabaseChoice, rounds: int, seconds: float) -> None:
    """Measure rate-limit decisions and sealed guests per second, with 16 callers."""
    with choice.conninfo(console.print) as server, scratch_database(server) as database:
        console.print(describe_server(server))
        names = (BARE, LIMITED, SHARED, NEW, KNOWN, OPENED)
        numbers = count()
        contenders = [Contender(name, partial(_round, database, name, numbers)) for name in names]
        results = measure(contenders, rounds=rounds, seconds=seconds)
    show(f"Guests, {CALLERS} callers", "a second", results, baseline=BARE)
    _summarize(results)


def _summarize(results: dict[str, Result]) -> None:
    rate = {name: result.rate for name, result in results.items()}
    console.print(
        f"A decision of both limits takes {ratio(rate[BARE], rate[LIMITED])} bare round trips, "
        f"{ratio(rate[BARE], rate[SHARED])} when all share an address; a new guest "
        f"{ratio(rate[BARE], rate[NEW])}, a known one {ratio(rate[BARE], rate[KNOWN])}; to open "
        f"{OPENED_COUNT} takes {ratio(rate[BARE], rate[OPENED])}."
    )


def _round(database: str, name: str, numbers: "count[int]", seconds: float) -> Round:
    return run(_work(database, name, numbers, seconds))


async def _work(database: str, name: str, numbers: "count[int]", seconds: float) -> Round:
    key = ServiceKey.of(bytes(32))
    async with Service(database, guest_key=key, read_models=(), processors=()) as service:
        action = await _action(service, name)
        latencies: list[float] = []
        began = time.perf_counter()

        async def call() -> None:
            while (sent_at := time.perf_counter()) < began + seconds:
                await action(next(numbers))
                latencies.append(time.perf_counter() - sent_at)

        await asyncio.gather(*(call() for _ in range(CALLERS)))
        return Round(len(latencies), time.perf_counter() - began, latencies)


async def _action(service: Service, name: str) -> Action:
    if name in (LIMITED, SHARED):
        return _rate_limit(service, is_shared=name == SHARED)
    if name == OPENED:
        sealed = [
            await service.guests.seal(RESTAURANT, _guest(number)) for number in range(OPENED_COUNT)
        ]
        pairs = [(one.subject_id, one.sealed) for one in sealed]
        return lambda _number: service.guests.decrypt_each(pairs)
    if name == BARE:
        return lambda _number: service.run_on_relaxed_connection(_nothing)
    is_new = name == NEW
    return lambda number: service.guests.seal(RESTAURANT, _guest(number if is_new else 0))


def _rate_limit(service: Service, *, is_shared: bool) -> Action:
    limits = RateLimits(load(ROOMY, {}), service.guests, service.run_on_relaxed_connection)
    # An address may send 1,000 requests a minute, so 900 guests share each.
    return lambda number: limits.charge(
        RESTAURANT,
        pseudonym=f"{number}",
        address=f"{number // 900 if is_shared else number}",
        route="bench shared" if is_shared else "bench",
        is_exempt=False,
        command_id=uuid7(),
    )


def _guest(number: int) -> GuestDetails:
    return GuestDetails(f"Guest {number}", f"+49170{number:07d}")


async def _nothing(connection: AsyncConnection[TupleRow]) -> None:
    await connection.execute("SELECT 1")
