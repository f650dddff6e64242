"""The bookings example in its own processes, also when they are killed."""

import asyncio
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from psycopg import AsyncConnection

from examples.bookings.serving import listen
from tests.conftest import reachable_directory
from tests.examples.firm import open_firm, variables_of
from tests.support.running.processes import (
    SECONDS_MAX,
    Process,
    environment,
    eventually,
    run_to_end,
)
from tests.support.running.service_process import ServiceWithPostgres

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

COMMAND = [sys.executable, "-m", "examples.bookings"]
TYPES = ["send_customer_confirmation", "send_internal_confirmation", "send_invoice_ready"]

# A worker that is gone must not record anything after all.
END_WAITERS = """
SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


@pytest.fixture(scope="module")
def variables() -> Iterator[dict[str, str]]:
    """Beside a service with its own PostgreSQL, as `./run` starts it."""
    directory = reachable_directory()
    try:
        with ServiceWithPostgres(directory) as service:
            with listen() as web, listen() as standins:
                ports = [str(one.getsockname()[1]) for one in (web, standins)]
            yield {
                "DAYBOOK_DATA_DIR": str(directory),
                "BOOKINGS_DAYBOOK_URL": service.url,
                "BOOKINGS_PORT": ports[0],
                "STANDINS_PORT": ports[1],
            }
    finally:
        shutil.rmtree(directory)


def run(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """To its end, on a terminal that is wide enough."""
    seconds_max = 2 * SECONDS_MAX
    variables = {"COLUMNS": "200", **variables}
    return run_to_end([*COMMAND, *arguments], variables, seconds_max=seconds_max)


async def happens(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            if holds():
                return
            await asyncio.sleep(0.02)


async def test_a_crash_between_sending_and_recording_sends_once_at_the_provider(
    database: str,
) -> None:
    # S4-28, D-64, D-71
    async with open_firm(database, lease_seconds=1.0) as firm:
        mail = firm.standins.mail
        booking_id = await firm.paid()
        async with await AsyncConnection.connect(database) as connection:
            # From here on writers of this table wait; readers do not.
            await connection.execute("LOCK TABLE bookings.sent_emails IN SHARE MODE")
            settings = environment(**variables_of(firm.office.settings))
            with Process([*COMMAND, "worker"], variables=settings) as worker:
                await happens(lambda: len(mail.messages) == len(TYPES))
                worker.kill()
            await connection.execute(END_WAITERS)
            assert await firm.sent_emails(booking_id) == {}
        async with firm.working():
            jobs = await firm.finished(booking_id, TYPES)
        recorded = await firm.sent_emails(booking_id)

    assert len(mail.messages) == len(TYPES)
    assert len(mail.received) == 2 * len(TYPES)
    assert set(recorded.values()) == {message["id"] for message in mail.messages}
    for type_ in TYPES:
        job = jobs[type_]
        assert (job.status, job.attempts, job.crashes) == ("COMPLETED", 2, 1)
        assert len([one for one in mail.received if one.key == job.effect_key]) == 2


def test_one_command_starts_everything_and_shows_the_bookings(
    variables: dict[str, str],
) -> None:
    # S4-08, S4-11, S4-12, S4-27, S4-29
    shown = run("--all", **variables)

    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.count("issue_invoice COMPLETED") == 10
    assert shown.stdout.count("send_customer_confirmation DEAD") == 1
    assert shown.stdout.count("send_invoice_ready DEAD") == 1
    assert shown.stdout.count("send_internal_confirmation COMPLETED") == 10
    events = [json.loads(line)["event"] for line in shown.stderr.splitlines()]
    assert {"jobs:created", "job:failed", "email:sent", "email:error"} <= {*events}


def test_the_programs_work_one_by_one(variables: dict[str, str]) -> None:
    flags = {"INVOICING_ENABLED": "true", "SEND_EMAILS": "true", "EMAIL_ADMIN_TO": "a@example.com"}
    with Process([*COMMAND, "serve"], variables=environment(**variables, **flags)) as serving:
        booked = run("book", "2", **variables)
        assert booked.returncode == 0, booked.stderr

        def all_sent() -> bool:
            return run("show", "2", **variables).stdout.count("COMPLETED") == 8

        assert eventually(all_sent)
        assert serving.signal_and_wait(signal.SIGTERM) == 0


def test_a_missing_daybook_is_reported() -> None:
    result = run("book", DAYBOOK_DATA_DIR="/nonexistent")

    assert result.returncode == 2
    assert result.stderr == "Daybook does not run here: start ./run first, or set DATABASE_URL.\n"
