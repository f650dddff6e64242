"""Delivers notification jobs as webhooks: the service is the worker of its own queue.

Lease, retries with backoff and dead letters work as for any job. A repeated delivery carries the
same id.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar, Protocol
from uuid import UUID

from msgspec import Struct, json
from uuid_utils.compat import uuid7

from daybook.domain.backoff import Backoff
from daybook.domain.jobs.job import JOB, Job
from daybook.domain.jobs.queue import QUEUE as QUEUES
from daybook.domain.jobs.work import ClaimJobs, FinishJobs, JobResult, JobSelector, Outcome
from daybook.domain.messages.operation import OPERATION
from daybook.domain.tickets.ticket import TicketStatus
from daybook.eventlog.async_tasks import cancel_and_wait
from daybook.eventlog.errors import UnavailableError
from daybook.processors.processor import POLL_SECONDS, Processor, Runtime, Session, WakesOn
from daybook.processors.webhooks.notifications import QUEUE, Notice
from daybook.processors.webhooks.webhook import DeliveryError, Webhook
from daybook.projections.jobs.claim_sql import find_ready
from daybook.projections.tickets.ticket_list import TicketView, one_ticket

_log = logging.getLogger("daybook")

ACTOR = "system:deliveries"
DELIVERIES_MAX = 16
SELECTOR = JobSelector((QUEUE,))
# Ten attempts (ATTEMPTS_MAX) span at most 17 minutes.
BACKOFF = Backoff(base_seconds=2.0, cap_seconds=3600.0)


class Details(Protocol):
    """Decrypted contact details of a guest."""

    @property
    def name(self) -> str: ...
    @property
    def mobile_number(self) -> str: ...


OpenGuests = Callable[[Sequence[tuple[UUID, str]]], Awaitable[Sequence[Details | None]]]
"""Decrypts contact details; None for erased guests."""


class WebhookGuest(Struct, frozen=True, rename="camel"):
    name: str
    mobile_number: str


class WebhookTicket(Struct, frozen=True, rename="camel"):
    id: UUID
    restaurant: str
    token_number: str
    status: TicketStatus
    """At the time of delivery, which may be later than that of the event."""

    position: int | None
    desk: str | None
    guest: WebhookGuest | None


class WebhookMessage(Struct, frozen=True):
    """The request body, in the form of Standard Webhooks."""

    type: str
    timestamp: str
    data: WebhookTicket


class Deliveries(Processor):
    name: ClassVar[str] = "deliveries"
    # A job becomes ready when it is created, when its queue resumes, and when the operation before
    # it in its lane ends. Tickets only provide content.
    wakes_on: ClassVar[WakesOn] = (JOB, QUEUES, OPERATION)
    pause_seconds: ClassVar[float] = 0.05

    def __init__(
        self, webhook: Webhook, open_guests: OpenGuests, backoff: Backoff = BACKOFF
    ) -> None:
        self._webhook = webhook
        self._open_guests = open_guests
        self._backoff = backoff
        self._sending: set[asyncio.Task[None]] = set()

    async def work(self, runtime: Runtime, session: Session) -> float:
        free = DELIVERIES_MAX - len(self._sending)
        if not session.is_leader or not free:
            return POLL_SECONDS
        # A query is cheaper than an empty claim at every notification.
        ready = await find_ready(session.connection, [SELECTOR])
        if not sum(one.count for one in ready):
            return min([POLL_SECONDS, *(one.next_seconds for one in ready if one.next_seconds)])
        for job in await self._claim(runtime, free):
            ticket = await one_ticket(session.connection, _notice(job).ticket_id)
            sending = asyncio.create_task(self._try(runtime, job, ticket))
            self._sending.add(sending)
            sending.add_done_callback(self._sending.discard)
        return 0

    async def close(self) -> None:
        await cancel_and_wait(self._sending)
        await self._webhook.aclose()

    async def _claim(self, runtime: Runtime, limit: int) -> list[Job]:
        claim_id = uuid7()
        worker = f"{ACTOR}:{runtime.instance}"
        claim = ClaimJobs(selector=SELECTOR, worker=worker, limit=limit, claim_id=claim_id)
        (receipt,) = await runtime.send_all([(claim, runtime.origin(ACTOR, claim_id, "claim"))])
        return [] if receipt is None else list(receipt.result)

    async def _try(self, runtime: Runtime, job: Job, ticket: TicketView | None) -> None:
        """Leaves a failed delivery to the expiry of the lease, which retries it under its id."""
        try:
            await self._deliver(runtime, job, ticket)
        except UnavailableError:
            return
        except Exception:
            _log.exception(
                "notification %s could not be delivered; it is retried after its lease", job.id
            )

    async def _deliver(self, runtime: Runtime, job: Job, ticket: TicketView | None) -> None:
        assert job.claim is not None, "a claimed job has a claim"
        result = JobResult(job_id=job.id, claim_id=job.claim.id, outcome=Outcome.DONE)
        try:
            assert ticket is not None, f"notification {job.id} has no ticket"
            body = json.encode(await self._message(_notice(job), ticket))
            await self._webhook.send(job.id, job.claim.started_at, body)
        except DeliveryError as error:
            result = JobResult(
                job_id=job.id,
                claim_id=job.claim.id,
                outcome=Outcome.RETRY if error.retryable else Outcome.FAIL,
                error=f"The webhook was not accepted: {error}.",
                retry_delay_seconds=error.retry_after_seconds,
            )
        jitter = random.uniform(0.5, 1)  # noqa: S311 (spreads retries)
        finish = FinishJobs(results=[result], jitter=jitter, backoff=self._backoff)
        await runtime.send([(finish, runtime.origin(ACTOR, job.claim.id, "finish"))])

    async def _message(self, notice: Notice, view: TicketView) -> WebhookMessage:
        ticket = view.ticket
        (guest,) = await self._open_guests([(ticket.guest.subject_id, ticket.guest.sealed)])
        data = WebhookTicket(
            id=ticket.id,
            restaurant=view.slug,
            token_number=ticket.token.number,
            status=ticket.status,
            position=view.position,
            desk=ticket.desk,
            guest=WebhookGuest(guest.name, guest.mobile_number) if guest else None,
        )
        return WebhookMessage(notice.event, notice.at.isoformat(), data)


def _notice(job: Job) -> Notice:
    return json.decode(bytes(job.payload), type=Notice)
