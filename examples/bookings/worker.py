"""The workers, with their handlers by job type.

There are two, because their log lines name the subject differently. Both can run in any number of
processes.
"""

from functools import partial
from typing import Any

from daybook import Backoff, ClaimedJob, Lease, Worker
from examples.bookings import emails, invoicing, promotion, transfers
from examples.bookings.office import Office

ATTEMPTS_MAX = 3


def bookings_worker(office: Office) -> Worker:
    worker = _worker(office, promotion.QUEUE, subject_name="bookingId")
    job = partial(worker.job, attempts_max=ATTEMPTS_MAX, backoff=_backoff(office))

    # The follow-up is created in the transaction that completes the job: exactly once.
    @job("issue_invoice", then="send_invoice_ready")
    async def issue_invoice(job: ClaimedJob) -> Any:
        return await invoicing.issue_invoice(office, job)

    @job("send_customer_confirmation")
    async def send_customer_confirmation(job: ClaimedJob) -> Any:
        return await emails.send_customer_confirmation(office, job)

    @job("send_internal_confirmation")
    async def send_internal_confirmation(job: ClaimedJob) -> Any:
        return await emails.send_internal_confirmation(office, job)

    @job("send_invoice_ready")
    async def send_invoice_ready(job: ClaimedJob) -> Any:
        return await emails.send_invoice_ready(office, job)

    return worker


def transfers_worker(office: Office) -> Worker:
    worker = _worker(office, transfers.QUEUE, subject_name="transferId")
    job = partial(worker.job, attempts_max=ATTEMPTS_MAX, backoff=_backoff(office))

    @job("TransferCreate", then="ConsignmentSync")
    async def transfer_create(job: ClaimedJob) -> Any:
        return await transfers.transfer_create(office, job)

    @job("TransferUpdate", then="ConsignmentSync")
    async def transfer_update(job: ClaimedJob) -> Any:
        return await transfers.transfer_update(office, job)

    @job("TransferReceive", then="ConsignmentSync")
    async def transfer_receive(job: ClaimedJob) -> Any:
        return await transfers.transfer_receive(office, job)

    @job("ConsignmentSync")
    async def consignment_sync(job: ClaimedJob) -> Any:
        return await transfers.consignment_sync(office, job)

    return worker


def _worker(office: Office, queue: str, *, subject_name: str) -> Worker:
    settings = office.settings
    lease = Lease(seconds=settings.lease_seconds)
    return Worker(
        settings.daybook_url,
        key=settings.daybook_key,
        queues=[queue],
        lease=lease,
        subject_name=subject_name,
    )


def _backoff(office: Office) -> Backoff:
    return Backoff(base_seconds=office.settings.retry_seconds)
