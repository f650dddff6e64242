"""`daybook bench keys`: cost of API key authentication, against open access."""

import asyncio
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from bench.harness.client import HTTPConnection
from bench.harness.rounds import Contender, Round, console, measure, ratio, show
from bench.harness.scratch_database import describe_server, scratch_database
from bench.harness.service import service
from bench.http import CONNECTIONS
from bench.workloads.order_lifecycle import run
from bench.write import DatabaseChoice
from daybook.api.keys.access import CLIENT, STAFF
from daybook.api.keys.key_admin import ApiKeyAdmin
from daybook.api.keys.key_cache import ApiKeyCache
from daybook.api.keys.key_format import WrittenKey, new_key_text, new_name
from daybook.api.login.authentication import Authenticator
from daybook.api.settings.public_hosts import KnownHosts
from daybook.api.settings.settings import Settings
from daybook.domain.api_keys.commands import IssueKey, RevokeKey

OPEN = "open access"
WITH_KEY = "with a key"
CHECKS_COUNT = 50_000
REVOCATIONS_COUNT = 20
ISSUED_AT_ONCE = 200
BROWSER_LIKE = [
    (b"host", b"127.0.0.1:8000"),
    (b"accept", b"*/*"),
    (b"accept-encoding", b"identity"),
    (b"user-agent", b"bench"),
    (b"content-type", b"application/json"),
    (b"content-length", b"17"),
]


@click.command("keys")
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1))
@click.option("--seconds", default=2.0, show_default=True, help="Length of one round.")
@click.option("--keys", default=10_000, show_default=True, help="Number of keys.")
@click.pass_obj
def command(choice: DatabaseChoice, rounds: int, seconds: float, keys: int) -> None:
    """Measure requests/s with and without a key, the cost of a check, and of a revocation."""
    with ExitStack() as stack:
        server = stack.enter_context(choice.conninfo(console.print))
        console.print(describe_server(server))
        _requests(stack, server, rounds, seconds)
        for count in (1, keys):
            database = stack.enter_context(scratch_database(server))
            asyncio.run(_measure_checks(database, count))


def _requests(stack: ExitStack, server: str, rounds: int, seconds: float) -> None:
    contenders = []
    for name, auth in ((OPEN, "open"), (WITH_KEY, "keys")):
        directory = stack.enter_context(TemporaryDirectory())
        database = stack.enter_context(scratch_database(server))
        settings = {"DAYBOOK_AUTH": auth, "DAYBOOK_DATA_DIR": directory}
        port = stack.enter_context(service(database, **settings))
        contenders.append(Contender(name, partial(_round, port, _header(Path(directory)))))
    results = measure(contenders, rounds=rounds, seconds=seconds)
    show("Orders created, one process, 64 connections", "requests/s", results, baseline=OPEN)


def _header(directory: Path) -> str:
    path = directory / "admin.key"
    return f"Authorization: Bearer {path.read_text().strip()}\r\n" if path.exists() else ""


def _round(port: int, header: str, seconds: float) -> Round:
    async def create(connection: HTTPConnection, latencies: list[float], until: float) -> None:
        while (began := time.perf_counter()) < until:
            await connection.send("POST", "/api/orders", {"type": "NORMAL"}, headers=header)
            latencies.append(time.perf_counter() - began)

    async def one_round() -> Round:
        latencies: list[float] = []
        connections = [await HTTPConnection.open("127.0.0.1", port) for _ in range(CONNECTIONS)]
        began = time.perf_counter()
        await asyncio.gather(*(create(one, latencies, began + seconds) for one in connections))
        took = time.perf_counter() - began
        for one in connections:
            one.close()
        return Round(count=len(latencies), seconds=took, latencies=latencies)

    return run(one_round())


async def _measure_checks(database: str, count: int) -> None:
    async with ApiKeyAdmin(database, actor="bench") as admin:
        texts = [new_key_text("client", new_name()) for _ in range(count)]
        for first in range(0, count, ISSUED_AT_ONCE):
            some = texts[first : first + ISSUED_AT_ONCE]
            await asyncio.gather(*(admin.submit(_issue(text)) for text in some))
        async with ApiKeyCache(database) as key_cache:
            hosts = KnownHosts(Settings(data_dir=Path("unused"), auth="open"))
            with_key = [*BROWSER_LIKE, (b"authorization", b"Bearer " + texts[0].write().encode())]
            checks = {
                name: _microseconds(Authenticator(authenticator, hosts=hosts), headers)
                for name, authenticator, headers in (
                    (OPEN, None, BROWSER_LIKE),
                    (WITH_KEY, key_cache, with_key),
                )
            }
            began = time.perf_counter()
            await key_cache.refresh()
            refresh = time.perf_counter() - began
            delays = sorted(
                [await _revoked_after(admin, key_cache) for _ in range(REVOCATIONS_COUNT)]
            )
    console.print(
        f"{count:,} keys: a check takes {checks[WITH_KEY]:.2f} µs (open access "
        f"{checks[OPEN]:.2f}); a refresh of the cache, four times a second, "
        f"{refresh * 1000:.2f} ms; a revocation takes p50 "
        f"{delays[len(delays) // 2] * 1000:.0f} ms, at most {delays[-1] * 1000:.0f} ms "
        f"({ratio(delays[-1], 1.0)} of the promised 1 s)"
    )


def _microseconds(authenticator: Authenticator, headers: Any) -> float:
    """Measures CPU time, which other load on the machine does not affect."""
    scope: dict[str, Any] = {"method": "POST", "query_string": b"", "headers": headers}
    needs = (CLIENT | STAFF).value
    began = time.process_time()
    for _ in range(CHECKS_COUNT):
        assert authenticator.check(scope, needs) is None
    return (time.process_time() - began) / CHECKS_COUNT * 1e6


async def _revoked_after(admin: ApiKeyAdmin, key_cache: ApiKeyCache) -> float:
    text = new_key_text("client", new_name())
    await admin.submit(_issue(text))
    await key_cache.refresh()
    caller = key_cache.caller(text.write().encode(), CLIENT.value)
    assert caller is not None
    revoked = asyncio.create_task(key_cache.wait_until_revoked(caller))
    await asyncio.sleep(0.01)
    await admin.submit(RevokeKey(name=text.name, reason="bench"))
    began = time.perf_counter()
    await revoked
    return time.perf_counter() - began


def _issue(text: WrittenKey) -> IssueKey:
    return IssueKey(
        name=text.name,
        holder="bench",
        scopes=("client",),
        digest=text.digest.hex(),
        reason="bench",
    )
