"""`daybook bench tickets`: joins and calls on two processes, and long waitlists against short."""

import asyncio
import random
import time
from collections.abc import Sequence
from contextlib import ExitStack
from statistics import median

import click
from uuid_utils.compat import uuid7

from bench.harness.client import HTTPConnection
from bench.harness.rounds import Round, console, ratio
from bench.harness.scratch_database import describe_server, scratch_database
from bench.workloads.order_lifecycle import run
from bench.workloads.ticket_load import (
    KIOSK_KEY,
    LINE,
    SLUG,
    Found,
    Seen,
    check_log,
    load,
    serving,
)
from bench.write import DatabaseChoice
from daybook.cli.progress import bar
from daybook.domain.deciders import DECIDERS
from daybook.domain.tickets.commands import JoinLine, OpenRestaurant
from daybook.domain.tickets.restaurant import Profile, Reset
from daybook.domain.tickets.ticket import Guest
from daybook.eventlog.codec import EventMapper
from daybook.eventlog.origin import Origin
from daybook.eventlog.writing.committer import Committer
from daybook.projections.registry import LIVE_TABLES

PROCESSES = 2
RATES = (300, 3000)
SHORT = 100
CHUNK = 400
ROUNDS = 20
READS = 50
TURNS = 300
PROFILE = Profile(
    name="Trattoria",
    token_prefix="TRATTORIA",  # noqa: S106 (a prefix, not a secret)
    minutes_per_party=10,
    reset=Reset.NEVER,
    time_zone="UTC",
    no_show_seconds=None,
)


@click.command("tickets")
@click.option("--seconds", default=60.0, show_default=True, help="Length of each load.")
@click.option("--waiting", default=100_000, show_default=True, help="Guests in the long waitlist.")
@click.pass_obj
def command(choice: DatabaseChoice, seconds: float, waiting: int) -> None:
    """Measure joins and calls on two processes, and the cost of a long waitlist."""
    with ExitStack() as stack:
        server = stack.enter_context(choice.conninfo(console.print))
        console.print(describe_server(server))
        for per_minute in RATES:
            _load(stack, server, per_minute, seconds)
        _beside_orders(stack, server)
        _long_waitlist(stack, server, waiting)


def _beside_orders(stack: ExitStack, server: str) -> None:
    """Alternates single requests: shows the cost of waitlist, rate limits and encryption."""
    database = stack.enter_context(scratch_database(server))
    seconds: dict[str, list[float]] = {name: [] for name in ("an order", "a join", "a call-next")}
    with serving(database, 1) as (port,):
        run(_turns(port, seconds))
    order, join, call = (median(one) for one in seconds.values())
    console.print(
        f"one at a time: an order {order * 1000:.2f} ms, a join {join * 1000:.2f} ms "
        f"({ratio(join, order)} times as long), a call-next {call * 1000:.2f} ms "
        f"({ratio(call, order)} times)"
    )


async def _turns(port: int, seconds: dict[str, list[float]]) -> Round:
    connection = await HTTPConnection.open("127.0.0.1", port)
    opened = {"slug": SLUG, "name": "Trattoria", "noShowGraceSeconds": None}
    await connection.send("POST", "/api/restaurants", opened)
    kiosk = f"Daybook-Kiosk-Key: {KIOSK_KEY}\r\n"
    began = time.perf_counter()
    for n in range(TURNS):
        guest = {"name": "Ada", "mobileNumber": f"+49170{n:07d}", "partySize": 2}
        for name, path, body in (
            ("an order", "/api/orders", {"type": "NORMAL"}),
            ("a join", f"{LINE}/tickets", guest),
            ("a call-next", f"{LINE}/call-next", {}),
        ):
            asked = time.perf_counter()
            await connection.send("POST", path, body, headers=kiosk)
            seconds[name].append(time.perf_counter() - asked)
    connection.close()
    return Round(count=TURNS, seconds=time.perf_counter() - began, latencies=[])


def _load(stack: ExitStack, server: str, per_minute: int, seconds: float) -> None:
    database = stack.enter_context(scratch_database(server))
    console.print(f"{per_minute:,} joins a minute for {seconds:g} s, two desks calling …")
    with serving(database, PROCESSES) as ports:
        seen = asyncio.run(load(ports, per_minute=per_minute, seconds=seconds))
    _show(seen, check_log(database, seen))


def _show(seen: Seen, found: Found) -> None:
    for name, seconds in (("join", seen.join_seconds), ("call-next", seen.call_seconds)):
        p50, p95, p99 = (percentile(seconds, part) * 1000 for part in (0.50, 0.95, 0.99))
        console.print(f"  {name}: p50 {p50:.1f} ms, p95 {p95:.1f} ms, p99 {p99:.1f} ms")
    console.print(
        f"  {found.joins:,} joined, {found.calls:,} called: {found.wrong_tokens} tokens missing or "
        f"twice, {found.wrong_positions} wrong positions, {found.called_twice} called twice, "
        f"{found.out_of_order} out of order, {found.unacknowledged} lost or made up, "
        f"{seen.unequal_count} unequal answers, {found.deadlocks} deadlocks"
    )


def percentile(seconds: Sequence[float], part: float) -> float:
    return sorted(seconds)[int((len(seconds) - 1) * part)]


def _long_waitlist(stack: ExitStack, server: str, waiting: int) -> None:
    ports: dict[int, int] = {}
    tickets: dict[int, list[str]] = {}
    for count in (SHORT, waiting):
        database = stack.enter_context(scratch_database(server))
        tickets[count] = asyncio.run(_fill(database, count))
        (ports[count],) = stack.enter_context(serving(database, 1))
    for name, path in (("a ticket with its position", "/tickets/{}"), ("the board", "/board")):
        seconds: dict[int, list[float]] = {count: [] for count in ports}
        # Alternating, so that other load affects both alike.
        for _ in range(ROUNDS):
            for count, port in ports.items():
                run(_read(port, path, tickets[count], seconds[count]))
        short, long = (median(seconds[count]) for count in (SHORT, waiting))
        console.print(
            f"{name}: p50 {short * 1000:.2f} ms with {SHORT} waiting, {long * 1000:.2f} ms with "
            f"{waiting:,}: {ratio(long, short)} times as long"
        )


async def _fill(database: str, count: int) -> list[str]:
    """Fills a waitlist through the committer; returns the ticket ids."""
    guest = Guest(subject_id=uuid7(), sealed="", pseudonym="")
    mapper = EventMapper(DECIDERS)
    ids = [uuid7() for _ in range(count)]
    async with Committer(database, tables=LIVE_TABLES, mapper=mapper) as committer:
        await committer.submit(OpenRestaurant(slug=SLUG, profile=PROFILE), _origin())
        with bar("Filling the waitlist", "guests", count) as progress:
            for first in range(0, count, CHUNK):
                joins = [
                    JoinLine(slug=SLUG, ticket_id=one, guest=guest, party_size=2)
                    for one in ids[first : first + CHUNK]
                ]
                await asyncio.gather(*(committer.submit(one, _origin()) for one in joins))
                progress.reach(first)
    return [str(one) for one in ids]


def _origin() -> Origin:
    return Origin(command_id=uuid7(), actor="bench")


async def _read(port: int, path: str, tickets: Sequence[str], seconds: list[float]) -> Round:
    connection = await HTTPConnection.open("127.0.0.1", port)
    began = time.perf_counter()
    for ticket in random.choices(tickets, k=READS):
        asked = time.perf_counter()
        await connection.send("GET", LINE + path.format(ticket))
        seconds.append(time.perf_counter() - asked)
    connection.close()
    return Round(count=READS, seconds=time.perf_counter() - began, latencies=seconds)
