"""Follower that enqueues one notification job for each ticket event.

Jobs and the follower's cursor are written in one transaction, so each event is enqueued once.
Events older than 15 minutes are skipped: after an outage, guests get no notice of old calls.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import ClassVar
from uuid import UUID, uuid5

from msgspec import Raw, Struct, json
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from daybook.domain.deciders import DECIDERS
from daybook.domain.event import Event
from daybook.domain.jobs.create import JobRequest
from daybook.domain.jobs.job import NewJob
from daybook.domain.tickets.ticket import TICKET, Ticket
from daybook.eventlog.codec import EventMapper, FollowedEvent
from daybook.eventlog.origin import Origin
from daybook.eventlog.reading.follower import SETTLING_SECONDS, Follower
from daybook.processors.processor import POLL_SECONDS, Processor, Runtime, Session, WakesOn
from daybook.projections.transactional_enqueue import enqueue_async

ACTOR = "system:notifications"
QUEUE = "notifications"
ATTEMPTS_MAX = 10
LEASE_SECONDS = 30.0
EVENT_AGE_MAX = timedelta(minutes=15)

READ_CLOCK = "SELECT clock_timestamp()"

_BATCHES = UUID("a7d1f3c9-0b52-5e84-8c6d-2f9e71b5a040")


class Notice(Struct, frozen=True, rename="camel"):
    """Payload of a job. Contact details are read at delivery, so that they can be erased."""

    ticket_id: UUID
    event: str
    at: datetime
    position: int
    """Position of the event in the log."""


class EnqueueNotifications:
    name = "notifications"
    kinds: tuple[type[Event], ...] | None = (
        Ticket.Created,
        Ticket.Called,
        Ticket.Recalled,
        Ticket.NoShow,
        Ticket.Returned,
        Ticket.Cancelled,
        Ticket.Transferred,
    )
    needs_payload = True
    pause_seconds = 0.05

    async def apply(
        self, connection: AsyncConnection[TupleRow], events: Sequence[FollowedEvent]
    ) -> None:
        ((now,),) = await (await connection.execute(READ_CLOCK)).fetchall()
        recent = [event for event in events if event.event.at >= now - EVENT_AGE_MAX]
        if not recent:
            return
        origin = Origin(
            command_id=uuid5(_BATCHES, f"{recent[0].position} {recent[-1].position}"),
            actor=ACTOR,
            causation_id=recent[-1].position,
        )
        await enqueue_async(connection, [_job(event) for event in recent], origin)


def _job(recorded: FollowedEvent) -> NewJob:
    notice = Notice(
        recorded.originator_id, recorded.event.topic, recorded.event.at, recorded.position
    )
    request = JobRequest(
        queue=QUEUE,
        type=recorded.event.topic,
        payload=Raw(json.encode(notice)),
        attempts_max=ATTEMPTS_MAX,
        lease_seconds=LEASE_SECONDS,
        unique_key=f"{recorded.originator_id} {recorded.originator_version}",
    )
    return request.new_job(recorded.originator_id)


class Notifications(Processor):
    name: ClassVar[str] = "notifications"
    wakes_on: ClassVar[WakesOn] = (TICKET,)
    pause_seconds: ClassVar[float] = EnqueueNotifications.pause_seconds

    def __init__(self) -> None:
        self._follower: Follower | None = None

    async def work(self, runtime: Runtime, session: Session) -> float:
        if not session.is_leader:
            return POLL_SECONDS
        if self._follower is None:
            mapper = EventMapper(DECIDERS)
            self._follower = Follower(runtime.conninfo, EnqueueNotifications(), mapper)
        await self._follower.catch_up()
        return SETTLING_SECONDS if self._follower.is_settling else POLL_SECONDS

    async def close(self) -> None:
        if self._follower is not None:
            await self._follower.close()
