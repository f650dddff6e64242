"""Ticket events become signed webhooks, retried under the same id."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from hashlib import sha256
from hmac import new as hmac
from uuid import UUID

import pytest
from uuid_utils.compat import uuid7

from daybook.api.runtime.guest_encryption import GuestDetails
from daybook.api.runtime.service import Service
from daybook.domain.backoff import Backoff
from daybook.domain.tickets.commands import CallNext, JoinLine, TicketResult
from daybook.domain.tickets.ticket import Guest, Ticket
from daybook.processors.webhooks.deliveries import Deliveries
from daybook.processors.webhooks.notifications import Notifications
from daybook.processors.webhooks.webhook import Webhook
from tests.support.asgi_client import GUEST_KEY
from tests.support.committer import eventually, origin, rows
from tests.support.running.nearby import NEARBY
from tests.support.running.webhook_receiver import Inbox, serving_inbox
from tests.support.tickets import SLUG, Counter

pytestmark = pytest.mark.anyio

SECRETS = [b"0" * 24, b"1" * 32]
SOON = Backoff(base_seconds=0.1, cap_seconds=0.2)
ADA = GuestDetails(name="Ada Lovelace", mobile_number="+491701234567")


@asynccontextmanager
async def notifying(database: str, inbox: Inbox) -> AsyncIterator[Service]:
    async def open_guests(sealed: Sequence[tuple[UUID, str]]) -> Sequence[GuestDetails | None]:
        return await service.guests.decrypt_each(sealed)

    webhook = Webhook(inbox.url, SECRETS, outbound=NEARBY, seconds_max=2)
    deliveries = Deliveries(webhook, open_guests, SOON)
    service = Service(
        database,
        guest_key=GUEST_KEY,
        read_models=(),
        processors=(Notifications(), deliveries),
    )
    async with service:
        yield service


async def join(service: Service) -> Ticket:
    counter = Counter(service.committer)
    restaurant = await counter.open()
    sealed = await service.guests.seal(restaurant.id, ADA)
    guest = Guest(subject_id=sealed.subject_id, sealed=sealed.sealed, pseudonym=sealed.pseudonym)
    command = JoinLine(slug=SLUG, ticket_id=uuid7(), guest=guest, party_size=2)
    ticket: Ticket = await counter.do(command)
    return ticket


def topics_of_jobs(database: str) -> list[str]:
    query = "SELECT topic FROM log WHERE topic LIKE 'job.%' ORDER BY position"
    return [row[0] for row in rows(database, query.replace("%", "%%"))]


# S2-38 D-40
async def test_a_call_is_notified_once_and_signed_with_every_secret(database: str) -> None:
    with serving_inbox() as inbox:
        async with notifying(database, inbox) as service:
            ticket = await join(service)
            await service.committer.submit(CallNext(slug=SLUG, desk="A"), origin())
            await eventually(lambda: len(inbox.got) == 2, 8)
            await eventually(lambda: topics_of_jobs(database).count("job.completed") == 2, 8)
            await asyncio.sleep(1.2)

    assert sorted(one.json["type"] for one in inbox.got) == ["ticket.called", "ticket.created"]
    (called,) = (one for one in inbox.got if one.json["type"] == "ticket.called")
    assert called.json["data"] == {
        "id": str(ticket.id),
        "restaurant": SLUG,
        "tokenNumber": "RDEMO123-000001",
        "status": "CALLED",
        "position": None,
        "desk": "A",
        "guest": {"name": "Ada Lovelace", "mobileNumber": "+491701234567"},
    }
    timestamp = called.headers["webhook-timestamp"]
    assert abs(int(timestamp) - datetime.now(UTC).timestamp()) < 60
    signed = f"{called.id}.{timestamp}.".encode() + called.body
    codes = [b64encode(hmac(one, signed, sha256).digest()).decode() for one in SECRETS]
    assert called.headers["webhook-signature"] == " ".join(f"v1,{code}" for code in codes)
    # The log knows nothing of the guest, and neither do the jobs.
    assert rows(database, "SELECT 1 FROM log WHERE data::text ~ 'Ada|49170'") == []


async def test_a_webhook_that_is_not_accepted_is_retried_under_the_same_id(database: str) -> None:
    with serving_inbox() as inbox:
        inbox.answers = [(500, {}), (429, {"Retry-After": "0"}), (503, {})]
        async with notifying(database, inbox) as service:
            await join(service)
            await eventually(lambda: "job.completed" in topics_of_jobs(database), 10)

    assert len(inbox.got) == 4
    assert len({one.id for one in inbox.got}) == 1
    assert str(UUID(inbox.got[0].id)) == inbox.got[0].id
    assert topics_of_jobs(database).count("job.failed") == 3


async def test_a_webhook_that_is_refused_finally_is_a_dead_letter(database: str) -> None:
    with serving_inbox() as inbox:
        inbox.answers = [(410, {})]
        async with notifying(database, inbox) as service:
            await join(service)
            await eventually(lambda: "job.moved_to_dlq" in topics_of_jobs(database), 8)

    ((error,),) = rows(database, "SELECT data ->> 'error' FROM log WHERE topic = 'job.failed'")
    assert error == "The webhook was not accepted: it answered 410."
    assert len(inbox.got) == 1


async def test_a_redirect_is_not_followed(database: str) -> None:
    with serving_inbox() as inbox:
        inbox.answers = [(307, {"Location": inbox.url})]
        async with notifying(database, inbox) as service:
            await join(service)
            await eventually(lambda: "job.moved_to_dlq" in topics_of_jobs(database), 8)

    assert len(inbox.got) == 1


async def test_old_events_are_not_notified(database: str) -> None:
    """Turning notifications on sends none for calls of the past."""
    async with Service(database, guest_key=GUEST_KEY, read_models=(), processors=()) as service:
        await join(service)
    rows(
        database,
        "SET session_replication_role = replica; "
        "UPDATE stored_events SET state = convert_to(jsonb_set(convert_from(state, 'UTF8')::jsonb, "
        "'{at}', to_jsonb(clock_timestamp() - interval '1 hour'))::text, 'UTF8')",
    )
    with serving_inbox() as inbox:
        async with notifying(database, inbox) as service:
            await join(service)
            await eventually(lambda: len(inbox.got) == 1, 8)
            await asyncio.sleep(0.5)

    assert [one.json["data"]["tokenNumber"] for one in inbox.got] == ["RDEMO123-000002"]


# S2-38
async def test_an_unreachable_receiver_delays_no_guest(database: str) -> None:
    gone = Inbox()
    gone.url = "http://127.0.0.1:9/nobody"
    async with notifying(database, gone) as service:
        await join(service)
        receipt = await service.committer.submit(CallNext(slug=SLUG), origin())
        assert isinstance(receipt.result, TicketResult)
        await eventually(lambda: "job.failed" in topics_of_jobs(database), 8)
