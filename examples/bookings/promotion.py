"""Confirms a paid booking and creates its jobs in one transaction."""

import logging
from typing import Any

from psycopg import AsyncConnection
from psycopg.pq import TransactionStatus

from daybook.enqueue import enqueue_async
from examples.bookings import bookings
from examples.bookings.bookings import BookingStatus

QUEUE = "bookings"

logger = logging.getLogger("bookings")


class BookingNotPending(Exception):
    """The booking does not exist or was cancelled."""

    def __init__(self, booking_id: int) -> None:
        super().__init__(f"Booking {booking_id} cannot be confirmed.")


async def promote_booking(
    connection: AsyncConnection[Any], booking_id: int, *, payment_intent_id: str
) -> bool:
    """PENDING → CONFIRMED, with three jobs. Returns False if it was confirmed before: payment
    webhooks often arrive twice."""
    jobs = {
        "issue_invoice": {"stripePaymentIntentId": payment_intent_id},
        "send_customer_confirmation": {},
        "send_internal_confirmation": {},
    }
    # Inside an outer transaction this one would not be committed on return.
    assert connection.info.transaction_status is TransactionStatus.IDLE
    async with connection.transaction():
        if not await bookings.confirm(connection, booking_id, payment_intent_id):
            await _must_be_confirmed(connection, booking_id)
            return False
        # Last before the commit: from here on, followers of Daybook's log wait for it.
        for type_, payload in jobs.items():
            await create_job(connection, booking_id, type_, payload)
    # Logged only after the commit.
    logger.info("jobs:created", extra={"bookingId": str(booking_id), "types": list(jobs)})
    return True


async def create_job(
    connection: AsyncConnection[Any], booking_id: int, type_: str, payload: Any
) -> None:
    """Creates one job per booking and type, forever. A repeated call returns the existing job, and
    restarts a dead one."""
    await enqueue_async(
        connection,
        queue=QUEUE,
        type=type_,
        payload=payload,
        subject=str(booking_id),
        unique_key=str(booking_id),
        on_dead="restart",
        attempts_max=3,
        actor="bookings",
    )


async def _must_be_confirmed(connection: AsyncConnection[Any], booking_id: int) -> None:
    booking = await bookings.find(connection, booking_id)
    if booking is None or booking.status is not BookingStatus.CONFIRMED:
        raise BookingNotPending(booking_id)
