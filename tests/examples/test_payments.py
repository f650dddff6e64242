"""Payment webhooks and signed invoice links."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt
import pytest

from examples.bookings import promotion
from examples.bookings.bookings import BookingStatus
from examples.bookings.links import LIFETIME, invoice_link
from examples.bookings.standins.standin import How
from tests.examples.firm import ALL_FOUR, FIRST_THREE, Firm, logged

pytestmark = pytest.mark.anyio


async def test_a_payment_that_is_announced_again_and_again_makes_nothing_twice(
    firm: Firm, log: pytest.LogCaptureFixture
) -> None:
    # S4-05, S4-10, S4-33, D-62
    booking_id = await firm.book()
    async with firm.working():
        answers = await asyncio.gather(*(firm.announce_payment(booking_id) for _ in range(5)))
        before = await firm.finished(booking_id, ALL_FOUR)
        answers.append(await firm.announce_payment(booking_id))
        # Nor if some other program asks for the job of a booking that has one.
        async with firm.office.database.connection() as connection:
            await promotion.create_job(connection, booking_id, "issue_invoice", {})
        after = await firm.jobs(booking_id)

    assert {answer.status_code for answer in answers} == {200}
    assert len(logged(log, "jobs:created")) == 1
    assert after == before
    assert len(firm.standins.invoices.documents) == 1
    assert len(firm.standins.mail.messages) == 3


async def test_booking_and_jobs_are_there_together_or_not_at_all(
    firm: Firm, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # S4-11, D-65
    create_job = promotion.create_job

    async def crash_at_the_last(connection: Any, booking_id: int, type_: str, body: Any) -> None:
        if type_ == FIRST_THREE[-1]:
            raise ConnectionError
        await create_job(connection, booking_id, type_, body)

    booking_id = await firm.book()
    with monkeypatch.context() as patch:
        patch.setattr(promotion, "create_job", crash_at_the_last)
        with pytest.raises(ConnectionError):
            await firm.promote(booking_id)
    assert (await firm.booking(booking_id)).status is BookingStatus.PENDING
    assert await firm.jobs(booking_id) == {}
    assert logged(log, "jobs:created") == []

    assert await firm.promote(booking_id)
    assert sorted(await firm.jobs(booking_id)) == sorted(FIRST_THREE)


async def test_no_vendor_keeps_a_payment_from_being_confirmed(firm: Firm) -> None:
    # S4-01, S4-02
    for standin in (firm.standins.invoices, firm.standins.mail):
        standin.fail_next(100, How.TIMEOUT)
    async with firm.working():
        booking_id = await firm.book()
        started_at = time.monotonic()
        answer = await firm.announce_payment(booking_id)
        seconds = time.monotonic() - started_at

    assert answer.status_code == 200
    assert seconds < 1
    assert (await firm.booking(booking_id)).status is BookingStatus.CONFIRMED


async def test_only_the_payment_service_can_announce_payments(firm: Firm) -> None:
    booking_id = await firm.book()

    unsigned = await firm.web.post("/api/stripe/webhook", content=b"{}")
    for body in (b"no json", b"{}"):
        assert (await firm.announce(body)).status_code == 422
    forged = await firm.announce_payment(booking_id, secret="of somebody else")
    replayed = await firm.announce_payment(booking_id, age_seconds=301)
    unknown = await firm.announce_payment(booking_id + 1)
    large = await firm.web.post("/api/stripe/webhook", content=b" " * 70_000)

    statuses = [one.status_code for one in (unsigned, forged, replayed, unknown, large)]
    assert statuses == [400, 400, 400, 409, 413]
    assert (await firm.booking(booking_id)).status is BookingStatus.PENDING
    assert await firm.jobs(booking_id) == {}


async def test_the_link_in_the_mail_shows_the_invoice_for_72_hours(firm: Firm) -> None:
    # S4-31
    settings = firm.office.settings
    async with firm.working():
        booking_id = await firm.paid()
        await firm.finished(booking_id, ALL_FOUR)
    text = firm.standins.mail.messages[-1]["text"]
    (link,) = [line for line in text.splitlines() if line.startswith(settings.public_url)]
    shown = await firm.web.get(link)

    assert (shown.status_code, shown.headers["content-type"]) == (200, "application/pdf")
    number = str((await firm.booking(booking_id)).invoice_number)
    assert shown.content.startswith(b"%PDF")
    assert number.encode() in shown.content
    claims = jwt.decode(link.partition("?t=")[2], options={"verify_signature": False})
    left_seconds = claims["exp"] - datetime.now(UTC).timestamp()
    assert LIFETIME.total_seconds() - 60 < left_seconds <= LIFETIME.total_seconds()


async def test_no_other_link_shows_an_invoice(firm: Firm) -> None:
    # S4-31
    settings = firm.office.settings
    async with firm.working():
        booking_id = await firm.paid()
        await firm.finished(booking_id, ALL_FOUR)
    now = datetime.now(UTC)

    async def status(link_id: int, until: datetime, secret: str = settings.link_secret) -> int:
        link = invoice_link("", link_id, until=until, secret=secret)
        return (await firm.web.get(link)).status_code

    path = f"/api/invoices/{booking_id}/pdf"
    elsewhere = invoice_link("", booking_id + 1, until=now + LIFETIME, secret=settings.link_secret)
    unsigned = jwt.encode(
        {"sub": str(booking_id), "aud": "invoice", "exp": now + LIFETIME}, "", algorithm="none"
    )
    assert await status(booking_id, now + timedelta(minutes=1)) == 200
    assert await status(booking_id, now - timedelta(seconds=1)) == 401
    assert await status(booking_id, now + LIFETIME, "of somebody else, who has a key too") == 403
    assert (await firm.web.get(f"{path}?{elsewhere.partition('?')[2]}")).status_code == 403
    assert (await firm.web.get(f"{path}?t={unsigned}")).status_code == 403
    assert (await firm.web.get(path)).status_code == 403
    # A link that is ours, to an invoice that is not there.
    assert await status(booking_id + 1, now + LIFETIME) == 404
