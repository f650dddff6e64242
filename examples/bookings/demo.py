"""The demo: ten bookings, with failures of every vendor."""

import asyncio
from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any

from psycopg import AsyncConnection
from rich.table import Table

from daybook import AsyncClient, Job
from examples.bookings import bookings
from examples.bookings.bookings import NewBooking
from examples.bookings.office import Office
from examples.bookings.promotion import QUEUE, promote_booking
from examples.bookings.standins import StandIns
from examples.bookings.standins.standin import How

MACHINES = ("Excavator", "Concrete mixer", "Chain saw", "Scaffold")
FIRST_DAY = date(2030, 5, 2)
UNFINISHED = ("PENDING", "PROCESSING")
LOOK_SECONDS = 0.2

LIST_BOOKINGS = """
SELECT b.id, b.invoice_number,
       (SELECT count(*) FROM bookings.sent_emails s WHERE s.booking_id = b.id) AS emails_count
FROM bookings.bookings b
ORDER BY b.id DESC
LIMIT %(limit)s
"""


def inject_failures(standins: StandIns) -> None:
    """Makes vendors fail: server errors, rate limits, and responses lost after the effect."""
    standins.invoices.fail_next(2, How.ERROR, path="documents")
    standins.invoices.fail_next(1, How.LOST, path="documents")
    standins.mail.fail_next(2, How.BUSY)
    standins.pos.fail_next(1, How.LOST)


def new_booking(index: int) -> NewBooking:
    """The third customer has an invalid address; every second one has a tax number."""
    starts_on = FIRST_DAY + timedelta(days=index)
    return NewBooking(
        machine=MACHINES[index % len(MACHINES)],
        starts_on=starts_on,
        ends_on=starts_on + timedelta(days=2),
        customer_name=f"Customer {index + 1}",
        customer_email="not an address" if index == 2 else f"customer{index + 1}@example.com",
        customer_nif=f"50000{index:04}" if index % 2 else None,
        total_cents=12_300 + 1_111 * index,
    )


async def book(office: Office, count: int) -> list[int]:
    booking_ids = []
    for index in range(count):
        async with office.database.connection() as connection:
            booking_id = await bookings.create(connection, new_booking(index))
        async with office.database.connection() as connection:
            # In production the webhook of the payment service does this; see web.py.
            payment = f"pi_{booking_id}"
            await promote_booking(connection, booking_id, payment_intent_id=payment)
        booking_ids.append(booking_id)
    return booking_ids


async def jobs_of(client: AsyncClient, booking_id: int) -> list[Job]:
    return [job async for job in client.list(queue=QUEUE, subject=str(booking_id))]


async def all_done(client: AsyncClient, booking_ids: Sequence[int]) -> None:
    """Returns when no job is unfinished; snoozed jobs are unfinished."""
    left = list(booking_ids)
    while left:
        await asyncio.sleep(LOOK_SECONDS)
        left = [one for one in left if await _has_work(client, one)]


async def overview(office: Office, client: AsyncClient, count: int) -> Table:
    """Returns a table of the newest bookings and their jobs."""
    table = Table("booking", "invoice", "mails", "jobs")
    async with office.database.connection() as connection:
        for booking_id, *facts in await _newest(connection, count):
            jobs = await jobs_of(client, booking_id)
            lines = [_line(job) for job in sorted(jobs, key=lambda job: job.type)]
            table.add_row(str(booking_id), *(str(fact or "-") for fact in facts), "\n".join(lines))
    return table


async def _has_work(client: AsyncClient, booking_id: int) -> bool:
    return any(job.status in UNFINISHED for job in await jobs_of(client, booking_id))


async def _newest(connection: AsyncConnection[Any], count: int) -> list[Any]:
    cursor = await connection.execute(LIST_BOOKINGS, {"limit": count})
    return list(reversed(await cursor.fetchall()))


def _line(job: Job) -> str:
    tries = f", attempt {job.attempts}" if job.attempts > 1 else ""
    why = f": {job.error}" if job.error and job.status == "DEAD" else ""
    return f"{job.type} {job.status}{tries}{why}"
