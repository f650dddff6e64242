"""Deliveries: the service is the worker of its own notifications, and sends each as a webhook.

They are jobs like any other: a lease, attempts with rests that grow, and in the end the dead
letters, from where somebody may send them again. What is delivered twice has the same id twice.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar, Protocol
from uuid import UUID

from msgspec import Struct, json
from uuid_utils.compat import uuid7

from daybook.domain.jobs.job import JOB, Backoff, Job
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
# Attempts over about a day, were each rest as long as it may be.
BACKOFF = Backoff(base_seconds=2.0, cap_seconds=3600.0)


class Details(Protocol):
    """A guest's, once they are opened."""

    @property
    def name(self) -> str: ...
    @property
    def mobile_number(self) -> str: ...


OpenGuests = Callable[[Sequence[tuple[UUID, str]]], Awaitable[Sequence[Details | None]]]
"""Opens what is sealed; None for who was erased."""


class GuestNote(Struct, frozen=True, rename="camel"):
    name: str
    mobile_number: str


class TicketNote(Struct, frozen=True, rename="camel"):
    id: UUID
    restaurant: str
    token_number: str
    status: TicketStatus
    """As of the delivery: it may have gone on since the event."""

    position: int | None
    desk: str | None
    guest: GuestNote | None


class WebhookMessage(Struct, frozen=True):
    """The body, as Standard Webhooks proposes it."""

    type: str
    timestamp: str
    data: TicketNote


class Deliveries(Processor):
    name: ClassVar[str] = "deliveries"
    # A job is ready when it comes, when its queue goes on, and when an operation before it in its
    # lane is over. Tickets are only sent along.
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
        room = DELIVERIES_MAX - len(self._sending)
        if not session.is_leader or not room:
            return POLL_SECONDS
        # To look costs less than to claim in vain, at every ring of the bell.
        ready = await find_ready(session.connection, [SELECTOR])
        if not sum(one.count for one in ready):
            return min([POLL_SECONDS, *(one.next_seconds for one in ready if one.next_seconds)])
        for job in await self._claim(runtime, room):
            standing = await one_ticket(session.connection, _notice(job).ticket_id)
            sending = asyncio.create_task(self._try(runtime, job, standing))
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

    async def _try(self, runtime: Runtime, job: Job, standing: TicketView | None) -> None:
        """What cannot be sent or recorded now is sent again once the lease is over, under the same
        id."""
        try:
            await self._deliver(runtime, job, standing)
        except UnavailableError:
            return
        except Exception:
            _log.exception("Notification %s could not be delivered and is tried again.", job.id)

    async def _deliver(self, runtime: Runtime, job: Job, standing: TicketView | None) -> None:
        assert job.lease is not None, "what was claimed is held"
        result = JobResult(job_id=job.id, claim_id=job.lease.claim_id, outcome=Outcome.DONE)
        try:
            assert standing is not None, f"notification {job.id} is about no ticket"
            body = json.encode(await self._message(_notice(job), standing))
            await self._webhook.send(job.id, job.lease.started_at, body)
        except DeliveryError as error:
            result = JobResult(
                job_id=job.id,
                claim_id=job.lease.claim_id,
                outcome=Outcome.RETRY if error.retryable else Outcome.FAIL,
                error=f"The webhook was not taken: {error}.",
                rest_seconds=error.retry_after_seconds,
            )
        jitter = random.uniform(0.5, 1)  # noqa: S311 (spreads retries)
        finish = FinishJobs(results=[result], jitter=jitter, backoff=self._backoff)
        await runtime.send([(finish, runtime.origin(ACTOR, job.lease.claim_id, "finish"))])

    async def _message(self, notice: Notice, standing: TicketView) -> WebhookMessage:
        ticket = standing.ticket
        (opened,) = await self._open_guests([(ticket.guest.subject_id, ticket.guest.sealed)])
        note = TicketNote(
            id=ticket.id,
            restaurant=standing.slug,
            token_number=ticket.token.number,
            status=ticket.status,
            position=standing.position,
            desk=ticket.desk,
            guest=GuestNote(opened.name, opened.mobile_number) if opened else None,
        )
        return WebhookMessage(notice.event, notice.at.isoformat(), note)


def _notice(job: Job) -> Notice:
    return json.decode(bytes(job.payload), type=Notice)
