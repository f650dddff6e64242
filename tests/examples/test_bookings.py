"""The bookings example: a real Daybook, real workers, and stand-ins that fail."""

import asyncio
from datetime import timedelta

import pytest

from daybook import JobStatus
from examples.bookings import bookings, promotion
from examples.bookings.bookings import BookingStatus
from examples.bookings.invoicing import net_of
from examples.bookings.standins.standin import How
from tests.examples.firm import ADMINS, ALL_FOUR, FIRST_THREE, Firm, logged, open_firm
from tests.support.committer import rows

pytestmark = pytest.mark.anyio


async def test_a_paid_booking_is_invoiced_and_all_mails_are_sent(firm: Firm) -> None:
    # S4-08, S4-11, S4-12, S4-25, S4-28, S4-30, S4-31
    async with firm.working():
        booking_id = await firm.paid(customer_nif="500000001")
        jobs = await firm.finished(booking_id, ALL_FOUR)

    assert {job.status for job in jobs.values()} == {JobStatus.COMPLETED}
    assert sorted(jobs) == sorted(ALL_FOUR)
    (document,) = firm.standins.invoices.documents
    assert (document["type"], document["reference"]) == ("FR", f"booking-{booking_id}")
    assert document["items"] == [
        {
            "title": "Excavator, 2030-05-02 to 2030-05-04",
            "quantity": 1,
            "vatPercent": 23,
            "netCents": 10_000,
            "vatCents": 2_300,
            "grossCents": 12_300,
        }
    ]
    (client,) = firm.standins.invoices.clients
    assert (client["id"], client["nif"]) == (document["clientId"], "500000001")
    booking = await firm.booking(booking_id)
    assert booking.status is BookingStatus.CONFIRMED
    assert (booking.invoice_number, booking.invoice_pdf_url) == (
        document["number"],
        document["pdfUrl"],
    )

    mail = firm.standins.mail
    (internal,) = mail.to(ADMINS[0])
    assert internal["to"] == list(ADMINS)
    assert len(mail.to("ada@example.com")) == 2
    recorded = await firm.sent_emails(booking_id)
    assert set(recorded) == {"customer_confirmation", "internal_confirmation", "invoice_ready"}
    assert set(recorded.values()) == {message["id"] for message in mail.messages}
    assert jobs["send_internal_confirmation"].result == {"messageId": internal["id"]}


async def test_the_log_names_events_as_the_source_does(
    firm: Firm, log: pytest.LogCaptureFixture
) -> None:
    # S4-03, S4-33, S4-34, S4-35, S4-36, S4-37
    firm.standins.invoices.fail_next(1, How.ERROR)
    async with firm.working():
        booking_id = await firm.paid()
        jobs = await firm.finished(booking_id, ALL_FOUR)

    (created,) = logged(log, "jobs:created")
    assert (created["bookingId"], created["types"]) == (str(booking_id), FIRST_THREE)
    invoice = {
        "jobId": str(jobs["issue_invoice"].id),
        "bookingId": str(booking_id),
        "type": "issue_invoice",
    }
    assert [one["attempts"] for one in logged(log, "job:processing", **invoice)] == [1, 2]
    (failed,) = logged(log, "job:failed", **invoice)
    assert failed["attempts"] == 1
    assert failed["error"].startswith("The invoice service answered 500")
    (completed,) = logged(log, "job:completed", **invoice)
    assert completed["durationMs"] >= 0
    sent = logged(log, "email:sent", bookingId=str(booking_id))
    assert {one["type"] for one in sent} == {*ALL_FOUR} - {"issue_invoice"}
    assert all(one["messageId"] for one in sent)


async def test_a_deleted_booking_keeps_its_jobs(firm: Firm, database: str) -> None:
    # S4-03, S4-07, D-63: the history of its jobs stays readable.
    async with firm.working():
        booking_id = await firm.paid()
        jobs = await firm.finished(booking_id, ALL_FOUR)
    rows(database, "DELETE FROM bookings.sent_emails")
    rows(database, "DELETE FROM bookings.bookings")

    assert await firm.jobs(booking_id) == jobs
    answer = await firm.client.history(jobs["issue_invoice"].id)
    assert [event["topic"] for event in answer] == ["job.created", "job.claimed", "job.completed"]


@pytest.mark.parametrize("how", [How.ERROR, How.BUSY, How.LOST])
async def test_a_vendor_that_fails_twice_issues_one_invoice(firm: Firm, how: How) -> None:
    # S4-02, S4-27, S1-10, S1-18, S1-26
    invoices = firm.standins.invoices
    invoices.fail_next(2, how, path="documents", retry_after_seconds=0)
    async with firm.working():
        booking_id = await firm.paid()
        jobs = await firm.finished(booking_id, ALL_FOUR)

    assert (jobs["issue_invoice"].status, jobs["issue_invoice"].attempts) == ("COMPLETED", 3)
    assert len(invoices.documents) == 1
    posted = [one for one in invoices.received if one.path == "documents"]
    assert {one.key for one in posted} == {jobs["issue_invoice"].effect_key}
    assert len(posted) == 3
    correlations = {one.correlation for one in invoices.received + firm.standins.mail.received}
    assert correlations == {f"bookings-{booking_id}"}


async def test_a_vendor_that_is_busy_is_left_alone_for_as_long_as_it_says(firm: Firm) -> None:
    # S1-26, S4-27
    firm.standins.invoices.fail_next(1, How.BUSY, retry_after_seconds=60)
    async with firm.working():
        booking_id = await firm.paid()
        waiting = (await firm.jobs(booking_id))["issue_invoice"]
        failed = await firm.until(waiting.id, lambda job: job.failures == 1)

    assert failed.run_at is not None
    assert failed.updated_at is not None
    assert failed.run_at - failed.updated_at == timedelta(seconds=60)


@pytest.mark.slow
async def test_a_request_to_a_hanging_vendor_times_out_and_is_retried(database: str) -> None:
    # S4-02, S4-27
    async with open_firm(database, answer_seconds_max=1.0) as firm:
        invoices = firm.standins.invoices
        invoices.fail_next(2, How.TIMEOUT, path="documents")
        async with firm.working():
            booking_id = await firm.paid()
            jobs = await firm.finished(booking_id, ALL_FOUR)

    assert (jobs["issue_invoice"].status, jobs["issue_invoice"].attempts) == ("COMPLETED", 3)
    assert len(invoices.documents) == 1


async def test_after_three_attempts_a_person_decides_and_still_there_is_one_invoice(
    firm: Firm,
) -> None:
    # S4-24, S4-27
    invoices = firm.standins.invoices
    invoices.fail_next(3, How.LOST, path="documents")
    async with firm.working():
        booking_id = await firm.paid()
        dead = (await firm.finished(booking_id, FIRST_THREE))["issue_invoice"]
        assert (dead.status, dead.attempts) == (JobStatus.DEAD, 3)
        assert not (await firm.booking(booking_id)).is_invoiced

        await firm.client.retry(dead.id)
        jobs = await firm.finished(booking_id, ALL_FOUR)

    assert (jobs["issue_invoice"].status, jobs["issue_invoice"].life) == ("COMPLETED", 2)
    (document,) = invoices.documents
    assert (await firm.booking(booking_id)).invoice_number == document["number"]


async def test_a_refusal_of_the_vendor_is_not_retried(firm: Firm) -> None:
    # D-72
    firm.standins.invoices.fail_next(1, How.REFUSED, path="documents")
    async with firm.working():
        booking_id = await firm.paid()
        jobs = await firm.finished(booking_id, FIRST_THREE)

    assert (jobs["issue_invoice"].status, jobs["issue_invoice"].attempts) == (JobStatus.DEAD, 1)
    assert "send_invoice_ready" not in jobs


async def test_a_job_that_is_created_again_is_started_over_if_it_is_dead(firm: Firm) -> None:
    # S4-05, D-62
    firm.standins.invoices.fail_next(1, How.REFUSED, path="documents")
    async with firm.working():
        booking_id = await firm.paid()
        before = await firm.finished(booking_id, FIRST_THREE)
        assert before["issue_invoice"].status is JobStatus.DEAD
        async with firm.office.database.connection() as connection:
            for type_ in FIRST_THREE:
                payload = before[type_].payload
                await promotion.create_job(connection, booking_id, type_, payload)
        jobs = await firm.finished(booking_id, ALL_FOUR)

    assert {type_: (job.status, job.life) for type_, job in jobs.items()} == {
        "issue_invoice": (JobStatus.COMPLETED, 2),
        "send_customer_confirmation": (JobStatus.COMPLETED, 1),
        "send_internal_confirmation": (JobStatus.COMPLETED, 1),
        "send_invoice_ready": (JobStatus.COMPLETED, 1),
    }
    assert jobs["issue_invoice"].id == before["issue_invoice"].id


async def test_an_invoice_waits_for_its_register_to_open(firm: Firm) -> None:
    # S4-25, S4-27
    invoices = firm.standins.invoices
    invoices.open_registers.clear()
    slow = firm.with_settings(retry_seconds=0.3)
    async with slow.working():
        booking_id = await firm.paid()
        waiting = (await firm.jobs(booking_id))["issue_invoice"]
        failed = await firm.until(waiting.id, lambda job: job.failures == 1)
        invoices.open_registers.add("online")
        jobs = await firm.finished(booking_id, ALL_FOUR)

    assert failed.error == "The register 'online' is closed."
    assert jobs["issue_invoice"].status is JobStatus.COMPLETED


async def test_a_returning_customer_is_not_created_twice(firm: Firm) -> None:
    # S4-25
    async with firm.working():
        for _ in range(2):
            booking_ids = [await firm.paid(customer_nif=nif) for nif in (None, "500000001")]
            for booking_id in booking_ids:
                await firm.finished(booking_id, ["issue_invoice"])

    invoices = firm.standins.invoices
    assert {one.get("nif") for one in invoices.clients} == {None, "500000001"}
    used = [document["clientId"] for document in invoices.documents]
    assert sorted(used) == ["client-1", "client-1", "client-2", "client-2"]


@pytest.mark.parametrize(
    ("gross_cents", "net_cents"), [(12_300, 10_000), (1, 1), (2, 2), (3, 2), (100, 81), (101, 82)]
)
def test_net_is_gross_without_vat_to_the_nearest_cent(gross_cents: int, net_cents: int) -> None:
    # S4-25
    assert net_of(gross_cents) == net_cents


async def test_an_address_that_is_none_fails_at_once_and_for_good(
    firm: Firm, log: pytest.LogCaptureFixture
) -> None:
    # S4-29, S4-37, D-72
    async with firm.working():
        booking_id = await firm.paid(customer_email="ada at example.com")
        jobs = await firm.finished(booking_id, ALL_FOUR)

    for type_ in ("send_customer_confirmation", "send_invoice_ready"):
        assert (jobs[type_].status, jobs[type_].attempts) == (JobStatus.DEAD, 1)
        (error,) = logged(log, "email:error", bookingId=str(booking_id), type=type_)
        assert "Not an address" in error["error"]
    assert jobs["issue_invoice"].status is JobStatus.COMPLETED
    assert set(await firm.sent_emails(booking_id)) == {"internal_confirmation"}


async def test_with_invoicing_off_the_invoice_is_put_off_and_issued_when_it_is_on(
    firm: Firm,
) -> None:
    # S4-26, S4-43, D-70
    async with firm.with_settings(invoicing_enabled=False).working():
        booking_id = await firm.paid()
        await firm.finished(booking_id, FIRST_THREE[1:])
        await asyncio.sleep(0.25)
    put_off = (await firm.jobs(booking_id))["issue_invoice"]
    assert (put_off.status, put_off.failures) == (JobStatus.PENDING, 0)
    assert firm.standins.invoices.received == []

    async with firm.working():
        jobs = await firm.finished(booking_id, ALL_FOUR)
    assert (jobs["issue_invoice"].status, jobs["issue_invoice"].attempts) == ("COMPLETED", 1)
    assert len(firm.standins.invoices.documents) == 1


async def test_a_dry_run_sends_nothing_and_loses_nothing(
    firm: Firm, log: pytest.LogCaptureFixture
) -> None:
    # S4-37, S4-42, S4-43, D-70
    async with firm.with_settings(send_emails=False).working():
        booking_id = await firm.paid()
        await firm.finished(booking_id, ["issue_invoice"])
        await asyncio.sleep(0.25)
    skipped = logged(log, "email:skipped", bookingId=str(booking_id), reason="dry run")
    assert {one["type"] for one in skipped} == {*ALL_FOUR} - {"issue_invoice"}
    assert firm.standins.mail.received == []

    async with firm.working():
        jobs = await firm.finished(booking_id, ALL_FOUR)
    assert {job.attempts for job in jobs.values()} == {1}
    assert len(firm.standins.mail.messages) == 3


async def test_the_internal_mail_is_sent_once_an_address_is_set(
    firm: Firm, log: pytest.LogCaptureFixture
) -> None:
    # S4-30, S4-43
    async with firm.with_settings(email_admin_to=()).working():
        booking_id = await firm.paid()
        await firm.finished(booking_id, ["send_customer_confirmation"])
    async with firm.working():
        await firm.finished(booking_id, ALL_FOUR)

    assert logged(log, "email:skipped", reason="EMAIL_ADMIN_TO is empty")
    assert len(firm.standins.mail.to(ADMINS[1])) == 1


async def test_an_invoice_that_is_not_there_yet_is_waited_for(firm: Firm) -> None:
    # S4-32, D-73
    booking_id = await firm.book()
    async with firm.working():
        early = await firm.client.enqueue(
            promotion.QUEUE, "send_invoice_ready", {}, subject=str(booking_id), attempts_max=1
        )
        waiting = await firm.until(early.id, lambda job: job.run_at is not None)
        assert (waiting.status, waiting.attempts) == (JobStatus.PENDING, 0)

        async with firm.office.database.connection() as connection:
            await bookings.record_invoice(connection, booking_id, number="FR 1", pdf_url="1.pdf")
        done = await firm.until(early.id, lambda job: job.status is JobStatus.COMPLETED)
    assert done.attempts == 1
    assert [message["subject"] for message in firm.standins.mail.messages] == ["Your invoice FR 1"]


async def test_a_mail_that_was_sent_is_not_sent_by_another_job(
    firm: Firm, log: pytest.LogCaptureFixture
) -> None:
    # S4-28, S4-37
    async with firm.working():
        booking_id = await firm.paid()
        await firm.finished(booking_id, ALL_FOUR)
        again = await firm.client.enqueue(
            promotion.QUEUE, "send_customer_confirmation", {}, subject=str(booking_id)
        )
        done = await firm.until(again.id, lambda job: job.status is JobStatus.COMPLETED)

    recorded = await firm.sent_emails(booking_id)
    assert done.result == {"messageId": recorded["customer_confirmation"]}
    assert logged(log, "email:skipped", jobId=str(again.id), reason="sent before")
    assert len(firm.standins.mail.messages) == 3
