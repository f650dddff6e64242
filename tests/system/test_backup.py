"""A backup taken under load is restored and equals the beginning of the log."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from daybook.eventlog.postgres.embedded.binaries import choose_binaries
from tests.support.api_tickets import call_next, join, open_counter_api, open_restaurant
from tests.support.asgi_client import Api
from tests.support.committer import rows
from tests.support.running.processes import daybook

pytestmark = pytest.mark.anyio

BIN = choose_binaries(Path("nowhere"), None).bindir
READ_LOG = """
SELECT notification_id, originator_id, originator_version, topic, state, command_id, actor
FROM stored_events
WHERE notification_id <= %(upto)s
ORDER BY notification_id
"""
READ_END = "SELECT max(notification_id) FROM stored_events"


@asynccontextmanager
async def busy(api: Api) -> AsyncIterator[None]:
    """Orders, jobs and guests keep coming."""
    is_over = False

    async def work(number: int) -> None:
        while not is_over:
            order, _ = await api.cooking()
            await api.patch(f"/api/orders/{order['id']}", {"status": "COMPLETE"})
            await api.post("/api/jobs", {"queue": "q", "type": "t", "payload": number})
            await join(api, number)
            await call_next(api)

    tasks = [asyncio.create_task(work(number)) for number in range(4)]
    await asyncio.sleep(0.5)
    try:
        yield
    finally:
        await asyncio.sleep(0.2)
        is_over = True
        await asyncio.gather(*tasks)


def run(program: str, *arguments: str) -> None:
    subprocess.run([BIN / program, *arguments], check=True, capture_output=True, timeout=60)


async def test_a_backup_under_load_is_a_beginning_of_the_log_and_works(
    own_database: str, empty_database: str, tmp_path: Path
) -> None:
    dump = str(tmp_path / "daybook.dump")
    roomy = {"tickets_per_mobile_max": 1000}
    async with open_counter_api(own_database, **roomy) as api:
        await open_restaurant(api)
        async with busy(api):
            arguments = ("--format=custom", "--file", dump, "--dbname", own_database)
            await asyncio.to_thread(run, "pg_dump", *arguments)
    name = str(conninfo_to_dict(empty_database)["dbname"])
    await asyncio.to_thread(run, "pg_restore", "--exit-on-error", "--dbname", empty_database, dump)

    ((end,),), ((head,),) = end_of(empty_database), end_of(own_database)
    assert 0 < end < head, "what came after the backup is not in it"
    upto = {"upto": end}
    assert log_of(empty_database, upto) == log_of(own_database, upto)
    verified = await asyncio.to_thread(
        daybook, "rebuild", "--all", "--verify-only", "--database-url", empty_database
    )
    assert verified.returncode == 0, verified.stdout + verified.stderr
    # It continues from there with unused numbers.
    async with open_counter_api(empty_database, **roomy) as api:
        await api.order()
        await join(api, 9)
    assert name != conninfo_to_dict(own_database)["dbname"]


def end_of(conninfo: str) -> list[tuple[int]]:
    return rows(conninfo, READ_END)


def log_of(conninfo: str, upto: dict[str, int]) -> list[tuple[object, ...]]:
    with psycopg.connect(conninfo, options="-c search_path=daybook") as connection:
        return connection.execute(READ_LOG, upto).fetchall()
