"""The job `issue_invoice`: creates exactly one invoice per booking at the vendor."""

from typing import Any

from daybook import ClaimedJob, Retry, Snooze
from examples.bookings import bookings
from examples.bookings.bookings import Booking
from examples.bookings.office import Office

VAT_PERCENT = 23
REGISTER = "online"


async def issue_invoice(office: Office, job: ClaimedJob) -> dict[str, str]:
    """Returns the payload of the follow-up, `send_invoice_ready`."""
    if not office.settings.invoicing_enabled:
        # Snoozed, not completed: it is issued once INVOICING_ENABLED is on.
        raise Snooze(seconds=office.settings.look_again_seconds)
    booking = await office.booking_of(job)
    if booking.is_invoiced:
        return {"invoiceNumber": str(booking.invoice_number)}
    client_id = await _resolve_client(office, job, booking)
    await _check_register(office, job)
    invoice = await office.invoices.create(
        "documents",
        build_document(booking, client_id),
        job=job,
        reference=f"booking-{booking.id}",
    )
    async with office.database.connection() as connection:
        await bookings.record_invoice(
            connection, booking.id, number=invoice["number"], pdf_url=invoice["pdfUrl"]
        )
    return {"invoiceNumber": invoice["number"]}


def build_document(booking: Booking, client_id: str) -> dict[str, Any]:
    """An FR (invoice and receipt) for a paid booking, an FT for an unpaid one. It uses stored
    values only, so that every attempt sends the same document."""
    assert booking.confirmed_at is not None
    net_cents = net_of(booking.total_cents)
    return {
        "type": "FR" if booking.payment_intent_id else "FT",
        "date": booking.confirmed_at.date().isoformat(),
        "clientId": client_id,
        "register": REGISTER,
        "items": [
            {
                "title": f"{booking.machine}, {booking.starts_on} to {booking.ends_on}",
                "quantity": 1,
                "vatPercent": VAT_PERCENT,
                "netCents": net_cents,
                "vatCents": booking.total_cents - net_cents,
                "grossCents": booking.total_cents,
            }
        ],
    }


def net_of(gross_cents: int) -> int:
    """Rounds to the nearest cent, half up, in integers."""
    percent = 100 + VAT_PERCENT
    return (2 * 100 * gross_cents + percent) // (2 * percent)


async def _resolve_client(office: Office, job: ClaimedJob, booking: Booking) -> str:
    """Finds the client by tax number or mail address, or creates it."""
    if booking.customer_nif:
        mark = {"nif": booking.customer_nif}
    else:
        mark = {"email": booking.customer_email}
    found = await office.invoices.get("clients", job=job, **mark)
    if found["items"]:
        return str(found["items"][0]["id"])
    client = {"name": booking.customer_name, "email": booking.customer_email, **mark}
    created = await office.invoices.post("clients", client, job=job, part="client")
    return str(created["id"])


async def _check_register(office: Office, job: ClaimedJob) -> None:
    register = await office.invoices.get(f"registers/{REGISTER}", job=job)
    if not register["isOpen"]:
        raise Retry(f"The register {REGISTER!r} is closed.")
