"""A booking that is paid is confirmed, and its jobs are created: together or not at all."""

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
    """There is no such booking, or it was cancelled."""

    def __init__(self, booking_id: int) -> None:
        super().__init__(f"Booking {booking_id} cannot be confirmed.")


async def promote_booking(
    connection: AsyncConnection[Any], booking_id: int, *, payment_intent_id: str
) -> bool:
    """PENDING → CONFIRMED, with the three jobs that follow. False when that was done before: a
    payment is often announced twice."""
    jobs = {
        "issue_invoice": {"stripePaymentIntentId": payment_intent_id},
        "send_customer_confirmation": {},
        "send_internal_confirmation": {},
    }
    # Inside somebody else's transaction this would not be over when we say so.
    assert connection.info.transaction_status is TransactionStatus.IDLE
    async with connection.transaction():
        if not await bookings.confirm(connection, booking_id, payment_intent_id):
            await _must_be_confirmed(connection, booking_id)
            return False
        # Last before the commit: readers of Daybook's log wait for it from here on.
        for type_, payload in jobs.items():
            await create_job(connection, booking_id, type_, payload)
    # Not before it is true.
    logger.info("jobs:created", extra={"bookingId": str(booking_id), "types": list(jobs)})
    return True


async def create_job(
    connection: AsyncConnection[Any], booking_id: int, type_: str, payload: Any
) -> None:
    """One job for each booking and type, for ever: a repeated call keeps the job that exists, and
    starts it over if it is dead."""
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
