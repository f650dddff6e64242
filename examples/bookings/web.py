"""Web application of the example: receives payment webhooks and serves invoices.

A payment is acknowledged once booking and jobs are committed, even if vendors are unavailable.
"""

import hmac
import re
import time
from collections.abc import Callable
from http import HTTPStatus

from msgspec import DecodeError, Struct
from msgspec.json import decode
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from daybook import Fail, Retry
from examples.bookings import bookings
from examples.bookings.links import LinkExpired, LinkForged, check_token
from examples.bookings.office import Office
from examples.bookings.promotion import BookingNotPending, promote_booking

PAID = "checkout.session.completed"
BODY_BYTES_MAX = 64 * 1024
SIGNATURE_AGE_SECONDS_MAX = 300
MOMENT = re.compile(r"[0-9]{1,12}")

Clock = Callable[[], float]


class Metadata(Struct, frozen=True, rename="camel"):
    booking_id: int


class Session(Struct, frozen=True):
    payment_intent: str
    metadata: Metadata


class Data(Struct, frozen=True):
    object: Session


class Event(Struct, frozen=True):
    """The needed part of a Stripe event."""

    type: str
    data: Data


def web_app(office: Office, clock: Clock = time.time) -> Starlette:
    async def receive_payment(request: Request) -> Response:
        """Stripe repeats the webhook until it is acknowledged."""
        body = await _body(request)
        if body is None:
            return _refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        signature = request.headers.get("Stripe-Signature", "")
        if not is_signed(body, signature, secret=office.settings.webhook_secret, now=clock()):
            return _refused(HTTPStatus.BAD_REQUEST)
        try:
            event = decode(body, type=Event, strict=False)
        except DecodeError:
            return _refused(HTTPStatus.UNPROCESSABLE_ENTITY)
        if event.type == PAID:
            return await _promote(office, event.data.object)
        return JSONResponse({"received": True})

    async def show_invoice(request: Request) -> Response:
        booking_id = request.path_params["id"]
        try:
            token = request.query_params.get("t", "")
            check_token(token, booking_id, secret=office.settings.link_secret)
        except LinkExpired:
            return _refused(HTTPStatus.UNAUTHORIZED)
        except LinkForged:
            return _refused(HTTPStatus.FORBIDDEN)
        return await _invoice(office, booking_id)

    return Starlette(
        routes=[
            Route("/api/stripe/webhook", receive_payment, methods=["POST"]),
            Route("/api/invoices/{id:int}/pdf", show_invoice),
        ]
    )


async def _promote(office: Office, session: Session) -> Response:
    booking_id = session.metadata.booking_id
    try:
        async with office.database.connection() as connection:
            await promote_booking(connection, booking_id, payment_intent_id=session.payment_intent)
    except BookingNotPending:
        return _refused(HTTPStatus.CONFLICT)
    return JSONResponse({"received": True})


async def _invoice(office: Office, booking_id: int) -> Response:
    async with office.database.connection() as connection:
        booking = await bookings.find(connection, booking_id)
    if booking is None or booking.invoice_pdf_url is None:
        return _refused(HTTPStatus.NOT_FOUND)
    try:
        pdf = await office.invoices.download(booking.invoice_pdf_url)
    except (Retry, Fail):
        return _refused(HTTPStatus.BAD_GATEWAY)
    headers = {"Cache-Control": "private, no-store", "Referrer-Policy": "no-referrer"}
    return Response(pdf, media_type="application/pdf", headers=headers)


def is_signed(body: bytes, signature: str, *, secret: str, now: float) -> bool:
    """Checks a Stripe signature: `t=1700000000,v1=…`, where v1 covers timestamp and body."""
    fields = dict(part.partition("=")[::2] for part in signature.split(","))
    moment = fields.get("t", "")
    if not MOMENT.fullmatch(moment) or abs(now - int(moment)) > SIGNATURE_AGE_SECONDS_MAX:
        return False
    given = fields.get("v1", "").encode()
    return hmac.compare_digest(signed(body, moment, secret).encode(), given)


def signed(body: bytes, moment: str, secret: str) -> str:
    return hmac.new(secret.encode(), f"{moment}.".encode() + body, "sha256").hexdigest()


async def _body(request: Request) -> bytes | None:
    """Returns None for a body over BODY_BYTES_MAX."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > BODY_BYTES_MAX:
            return None
    return body


def _refused(status: HTTPStatus) -> Response:
    return JSONResponse({"error": status.phrase}, status)
