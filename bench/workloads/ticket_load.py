"""Load on a restaurant's waitlist with several service processes, and a check of its log.

Guests arrive at a steady rate; some repeat their request to another process. Each process serves
one desk that calls guests and sometimes repeats a call.
"""

import asyncio
import random
import time
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
from msgspec import Struct, field

from bench.harness.client import HTTPConnection
from bench.harness.service import service
from daybook.eventlog.postgres.connections import owner_conninfo

SLUG = "trattoria"
LINE = f"/api/restaurants/{SLUG}"
CONNECTIONS = 24
# All guests come from one address, as at a kiosk.
KIOSK_KEY = "measured-at-the-kiosk"
REPEATED_SHARE = 0.1

READ_LINE = """
SELECT topic, data, aggregate_id
FROM log
WHERE topic LIKE 'ticket.%%' OR topic LIKE 'restaurant.guest%%'
ORDER BY position
"""
READ_DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"


@contextmanager
def serving(database: str, processes: int) -> Iterator[list[int]]:
    """Runs services on one database with one guest key; yields their ports."""
    with TemporaryDirectory() as directory, ExitStack() as running:
        key = Path(directory, "guest.key")
        key.write_bytes(b64encode(bytes(range(32))))
        key.chmod(0o600)
        settings = {"DAYBOOK_GUEST_KEY_FILE": str(key), "DAYBOOK_KIOSK_KEYS": KIOSK_KEY}
        yield [running.enter_context(service(database, **settings)) for _ in range(processes)]


class Seen(Struct):
    """Responses and latencies as the clients recorded them."""

    join_seconds: list[float] = field(default_factory=list)
    call_seconds: list[float] = field(default_factory=list)
    tokens: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Token and position by ticket id."""

    called: list[str] = field(default_factory=list)
    unequal_count: int = 0
    """Repeated requests that got different responses."""


class Found(Struct):
    """Counts from the log. All but the first two are faults."""

    joins: int = 0
    calls: int = 0
    wrong_tokens: int = 0
    wrong_positions: int = 0
    called_twice: int = 0
    out_of_order: int = 0
    unacknowledged: int = 0
    deadlocks: int = 0

    @property
    def faults(self) -> int:
        return (
            self.wrong_tokens
            + self.wrong_positions
            + self.called_twice
            + self.out_of_order
            + self.unacknowledged
            + self.deadlocks
        )


class Client:
    """A pool of connections to one process."""

    def __init__(self, connections: Sequence[HTTPConnection]) -> None:
        self._all = connections
        self._free: asyncio.Queue[HTTPConnection] = asyncio.Queue()
        for one in connections:
            self._free.put_nowait(one)

    @classmethod
    async def open(cls, port: int) -> "Client":
        connections = [await HTTPConnection.open("127.0.0.1", port) for _ in range(CONNECTIONS)]
        return cls(connections)

    async def send(self, path: str, body: Any, key: str) -> Any:
        connection = await self._free.get()
        try:
            headers = f"Idempotency-Key: {key}\r\nDaybook-Kiosk-Key: {KIOSK_KEY}\r\n"
            return await connection.send("POST", path, body, headers=headers)
        finally:
            self._free.put_nowait(connection)

    def close(self) -> None:
        for one in self._all:
            one.close()


async def load(ports: Sequence[int], *, per_minute: float, seconds: float, seed: int = 1) -> Seen:
    seen, chance = Seen(), random.Random(seed)
    clients = [await Client.open(port) for port in ports]
    opened = {"slug": SLUG, "name": "Trattoria", "noShowGraceSeconds": None}
    await clients[0].send("/api/restaurants", opened, "open")
    until = time.perf_counter() + seconds
    pace = 60 / per_minute
    desks = [
        asyncio.create_task(_desk(clients, n, seen, until, pace * len(clients)))
        for n in range(len(clients))
    ]
    guests: list[asyncio.Task[None]] = []
    began, count = time.perf_counter(), round(seconds / pace)
    for n in range(count):
        # Open loop: a slow response does not delay the next guest.
        await asyncio.sleep(max(0, began + n * pace - time.perf_counter()))
        guests.append(
            asyncio.create_task(_guest(clients, n, seen, chance.random() < REPEATED_SHARE))
        )
    await asyncio.gather(*guests, *desks)
    for client in clients:
        client.close()
    return seen


async def _guest(clients: Sequence[Client], n: int, seen: Seen, again: bool) -> None:
    body = {"name": f"Guest {n}", "mobileNumber": f"+49170{n:07d}", "partySize": 1 + n % 6}
    first = clients[n % len(clients)]
    others = [one for one in clients if one is not first] if again else []
    answers = await asyncio.gather(
        _timed(seen.join_seconds, first.send(f"{LINE}/tickets", body, f"join-{n}")),
        *(one.send(f"{LINE}/tickets", body, f"join-{n}") for one in others),
    )
    seen.unequal_count += sum(one != answers[0] for one in answers)
    ticket = answers[0]["ticket"]
    seen.tokens[ticket["id"]] = ticket["tokenNumber"], ticket["positionAtJoin"]


async def _desk(
    clients: Sequence[Client], n: int, seen: Seen, until: float, pause_seconds: float
) -> None:
    chance, calls = random.Random(n), 0
    own, other = clients[n], clients[n - 1]
    while time.perf_counter() < until:
        key, calls = f"desk-{n}-{calls}", calls + 1
        body = {"desk": f"D{n}"}
        answer = await _timed(seen.call_seconds, own.send(f"{LINE}/call-next", body, key))
        if chance.random() < REPEATED_SHARE:
            again = await other.send(f"{LINE}/call-next", body, key)
            seen.unequal_count += again != answer
        if answer is not None:
            ticket_id = answer["ticket"]["id"]
            seen.called.append(ticket_id)
            await own.send(f"{LINE}/tickets/{ticket_id}/seat", {}, f"seat-{ticket_id}")
        await asyncio.sleep(pause_seconds)


async def _timed(seconds: list[float], sending: Any) -> Any:
    began = time.perf_counter()
    answer = await sending
    seconds.append(time.perf_counter() - began)
    return answer


def check_log(conninfo: str, seen: Seen) -> Found:
    """Replays the waitlist with sets and numbers only, without product code."""
    with psycopg.connect(owner_conninfo(conninfo)) as connection:
        ((deadlocks,),) = connection.execute(READ_DEADLOCKS).fetchall()
        events = connection.execute(READ_LINE).fetchall()
    found = replay(events)
    found.deadlocks = deadlocks
    called = {str(ticket) for topic, _, ticket in events if topic == "ticket.called"}
    acknowledged = {*seen.tokens}
    logged = {str(ticket) for topic, _, ticket in events if topic == "ticket.created"}
    found.unacknowledged = len(acknowledged ^ logged) + len({*seen.called} - called)
    return found


def replay(events: Iterable[tuple[str, dict[str, Any], object]]) -> Found:
    found = Found()
    waiting: dict[object, None] = {}
    called: set[object] = set()
    for topic, data, ticket in events:
        if topic == "ticket.created":
            found.joins += 1
            number = data["sequence"]
            shown = f"R{SLUG.upper()}-{number:06d}"
            found.wrong_tokens += number != found.joins or data["token_number"] != shown
            found.wrong_positions += data["position_at_join"] != len(waiting) + 1
            waiting[ticket] = None
        elif topic == "ticket.called":
            found.calls += 1
            found.called_twice += ticket in called
            found.out_of_order += ticket != next(iter(waiting), None)
            called.add(ticket)
            waiting.pop(ticket, None)
    return found
