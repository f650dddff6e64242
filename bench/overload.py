"""`daybook bench overload`: behaviour of the service under three times its peak load.

Consumers pop and acknowledge all the time. A few closed-loop pushers measure the usual latency.
Open-loop pushes at rising rates find the peak throughput. Then pushes arrive at three times the
peak, which is measured again afterwards. Every accepted message must be processed, at no less than
the peak's throughput.
"""

import asyncio
import multiprocessing
import os
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import cycle
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any

import click
import uvloop

from bench.harness.client import HTTPConnection, request
from bench.harness.rounds import console, ratio
from bench.harness.scratch_database import describe_server, scratch_database
from bench.harness.service import service
from bench.write import DatabaseChoice

# Many more than are popped at a time: each lane has one message in flight, so few lanes would
# bound the throughput by the latency.
LANES = 2_000
FEW, ARRIVING = 4, 400
# Pushes a second.
OFFERED = (200, 300, 400, 500, 600, 800)
CONSUMERS = 8
TOO_MUCH = 3
BATCH = 100
# Messages per push: with one, three times the peak would exceed the HTTP capacity of a process.
MESSAGES = 10
DRAIN_SECONDS_MAX = 300
TOO_MANY_REQUESTS = 429
# Targets: share of the peak throughput, and factor of the usual latency.
RATE_TARGET, LATENCY_TARGET = 0.9, 5.0


class Phase:
    """Statuses and latencies of the pushes of one phase."""

    def __init__(self) -> None:
        self.statuses: dict[int, int] = {}
        self.latencies: list[float] = []
        self.began = time.perf_counter()
        self.seconds = 0.0

    def add(self, status: int, seconds: float) -> None:
        self.statuses[status] = self.statuses.get(status, 0) + 1
        if status < TOO_MANY_REQUESTS:
            self.latencies.append(seconds)

    def end(self) -> None:
        self.seconds = time.perf_counter() - self.began

    @property
    def accepted(self) -> int:
        return len(self.latencies)

    @property
    def p99_ms(self) -> float:
        return sorted(self.latencies)[int((self.accepted - 1) * 0.99)] * 1000


class Scene:
    def __init__(self, port: int, done: "Synchronized[int]") -> None:
        self._port = port
        self._done = done
        chance = random.Random(7)
        # Encoded beforehand: the load generator shares the machine with the service.
        self._pushes = cycle([_push(chance) for _ in range(1000)])
        self.accepted = 0

    @property
    def done(self) -> int:
        return self._done.value

    async def open(self) -> HTTPConnection:
        return await HTTPConnection.open("127.0.0.1", self._port)

    async def push(self, connection: HTTPConnection, phase: Phase) -> None:
        began = time.perf_counter()
        status, _ = await connection.exchange(next(self._pushes))
        phase.add(status, time.perf_counter() - began)
        if status < TOO_MANY_REQUESTS:
            self.accepted += MESSAGES

    async def closed(self, pushers: int, seconds: float) -> Phase:
        """Closed loop: each pusher sends the next push after the response."""
        connections = [await self.open() for _ in range(pushers)]
        phase = Phase()

        async def pusher(connection: HTTPConnection) -> None:
            while time.perf_counter() < phase.began + seconds:
                await self.push(connection, phase)

        await asyncio.gather(*map(pusher, connections))
        phase.end()
        for connection in connections:
            connection.close()
        await self.drain()
        return phase

    async def offered(self, rate: float, seconds: float) -> float:
        """Returns the throughput at this arrival rate."""
        _, done, _ = await self.arriving(rate, seconds)
        await self.drain()
        return done

    async def drain(self) -> float:
        """Waits until all accepted messages are processed; returns the time taken."""
        began = time.perf_counter()
        deadline = began + DRAIN_SECONDS_MAX
        while self.done < self.accepted and time.perf_counter() < deadline:  # noqa: ASYNC110 (no event)
            await asyncio.sleep(0.02)
        return time.perf_counter() - began

    async def arriving(self, rate: float, seconds: float) -> tuple[Phase, float, int]:
        """Open loop: pushes arrive at `rate`; without a free connection they count as missed."""
        free: asyncio.Queue[HTTPConnection] = asyncio.Queue()
        for _ in range(ARRIVING):
            free.put_nowait(await self.open())
        phase, before, sending = Phase(), self.done, set[asyncio.Task[None]]()

        async def one(connection: HTTPConnection) -> None:
            # The service closes idle connections.
            if connection.is_closed:
                connection = await self.open()
            await self.push(connection, phase)
            free.put_nowait(connection)

        arrived, missed = 0, 0
        while (now := time.perf_counter() - phase.began) < seconds:
            while arrived < now * rate:
                arrived += 1
                if free.empty():
                    missed += 1
                    continue
                task = asyncio.create_task(one(free.get_nowait()))
                sending.add(task)
                task.add_done_callback(sending.discard)
            await asyncio.sleep(0.002)
        phase.end()
        rate = (self.done - before) / phase.seconds
        await asyncio.gather(*sending)
        while not free.empty():
            free.get_nowait().close()
        return phase, rate, missed


def _push(chance: random.Random) -> bytes:
    lanes = [str(chance.randrange(LANES)) for _ in range(MESSAGES)]
    items = [{"queue": "load", "partition": lane, "payload": 1} for lane in lanes]
    return request("POST", "/api/v1/push", {"items": items})


@contextmanager
def consuming(port: int) -> Iterator["Synchronized[int]"]:
    """Runs consumers in their own process, so that pushers do not slow them down. Yields the
    number of acknowledged messages."""
    spawned = multiprocessing.get_context("spawn")
    done = spawned.Value("q", 0)
    process = spawned.Process(target=_consume_all, args=(port, done), daemon=True)
    process.start()
    try:
        yield done
    finally:
        process.terminate()
        process.join()


def _consume_all(port: int, done: "Synchronized[int]") -> None:
    async def consume() -> None:
        await asyncio.gather(*(_consume(port, done) for _ in range(CONSUMERS)))

    uvloop.run(consume())


async def _consume(port: int, done: "Synchronized[int]") -> None:
    connection = await HTTPConnection.open("127.0.0.1", port)
    path = f"/api/v1/pop/queue/load?batch={BATCH}&wait=true&timeout=500"
    while True:
        status, answer = await connection.ask("GET", path)
        if status == TOO_MANY_REQUESTS:
            await asyncio.sleep(0.1)
            continue
        if acks := [_ack(message) for message in answer["messages"]]:
            await connection.send("POST", "/api/v1/ack/batch", {"acknowledgments": acks})
            done.value += len(acks)


def _ack(message: dict[str, Any]) -> dict[str, Any]:
    named = {name: message[name] for name in ("transactionId", "partitionId", "leaseId")}
    return {**named, "status": "completed"}


@click.command("overload")
@click.option("--seconds", default=60.0, show_default=True, help="Length of the overload.")
@click.pass_obj
def command(choice: DatabaseChoice, seconds: float) -> None:
    """Measure throughput, latency and memory at three times the peak, and count lost messages."""
    with ExitStack() as stack:
        server = stack.enter_context(choice.conninfo(console.print))
        console.print(describe_server(server))
        database = stack.enter_context(scratch_database(server))
        # All connections come from one address.
        settings = {"DAYBOOK_CONNECTIONS_PER_ADDRESS_MAX": str(2 * ARRIVING)}
        port = stack.enter_context(service(database, **settings))
        done = stack.enter_context(consuming(port))
        uvloop.run(_measure(Scene(port, done), seconds))


async def _measure(scene: Scene, seconds: float) -> None:
    await scene.closed(FEW, seconds / 12)
    normal = await scene.closed(FEW, seconds / 6)
    rates = {offered: await scene.offered(offered, seconds / 12) for offered in OFFERED}
    listed = ", ".join(f"{offered}: {rate:,.0f}" for offered, rate in rates.items())
    console.print(f"done/s by how many pushes arrive: {listed}")
    most = max(rates, key=rates.__getitem__)
    # Measured before and after, because machines are noisy.
    before = await scene.offered(most, seconds / 6)
    memory = _memory_megabytes()
    too_much, rate, missed = await scene.arriving(TOO_MUCH * before / MESSAGES, seconds)
    memory_after = _memory_megabytes()
    drained = await scene.drain()
    after = await scene.offered(most, seconds / 6)
    peak = (before + after) / 2
    console.print(f"usual: p99 {normal.p99_ms:.1f} ms; peak: {before:,.0f} and {after:,.0f} done/s")
    statuses = f"{too_much.statuses}, {missed} not sent"
    console.print(f"{TOO_MUCH} times the peak for {seconds:.0f} s: {statuses}")
    console.print(f"done/s ÷ peak: {ratio(rate, peak)} (to reach: {RATE_TARGET:g})")
    latency = ratio(too_much.p99_ms, normal.p99_ms)
    console.print(f"p99 of accepted pushes ÷ usual: {latency} (at most: {LATENCY_TARGET:g})")
    console.print(f"memory: {memory:.0f} MB before, {memory_after:.0f} MB after")
    console.print(
        f"accepted {scene.accepted:,}, done {scene.done:,}, drained after {drained:.0f} s"
    )


def _memory_megabytes() -> float:
    """Memory of the service, which is a child of this process."""
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):
            text = status.read_text()
            command = (status.parent / "cmdline").read_bytes()
            if f"PPid:\t{os.getpid()}\n" in text and b"--database-url" in command:
                return int(text.split("VmRSS:")[1].split()[0]) / 1024
    return 0.0
