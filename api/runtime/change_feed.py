"""The change feed: the tail of the log, rendered once as server-sent events for all streams."""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict
from uuid import UUID

import orjson
from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool

from daybook.api.http.event_json import members_json
from daybook.api.http.timestamps import Moment, moment
from daybook.domain.event import Event
from daybook.domain.jobs.job import JOB, Job
from daybook.domain.jobs.queue import QUEUE
from daybook.domain.orders.bot import BOT
from daybook.domain.orders.order import ORDER
from daybook.domain.tickets.restaurant import RESTAURANT
from daybook.domain.tickets.ticket import TICKET
from daybook.eventlog.codec import EventMapper, RecordedEvent, UnreadableEvent
from daybook.eventlog.notifier import Notifier
from daybook.eventlog.reading.epochs import LogPosition, epoch_of
from daybook.eventlog.reading.tail import Tail
from daybook.projections.jobs.job_creations import read_creations

_DECIDERS = (ORDER, BOT, JOB, QUEUE, RESTAURANT, TICKET)
_NAMES = {kind: decider.name for decider in _DECIDERS for kind in decider.events}

# Streams show only the status after these events: payloads are large, tickets are personal.
_STATUS_ONLY = frozenset((*JOB.events, *TICKET.events))
assert all(kind.status_after for kind in _STATUS_ONLY), "events of jobs and tickets set the status"


def open_change_feed(
    conninfo: str,
    *,
    mapper: EventMapper,
    notifier: Notifier,
    readers: AsyncConnectionPool[AsyncConnection[TupleRow]],
) -> Tail:
    """The tail of the log that all streams of a process share."""
    return Tail(
        conninfo, mapper=mapper, kinds=_NAMES, render=render, notifier=notifier, readers=readers
    )


class ChangeJSON(TypedDict):
    """A recorded event. `data` has the members of the event; for a job, whose payload may be large,
    only queue, type and status; for a ticket, which is personal, only the status."""

    position: int
    topic: str
    id: UUID
    version: int
    recordedAt: Moment
    data: dict[str, Any]


def change_json(recorded: RecordedEvent, created: Mapping[UUID, Job.Created]) -> ChangeJSON:
    event = recorded.event
    return {
        "position": recorded.position,
        "topic": recorded.topic if isinstance(event, UnreadableEvent) else event.topic,
        "id": recorded.originator_id,
        "version": recorded.originator_version,
        "recordedAt": moment(recorded.recorded_at),
        "data": _data(event, created.get(recorded.originator_id)),
    }


def _data(event: Event, created: Job.Created | None) -> dict[str, Any]:
    if isinstance(event, UnreadableEvent):
        return {"unreadable": event.error}
    if type(event) not in _STATUS_ONLY:
        return members_json(event)
    status = {"status": event.status_after}
    # None for a ticket, and for a job whose creation is unreadable.
    return {"queue": created.queue, "type": created.type, **status} if created else status


async def render(
    connection: AsyncConnection[TupleRow], events: Sequence[RecordedEvent]
) -> list[bytes]:
    jobs = {recorded.originator_id for recorded in events if isinstance(recorded.event, JOB.events)}
    created = await read_creations(connection, [*jobs]) if jobs else {}
    epoch = await epoch_of(connection)
    return [
        sse_block(
            LogPosition(recorded.position, epoch),
            _NAMES.get(type(recorded.event)) or recorded.topic.partition(".")[0],
            change_json(recorded, created),
        )
        for recorded in events
    ]


def sse_block(position: LogPosition, name: str, data: Any) -> bytes:
    fields = str(position).encode(), name.encode(), orjson.dumps(data)
    return b"id: %b\nevent: %b\ndata: %b\n\n" % fields
