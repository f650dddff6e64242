"""Shared resources of handlers and web application: database pool and vendor clients."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from msgspec import Struct
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from daybook import ClaimedJob, Fail
from examples.bookings import bookings
from examples.bookings.bookings import Booking
from examples.bookings.settings import BadSettings, Settings
from examples.bookings.vendor import Vendor

SCHEMA = Path(__file__).with_name("schema.sql")
CONNECTIONS_MAX = 10
WAIT_SECONDS_MAX = 5.0
SESSION = "-c statement_timeout=10s -c timezone=UTC"

Pool = AsyncConnectionPool[AsyncConnection[Any]]


class Office(Struct, frozen=True, kw_only=True):
    settings: Settings
    database: Pool
    invoices: Vendor
    mail: Vendor
    pos: Vendor

    async def booking_of(self, job: ClaimedJob) -> Booking:
        async with self.database.connection() as connection:
            booking = await bookings.find(connection, int(job.subject or 0))
        if booking is None:
            raise Fail(f"There is no booking {job.subject}.")
        return booking


@asynccontextmanager
async def open_office(settings: Settings) -> AsyncIterator[Office]:
    # The vendors are internal: no proxy of the environment applies.
    http = httpx2.AsyncClient(timeout=settings.answer_seconds_max, trust_env=False)
    async with http, _pool(settings) as database:
        async with database.connection() as connection:
            await connection.execute(SCHEMA.read_bytes())
        yield Office(
            settings=settings,
            database=database,
            invoices=Vendor("invoice", settings.invoices_url, http),
            mail=Vendor("mail", settings.mail_url, http),
            pos=Vendor("POS", settings.pos_url, http),
        )


def _pool(settings: Settings) -> Pool:
    return AsyncConnectionPool(
        settings.database_url or running_database(),
        kwargs={"options": SESSION},
        min_size=1,
        max_size=CONNECTIONS_MAX,
        timeout=WAIT_SECONDS_MAX,
        open=False,
    )


def running_database() -> str:
    """Returns the embedded PostgreSQL of a `./run` on this machine."""
    from daybook.api.settings.environment import from_environment
    from daybook.eventlog.postgres.embedded import running_conninfo

    conninfo = running_conninfo(from_environment({}).data_dir)
    if conninfo is None:
        raise BadSettings("Daybook does not run here: start ./run first, or set DATABASE_URL.")
    return conninfo
