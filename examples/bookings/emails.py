"""Jobs that send mail: at least once, deduplicated by the provider.

A crash between sending and recording repeats the request under the same idempotency key; the
provider returns the existing message, which is then recorded.
"""

import logging
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from daybook import ClaimedJob, Fail, Retry, Snooze
from examples.bookings import bookings
from examples.bookings.bookings import Booking
from examples.bookings.links import LIFETIME, invoice_link
from examples.bookings.office import Office

logger = logging.getLogger("bookings")


class Email(Struct, frozen=True, kw_only=True):
    kind: str
    """A booking gets one mail of each kind."""

    to: Sequence[str]
    subject: str
    text: str


async def send_customer_confirmation(office: Office, job: ClaimedJob) -> Any:
    booking = await office.booking_of(job)
    email = Email(
        kind="customer_confirmation",
        to=[booking.customer_email],
        subject=f"Your booking {booking.id} is confirmed",
        text=f"Dear {booking.customer_name},\n\n{_facts(booking)}\n\nWe look forward to it.\n",
    )
    return await _send(office, job, booking, email)


async def send_internal_confirmation(office: Office, job: ClaimedJob) -> Any:
    booking, settings = await office.booking_of(job), office.settings
    if not settings.email_admin_to:
        _say("email:skipped", job, reason="EMAIL_ADMIN_TO is empty")
        raise Snooze(seconds=settings.look_again_seconds)
    email = Email(
        kind="internal_confirmation",
        to=settings.email_admin_to,
        subject=f"Booking {booking.id}: {booking.machine}",
        text=f"{_facts(booking)}\n\n{settings.public_url}/admin/bookings/{booking.id}\n",
    )
    return await _send(office, job, booking, email)


async def send_invoice_ready(office: Office, job: ClaimedJob) -> Any:
    booking, settings = await office.booking_of(job), office.settings
    if not booking.is_invoiced:
        raise Snooze(seconds=settings.look_again_seconds)
    async with office.database.connection() as connection:
        until = await bookings.decide_link(
            connection, booking.id, key=job.effect_key, lifetime=LIFETIME
        )
    link = invoice_link(settings.public_url, booking.id, until=until, secret=settings.link_secret)
    email = Email(
        kind="invoice_ready",
        to=[booking.customer_email],
        subject=f"Your invoice {booking.invoice_number}",
        text=f"Dear {booking.customer_name},\n\nfor the next 72 hours it is here:\n{link}\n",
    )
    return await _send(office, job, booking, email)


async def _send(office: Office, job: ClaimedJob, booking: Booking, email: Email) -> Any:
    async with office.database.connection() as connection:
        message_id = await bookings.find_email(connection, booking.id, email.kind)
    if message_id is not None:
        _say("email:skipped", job, reason="sent before", messageId=message_id)
        return {"messageId": message_id}
    if not office.settings.send_emails:
        _say("email:skipped", job, reason="dry run")
        # Snoozed, not completed: it is sent once SEND_EMAILS is on.
        raise Snooze(seconds=office.settings.look_again_seconds)
    message_id = await _post(office, job, email)
    async with office.database.connection() as connection:
        await bookings.record_email(connection, booking.id, kind=email.kind, message_id=message_id)
    _say("email:sent", job, messageId=message_id)
    return {"messageId": message_id}


async def _post(office: Office, job: ClaimedJob, email: Email) -> str:
    body = {
        "from": office.settings.email_from,
        "to": list(email.to),
        "subject": email.subject,
        "text": email.text,
    }
    try:
        answer = await office.mail.post("emails", body, job=job)
    except (Retry, Fail) as error:
        # A refused address is a Fail, because a retry would be refused, too.
        _say("email:error", job, level=logging.WARNING, error=str(error))
        raise
    return str(answer["id"])


def _facts(booking: Booking) -> str:
    euros = f"{booking.total_cents / 100:.2f} EUR"
    return f"{booking.machine}, {booking.starts_on} to {booking.ends_on}, {euros}"


def _say(event: str, job: ClaimedJob, *, level: int = logging.INFO, **fields: Any) -> None:
    """Logs without mail addresses, which are personal data."""
    about = {"jobId": str(job.id), "bookingId": job.subject, "type": job.type}
    logger.log(level, event, extra={**about, **fields})
