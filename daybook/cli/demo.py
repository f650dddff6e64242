"""`daybook demo`: a restaurant with simulated guests, VIPs and bots.

The simulation uses the public HTTP API only. Its random generator has a fixed seed.
"""

import asyncio
import random
import shutil
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
from msgspec import Struct
from msgspec.structs import replace
from rich.console import Console

from daybook.api.server.run import serve
from daybook.api.server.signals import StopSignals
from daybook.api.settings.settings import Settings
from daybook.cli.terminal import echo
from daybook.printable import printable

Say = Callable[[str], None]
Show = Callable[["Status"], None]

DELAY_SECONDS = 3.0
SEED = 1889
WAITING_MAX = 30
BOTS_MIN = 2
BOTS_MAX = 6
COOKS = 2
ASK_SECONDS_MAX = 10.0
SHOW_SECONDS = 1.0
MISHAPS = ("The sauce has burnt.", "The fryer has tripped the fuse.", "Out of buns.")


class Status(Struct, frozen=True):
    waiting_count: int
    vips_count: int
    bots_count: int
    busy_count: int
    served_count: int
    dead_count: int

    def __str__(self) -> str:
        return (
            f"{self.waiting_count} waiting ({self.vips_count} VIP), "
            f"{self.busy_count} of {self.bots_count} bots cooking, "
            f"{self.served_count} served, {self.dead_count} given up"
        )


@contextmanager
def shown() -> Iterator[Show]:
    """Updates one line on a terminal; writes one line per status elsewhere."""
    console = Console()
    if not console.is_terminal:
        yield lambda status: echo(str(status))
        return
    with console.status("The restaurant is starting.") as line:
        yield lambda status: line.update(printable(str(status)))


def run(
    settings: Settings,
    signals: StopSignals,
    *,
    data_dir: Path | None,
    say: Say,
    announce: Say,
    show: Show,
) -> None:
    """Runs until a stop signal. Without a data directory its data is deleted. It always uses its
    own database and ignores DATABASE_URL."""
    simulation = Simulation(show)

    def start(url: str) -> None:
        announce(url)
        simulation.begin(url)

    with data_directory(data_dir) as directory:
        own = replace(
            settings,
            data_dir=directory,
            database_url=None,
            qstash_token=None,
            # Open access is refused on any address but this machine's.
            auth="open",
            processing_delay_seconds=DELAY_SECONDS,
        )
        try:
            serve(own, signals, say=say, announce=start)
        finally:
            simulation.end()


@contextmanager
def data_directory(chosen: Path | None) -> Iterator[Path]:
    if chosen is not None:
        yield chosen
        return
    made = Path(tempfile.gettempdir(), f"daybook-demo-{uuid4().hex}")
    # From before it exists: a stop signal may come at any moment.
    try:
        made.mkdir(mode=0o700)
        # PostgreSQL may run as another user, which needs to enter the directory.
        made.chmod(0o701)
        yield made / "data"
    finally:
        shutil.rmtree(made, ignore_errors=True)


class Simulation:
    """Runs guests and bots in a thread beside the service's."""

    def __init__(self, show: Show) -> None:
        self._show = show
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._thread: threading.Thread | None = None

    def begin(self, url: str) -> None:
        self._thread = threading.Thread(target=self._run, args=(url,))
        self._thread.start()

    def end(self) -> None:
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._over.set)
            self._thread.join()
        self._loop.close()

    def _run(self, url: str) -> None:
        self._loop.run_until_complete(self._simulate(url))

    async def _simulate(self, url: str) -> None:
        async with restaurant(url) as demo:
            roles = [
                demo.repeat(demo.order, 0.7),
                demo.repeat(demo.change_bots, 4),
                demo.repeat(demo.requeue_dead, 8),
                *(demo.repeat(demo.cook, 0.6) for _ in range(COOKS)),
                self._watch(demo),
            ]
            tasks = [asyncio.create_task(role) for role in roles]
            over = asyncio.create_task(self._over.wait())
            await asyncio.wait([over, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, demo: "DemoRestaurant") -> None:
        while True:
            with suppress(httpx2.HTTPError):
                self._show(await demo.status())
            await asyncio.sleep(SHOW_SECONDS)


@asynccontextmanager
async def restaurant(url: str, seed: int = SEED) -> AsyncIterator["DemoRestaurant"]:
    chance = random.Random(seed)  # noqa: S311 (simulation only)
    async with httpx2.AsyncClient(base_url=url, timeout=ASK_SECONDS_MAX, trust_env=False) as client:
        yield DemoRestaurant(client, chance)


class DemoRestaurant:
    def __init__(self, client: httpx2.AsyncClient, chance: random.Random) -> None:
        self._client = client
        self._chance = chance
        self._guests_count = 0
        self._ordered_count = 0
        self._bots: list[str] = []
        self._resting_cooks: list[str] = []
        self._open_at_first: int | None = None

    async def repeat(self, action: Callable[[], Awaitable[None]], seconds: float) -> None:
        """Repeats at random intervals of `seconds` on average; ignores refusals."""
        while True:
            with suppress(httpx2.HTTPError):
                await action()
            await asyncio.sleep(self._chance.expovariate(1 / seconds))

    async def order(self) -> None:
        """Creates an order, unless WAITING_MAX orders are pending."""
        waiting = await self._orders("PENDING")
        if len(waiting) >= WAITING_MAX:
            return
        self._guests_count += 1
        kind = "VIP" if self._chance.random() < 0.25 else "NORMAL"
        body = {"type": kind, "userId": f"guest-{self._guests_count}"}
        await self._ask("POST", "/api/orders", body)
        self._ordered_count += 1

    async def change_bots(self) -> None:
        """Adds a bot, or deletes the newest one, which may be busy."""
        missing = BOTS_MIN - len(self._bots)
        wanted = len(self._bots) < BOTS_MAX and self._chance.random() < 0.55
        for _ in range(max(missing, int(wanted))):
            answer = await self._ask("POST", "/api/bots", {"autoClaim": True})
            self._bots.append(answer["bot"]["id"])
        if missing <= 0 and not wanted:
            await self._ask("DELETE", f"/api/bots/{self._bots.pop()}")

    async def cook(self) -> None:
        """Claims with a bot that reports itself: completion, failure, or nothing."""
        if not self._resting_cooks:
            created = await self._ask("POST", "/api/bots", {"completion": "ack"})
            self._resting_cooks.append(created["bot"]["id"])
        bot_id = self._resting_cooks.pop()
        order = (await self._ask("POST", f"/api/bots/{bot_id}/claim"))["order"]
        if order is not None:
            await asyncio.sleep(self._chance.uniform(0.5, 0.8 * DELAY_SECONDS))
            await self._report(order)
        self._resting_cooks.append(bot_id)

    async def _report(self, order: Any) -> None:
        path, claim, luck = f"/api/orders/{order['id']}", order["claimId"], self._chance.random()
        if luck < 0.7:
            await self._ask("PATCH", path, {"status": "COMPLETE", "claimId": claim})
        elif luck < 0.85:
            failure = {"claimId": claim, "error": self._chance.choice(MISHAPS), "retryable": True}
            await self._ask("POST", f"{path}/fail", failure)
        else:
            await asyncio.sleep(DELAY_SECONDS + 1)

    async def requeue_dead(self) -> None:
        for order in await self._orders("DEAD"):
            await self._ask("POST", f"/api/orders/{order['id']}/requeue")

    async def status(self) -> Status:
        waiting, dead = await self._orders("PENDING"), await self._orders("DEAD")
        bots = (await self._ask("GET", "/api/bots"))["bots"]
        busy_count = sum(bot["status"] == "PROCESSING" for bot in bots)
        open_count = len(waiting) + len(dead) + busy_count
        if self._open_at_first is None:
            self._open_at_first = open_count - self._ordered_count
        return Status(
            waiting_count=len(waiting),
            vips_count=sum(order["type"] == "VIP" for order in waiting),
            bots_count=len(bots),
            busy_count=busy_count,
            served_count=max(0, self._open_at_first + self._ordered_count - open_count),
            dead_count=len(dead),
        )

    async def _orders(self, status: str) -> list[Any]:
        answer = await self._ask("GET", f"/api/orders?status={status}&limit=500")
        orders: list[Any] = answer["orders"]
        return orders

    async def _ask(self, method: str, path: str, body: object = None) -> Any:
        answer = await self._client.request(method, path, json=body)
        answer.raise_for_status()
        return answer.json()
