"""All statements on the tables `bookings.bookings` and `bookings.sent_emails`.

Callers pass a connection and control the transaction.
"""

from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import Any

from msgspec import Struct, convert
from msgspec.structs import asdict
from psycopg import AsyncConnection
from psycopg.rows import dict_row

CREATE_BOOKING = """
INSERT INTO bookings.bookings
    (machine, starts_on, ends_on, customer_name, customer_email, customer_nif, total_cents)
VALUES
    (%(machine)s, %(starts_on)s, %(ends_on)s, %(customer_name)s, %(customer_email)s,
     %(customer_nif)s, %(total_cents)s)
RETURNING id
"""

READ_BOOKING = """
SELECT id, status, machine, starts_on, ends_on, customer_name, customer_email, customer_nif,
       total_cents, payment_intent_id, confirmed_at, invoice_number, invoice_pdf_url
FROM bookings.bookings
WHERE id = %(id)s
"""

# The condition lets one of two callers pass; the row lock makes the other wait for it.
CONFIRM_BOOKING = """
UPDATE bookings.bookings
SET status = 'CONFIRMED', confirmed_at = now(), payment_intent_id = %(payment_intent_id)s
WHERE id = %(id)s AND status = 'PENDING'
"""

RECORD_INVOICE = """
UPDATE bookings.bookings
SET invoice_number = %(number)s, invoice_pdf_url = %(pdf_url)s
WHERE id = %(id)s
"""

# Decided once for all attempts of a job: a request repeated under the same key must be identical.
# A restarted job has another key, and its mail gets a fresh link.
DECIDE_LINK = """
UPDATE bookings.bookings
SET invoice_link_key = %(key)s,
    invoice_link_until = CASE WHEN invoice_link_key = %(key)s THEN invoice_link_until
                              ELSE date_trunc('second', now()) + %(lifetime)s END
WHERE id = %(id)s
RETURNING invoice_link_until
"""

FIND_EMAIL = """
SELECT message_id FROM bookings.sent_emails WHERE booking_id = %(id)s AND kind = %(kind)s
"""

RECORD_EMAIL = """
INSERT INTO bookings.sent_emails (booking_id, kind, message_id)
VALUES (%(id)s, %(kind)s, %(message_id)s)
ON CONFLICT DO NOTHING
"""


class BookingStatus(StrEnum):
    PENDING = "PENDING"
    CONFIRMED = "CONFIRMED"
    CANCELLED = "CANCELLED"


class NewBooking(Struct, frozen=True, kw_only=True):
    machine: str
    starts_on: date
    ends_on: date
    customer_name: str
    customer_email: str
    customer_nif: str | None = None
    """The customer's tax number, optional."""

    total_cents: int
    """VAT included."""


class Booking(NewBooking, frozen=True, kw_only=True):
    id: int
    status: BookingStatus
    payment_intent_id: str | None
    confirmed_at: datetime | None
    invoice_number: str | None
    invoice_pdf_url: str | None

    @property
    def is_invoiced(self) -> bool:
        return self.invoice_number is not None and self.invoice_pdf_url is not None


async def create(connection: AsyncConnection[Any], new: NewBooking) -> int:
    cursor = await connection.execute(CREATE_BOOKING, asdict(new))
    row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


async def find(connection: AsyncConnection[Any], booking_id: int) -> Booking | None:
    async with connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(READ_BOOKING, {"id": booking_id})
        row = await cursor.fetchone()
    return None if row is None else convert(row, Booking)


async def confirm(
    connection: AsyncConnection[Any], booking_id: int, payment_intent_id: str
) -> bool:
    """Returns whether the booking was pending."""
    parameters = {"id": booking_id, "payment_intent_id": payment_intent_id}
    cursor = await connection.execute(CONFIRM_BOOKING, parameters)
    return cursor.rowcount == 1


async def record_invoice(
    connection: AsyncConnection[Any], booking_id: int, *, number: str, pdf_url: str
) -> None:
    parameters = {"id": booking_id, "number": number, "pdf_url": pdf_url}
    await connection.execute(RECORD_INVOICE, parameters)


async def decide_link(
    connection: AsyncConnection[Any], booking_id: int, *, key: str, lifetime: timedelta
) -> datetime:
    """Returns the expiry of the link that the job with this effect key sends."""
    parameters = {"id": booking_id, "key": key, "lifetime": lifetime}
    cursor = await connection.execute(DECIDE_LINK, parameters)
    row = await cursor.fetchone()
    assert row is not None, f"there is no booking {booking_id}"
    until: datetime = row[0]
    return until


async def find_email(connection: AsyncConnection[Any], booking_id: int, kind: str) -> str | None:
    """Returns the provider's id of the sent mail."""
    cursor = await connection.execute(FIND_EMAIL, {"id": booking_id, "kind": kind})
    row = await cursor.fetchone()
    return None if row is None else str(row[0])


async def record_email(
    connection: AsyncConnection[Any], booking_id: int, *, kind: str, message_id: str
) -> None:
    parameters = {"id": booking_id, "kind": kind, "message_id": message_id}
    await connection.execute(RECORD_EMAIL, parameters)
