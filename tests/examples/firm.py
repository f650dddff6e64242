"""The bookings example with a Daybook service and listening stand-ins."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import date
from typing import Any
from uuid import UUID

import httpx2
import pytest
from msgspec import Struct
from msgspec.structs import replace

from daybook import AsyncClient, Job
from daybook.api.app import App
from daybook.api.runtime.service import Service
from examples.bookings import bookings, promotion, transfers
from examples.bookings.bookings import Booking, NewBooking
from examples.bookings.office import Office, open_office
from examples.bookings.serving import answering, listen, url_of
from examples.bookings.settings import Settings
from examples.bookings.standins import StandIns, new_standins
from examples.bookings.transfers import Transfer
from examples.bookings.web import signed, web_app
from examples.bookings.worker import bookings_worker, transfers_worker
from tests.support.asgi_client import some_settings
from tests.support.committer import rows

ADMINS = ("office@example.com", "boss@example.com")
SECONDS_MAX = 10.0
FINISHED = ("COMPLETED", "DEAD", "CANCELLED")

FIRST_THREE = ["issue_invoice", "send_customer_confirmation", "send_internal_confirmation"]
ALL_FOUR = [*FIRST_THREE, "send_invoice_ready"]


class Firm(Struct, frozen=True, kw_only=True):
    office: Office
    standins: StandIns
    client: AsyncClient
    web: httpx2.AsyncClient

    def with_settings(self, **changes: Any) -> "Firm":
        """As after a restart with other variables."""
        settings = replace(self.office.settings, **changes)
        return replace(self, office=replace(self.office, settings=settings))

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        await transfers.prepare_queue(self.client)
        workers = [bookings_worker(self.office), transfers_worker(self.office)]
        tasks = [asyncio.create_task(one.serve()) for one in workers]
        try:
            yield
        finally:
            # Twice, for a quick end: some tests leave them waiting for a vendor.
            for one in [*workers, *workers]:
                one.stop()
            await asyncio.gather(*tasks)

    async def book(self, **changes: Any) -> int:
        new = NewBooking(
            machine="Excavator",
            starts_on=date(2030, 5, 2),
            ends_on=date(2030, 5, 4),
            customer_name="Ada",
            customer_email="ada@example.com",
            total_cents=12_300,
        )
        async with self.office.database.connection() as connection:
            return await bookings.create(connection, replace(new, **changes))

    async def promote(self, booking_id: int) -> bool:
        async with self.office.database.connection() as connection:
            return await promotion.promote_booking(
                connection, booking_id, payment_intent_id=f"pi_{booking_id}"
            )

    async def paid(self, **changes: Any) -> int:
        booking_id = await self.book(**changes)
        assert await self.promote(booking_id)
        return booking_id

    async def announce_payment(
        self, booking_id: int, *, age_seconds: float = 0, secret: str | None = None
    ) -> httpx2.Response:
        """As Stripe does it."""
        session = {"payment_intent": f"pi_{booking_id}", "metadata": {"bookingId": str(booking_id)}}
        event = {"type": "checkout.session.completed", "data": {"object": session}}
        body = json.dumps(event).encode()
        return await self.announce(body, age_seconds=age_seconds, secret=secret)

    async def announce(
        self, body: bytes, *, age_seconds: float = 0, secret: str | None = None
    ) -> httpx2.Response:
        moment = str(int(time.time() - age_seconds))
        signature = signed(body, moment, secret or self.office.settings.webhook_secret)
        headers = {"Stripe-Signature": f"t={moment},v1={signature}"}
        return await self.web.post("/api/stripe/webhook", content=body, headers=headers)

    async def booking(self, booking_id: int) -> Booking:
        async with self.office.database.connection() as connection:
            found = await bookings.find(connection, booking_id)
        assert found is not None
        return found

    async def transfer(self, transfer_id: int) -> Transfer:
        async with self.office.database.connection() as connection:
            found = await transfers.find(connection, transfer_id)
        assert found is not None
        return found

    async def sent_emails(self, booking_id: int) -> dict[str, str]:
        query = "SELECT kind, message_id FROM bookings.sent_emails WHERE booking_id = %s"
        async with self.office.database.connection() as connection:
            cursor = await connection.execute(query, [booking_id])
            return dict(await cursor.fetchall())

    async def jobs(self, subject: int, queue: str = promotion.QUEUE) -> dict[str, Job]:
        """By type, of which a booking has one each."""
        listed = self.client.list(queue=queue, subject=str(subject))
        return {job.type: job async for job in listed}

    async def until(self, job_id: UUID, holds: Callable[[Job], bool]) -> Job:
        async with asyncio.timeout(SECONDS_MAX):
            while True:
                job = await self.client.get(job_id)
                if holds(job):
                    return job
                await asyncio.sleep(0.02)

    async def finished(
        self, subject: int, types: Sequence[str], queue: str = promotion.QUEUE
    ) -> dict[str, Job]:
        """Waits until the jobs of these types are there and over, and gives all there are."""
        async with asyncio.timeout(SECONDS_MAX):
            while True:
                jobs = await self.jobs(subject, queue)
                if all(type_ in jobs and jobs[type_].status in FINISHED for type_ in types):
                    return jobs
                await asyncio.sleep(0.02)


@asynccontextmanager
async def open_firm(conninfo: str, **changes: Any) -> AsyncIterator[Firm]:
    """Everything but workers; `changes` are of its settings."""
    standins = new_standins()
    with listen() as ours, listen() as others, listen() as daybook:
        settings = quick_settings(conninfo, *map(url_of, (ours, others, daybook)))
        settings = replace(settings, **changes)
        async with Service(conninfo) as service, open_office(settings) as office:
            app = App(service, some_settings())
            apps = {ours: web_app(office), others: standins.app, daybook: app}
            async with (
                answering(apps),
                AsyncClient(settings.daybook_url) as client,
                httpx2.AsyncClient(base_url=settings.base_url, timeout=SECONDS_MAX) as web,
            ):
                yield Firm(office=office, standins=standins, client=client, web=web)
                service.tail.end()
                service.job_waiters.end()
    rows(conninfo, "DROP SCHEMA bookings CASCADE")


def quick_settings(conninfo: str, base_url: str, standins_url: str, daybook_url: str) -> Settings:
    return Settings(
        database_url=conninfo,
        daybook_url=daybook_url,
        invoices_url=f"{standins_url}/invoices",
        mail_url=f"{standins_url}/mail",
        pos_url=f"{standins_url}/pos",
        base_url=base_url,
        invoicing_enabled=True,
        send_emails=True,
        email_admin_to=ADMINS,
        look_again_seconds=0.1,
        retry_seconds=0.02,
    )


def variables_of(settings: Settings) -> dict[str, str]:
    """For a process that is to work like this."""
    return {
        "DATABASE_URL": str(settings.database_url),
        "BASE_URL": settings.base_url,
        "BOOKINGS_DAYBOOK_URL": settings.daybook_url,
        "INVOICES_URL": settings.invoices_url,
        "MAIL_URL": settings.mail_url,
        "POS_URL": settings.pos_url,
        "INVOICING_ENABLED": "true" if settings.invoicing_enabled else "false",
        "SEND_EMAILS": "true" if settings.send_emails else "false",
        "EMAIL_ADMIN_TO": ",".join(settings.email_admin_to),
        "BOOKINGS_LOOK_AGAIN_SECONDS": str(settings.look_again_seconds),
        "BOOKINGS_RETRY_SECONDS": str(settings.retry_seconds),
        "BOOKINGS_ANSWER_SECONDS_MAX": str(settings.answer_seconds_max),
        "BOOKINGS_LEASE_SECONDS": str(settings.lease_seconds),
    }


def logged(log: pytest.LogCaptureFixture, event: str, **fields: Any) -> list[dict[str, Any]]:
    """Log lines with this name and these fields."""
    records = [vars(record) for record in log.records if record.getMessage() == event]
    return [one for one in records if fields.items() <= one.items()]
