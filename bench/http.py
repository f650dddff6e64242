"""`daybook bench http`: orders over HTTP, against an endpoint that only parses and answers."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from statistics import median
from typing import Any

import click
import psycopg

from bench.harness.client import HTTPConnection
from bench.harness.rounds import Contender, Round, console, measure, ratio, show
from bench.harness.scratch_database import describe_server, scratch_database
from bench.harness.service import announcing, service
from bench.workloads.order_lifecycle import run
from bench.write import DatabaseChoice
from daybook.eventlog.postgres.connections import owner_conninfo

CONNECTIONS = 64
FLOOR = "parses and answers"
PLAIN = "plain Starlette, a small answer"
LIFE_CYCLE = "create, claim, complete"

READ_DISPATCH_SECONDS = """
SELECT extract(epoch FROM claimed.recorded_at - created.recorded_at)::float8
FROM log AS claimed
JOIN log AS created ON created.aggregate_id = claimed.aggregate_id
                   AND created.topic = 'order.created'
WHERE claimed.topic = 'order.claimed' AND claimed.actor = 'system:dispatch'
"""
READ_LATENESS_SECONDS = """
SELECT extract(epoch FROM completed.recorded_at - (claimed.data ->> 'due_at')::timestamptz)::float8
FROM log AS completed
JOIN log AS claimed ON claimed.aggregate_id = completed.aggregate_id
                   AND claimed.topic = 'order.claimed'
WHERE completed.topic = 'order.completed' AND completed.data ->> 'via' = 'timer'
"""
FILL_PENDING = """
WITH made AS (
    SELECT gen_random_uuid() AS id, nextval('order_numbers') AS number
    FROM generate_series(1, %(count)s)
), logged AS (
    INSERT INTO stored_events (originator_id, originator_version, topic, state,
                               command_id, correlation_id, actor)
    SELECT id, 1, 'order.created',
           convert_to(json_build_object('at', now(), 'order_id', id, 'number', number,
                                        'kind', 'NORMAL', 'attempts_max', 3)::text, 'UTF8'),
           id, id, 'bench'
    FROM made
)
INSERT INTO orders (id, version, number, created_at, updated_at, rank, attempts, attempts_max,
                    kind, status)
SELECT id, 1, number, now(), now(), 1, 0, 3, 'NORMAL', 'PENDING' FROM made
"""

Work = Callable[[HTTPConnection, list[float], float], Coroutine[Any, Any, None]]


@click.command("http")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1))
@click.option("--seconds", default=3.0, show_default=True, help="Length of one round.")
@click.option("--pending", default=1_000_000, show_default=True, help="Orders waiting at a claim.")
@click.pass_obj
def command(choice: DatabaseChoice, rounds: int, seconds: float, pending: int) -> None:
    """Measure requests/s over HTTP: one server process, 64 connections."""
    with ExitStack() as stack:
        server = stack.enter_context(choice.conninfo(console.print))
        console.print(describe_server(server))
        _throughput(stack, server, rounds, seconds)
        _automatic(stack, server)
        _claims(stack, server, pending)


def _throughput(stack: ExitStack, server: str, rounds: int, seconds: float) -> None:
    floor = stack.enter_context(_floor())
    port = stack.enter_context(service(stack.enter_context(scratch_database(server))))
    contenders = [
        Contender(PLAIN, partial(_round, floor, partial(_parse_only, path="/plain"))),
        Contender(FLOOR, partial(_round, floor, _parse_only)),
        Contender(LIFE_CYCLE, partial(_round, port, _life_cycles)),
    ]
    results = measure(contenders, rounds=rounds, seconds=seconds)
    show("One server process, 64 connections", "requests/s", results, baseline=FLOOR)


def _round(port: int, work: Work, seconds: float) -> Round:
    async def one_round() -> Round:
        latencies: list[float] = []
        connections = [await HTTPConnection.open("127.0.0.1", port) for _ in range(CONNECTIONS)]
        began = time.perf_counter()
        await asyncio.gather(*(work(one, latencies, began + seconds) for one in connections))
        took = time.perf_counter() - began
        for one in connections:
            one.close()
        return Round(count=len(latencies), seconds=took, latencies=latencies)

    return run(one_round())


async def _timed(latencies: list[float], sending: Coroutine[Any, Any, Any]) -> Any:
    began = time.perf_counter()
    answer = await sending
    latencies.append(time.perf_counter() - began)
    return answer


async def _parse_only(
    connection: HTTPConnection, latencies: list[float], until: float, *, path: str = "/floor"
) -> None:
    while time.perf_counter() < until:
        await _timed(latencies, connection.send("POST", path, {"type": "NORMAL"}))


async def _life_cycles(connection: HTTPConnection, latencies: list[float], until: float) -> None:
    bot = (await connection.send("POST", "/api/bots", {}))["bot"]["id"]
    while time.perf_counter() < until:
        await _timed(latencies, connection.send("POST", "/api/orders", {"type": "NORMAL"}))
        claimed = None
        while claimed is None:
            claim = connection.send("POST", f"/api/bots/{bot}/claim")
            claimed = (await _timed(latencies, claim))["order"]
        done = connection.send("PATCH", f"/api/orders/{claimed['id']}", {"status": "COMPLETE"})
        await _timed(latencies, done)


def _automatic(stack: ExitStack, server: str) -> None:
    """Measures processors: dispatch to idle bots, and completion at the due time."""
    database = stack.enter_context(scratch_database(server))
    with service(database, BOT_PROCESSING_DELAY_SECONDS="0.2") as port:
        run(_trickle(port))
    for name, query in (
        ("an idle bot takes a new order after", READ_DISPATCH_SECONDS),
        ("an order is completed after its due time by", READ_LATENESS_SECONDS),
    ):
        with psycopg.connect(owner_conninfo(database)) as connection:
            found = sorted(row[0] for row in connection.execute(query.encode()))
        console.print(
            f"{name}: p50 {found[len(found) // 2] * 1000:.1f} ms, "
            f"p99 {found[int((len(found) - 1) * 0.99)] * 1000:.1f} ms ({len(found)} orders)"
        )


async def _trickle(port: int) -> Round:
    connection = await HTTPConnection.open("127.0.0.1", port)
    for _ in range(20):
        await connection.send("POST", "/api/bots", {"autoClaim": True})
    began = time.perf_counter()
    for _ in range(200):
        await connection.send("POST", "/api/orders", {"type": "NORMAL"})
        await asyncio.sleep(0.02)
    await asyncio.sleep(1)
    connection.close()
    return Round(count=200, seconds=time.perf_counter() - began, latencies=[])


def _claims(stack: ExitStack, server: str, pending: int) -> None:
    medians: dict[int, float] = {}
    for count in (1_000, pending):
        database = stack.enter_context(scratch_database(server))
        with psycopg.connect(owner_conninfo(database), autocommit=True) as owner:
            owner.execute(FILL_PENDING, {"count": count})
            owner.execute("VACUUM ANALYZE orders")
        with service(database) as port:
            latencies: list[float] = []
            run(_claim_some(port, latencies))
        medians[count] = median(latencies)
        console.print(f"a claim with {count:,} pending: p50 {medians[count] * 1000:.2f} ms")
    console.print(f"claim with {pending:,} ÷ with 1,000: {ratio(medians[pending], medians[1_000])}")


async def _claim_some(port: int, latencies: list[float]) -> Round:
    connection = await HTTPConnection.open("127.0.0.1", port)
    began = time.perf_counter()
    for _ in range(300):
        bot = (await connection.send("POST", "/api/bots", {}))["bot"]["id"]
        await _timed(latencies, connection.send("POST", f"/api/bots/{bot}/claim"))
    connection.close()
    return Round(count=300, seconds=time.perf_counter() - began, latencies=latencies)


@contextmanager
def _floor() -> Iterator[int]:
    with announcing(["-m", "bench.workloads.http_floor"], r"(\d+)", {}) as port:
        yield port
