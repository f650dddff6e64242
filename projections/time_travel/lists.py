"""Lists of orders, bots, jobs and queues as of a position of the log."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from daybook.domain.deciders import DECIDERS
from daybook.domain.event import Event
from daybook.domain.jobs.job import JOB, Job, JobStatus
from daybook.domain.jobs.queue import QUEUE, DeadJobPolicy, Limits, Queue
from daybook.domain.messages.operation import OPERATION, Operation
from daybook.domain.orders.bot import BOT, Bot
from daybook.domain.orders.order import ORDER, Order, OrderStatus, urgency
from daybook.eventlog.codec import EventMapper
from daybook.eventlog.postgres.pipeline import Connection
from daybook.eventlog.reading.fold import fold_histories
from daybook.projections.jobs.queue_stats import QueueStats
from daybook.projections.orders.order_cursor import SECTIONS
from daybook.projections.time_travel.state_as_of import READ_INSTANT, Past

# Walks back from the position. SQL skips deleted aggregates: after all orders were cleared, each
# would be folded only to be left out.
FIND_FINISHED = """
SELECT notification_id, originator_id
FROM stored_events AS finished
WHERE notification_id < %(before)s AND topic = ANY(%(topics)s)
    AND (
        SELECT topic
        FROM stored_events
        WHERE originator_id = finished.originator_id AND notification_id <= %(position)s
        ORDER BY originator_version DESC
        LIMIT 1
    ) <> ALL(%(deleting)s)
ORDER BY notification_id DESC
LIMIT %(limit)s
"""

# Finished aggregates that one list folds at most, however few match its filter.
WALK_MAX = 20_000

# Places of jobs and operations in their lanes, by the version of the event that entered.
READ_PLACES = """
SELECT job_id, notification_id
FROM unnest(%(ids)s::uuid[], %(entries)s::uuid[], %(versions)s::bigint[])
    AS entry (job_id, id, version)
JOIN stored_events ON (originator_id, originator_version) = (id, version)
"""

_MAPPER = EventMapper(DECIDERS)

S = TypeVar("S", Order, Job)


class PastMoment(Struct, frozen=True):
    """A position of the log and its time; None before the first event."""

    position: int
    at: datetime | None


async def moment_of(connection: Connection, position: int) -> PastMoment:
    row = await (await connection.execute(READ_INSTANT, {"position": position})).fetchone()
    return PastMoment(position, None if row is None else row[1])


async def orders_as_of(
    connection: Connection,
    position: int,
    *,
    only: OrderStatus | None,
    limit: int,
    owner: str | None = None,
) -> list[Order]:
    def is_owners(order: Order) -> bool:
        return owner is None or order.owner == owner

    def is_listed(order: Order) -> bool:
        return _is_complete(order) and is_owners(order)

    past = await Past.at(connection, position, ORDER)
    orders: list[Order] = [*past.of(Order)]
    if only in (None, OrderStatus.COMPLETE):
        orders += await _finished(connection, position, limit, (Order.Completed,), is_listed)
    orders = [order for order in orders if is_owners(order)]
    wanted = SECTIONS if only is None else (only,)
    listed: list[Order] = []
    for section in wanted:
        of_section = [order for order in orders if order.status is section]
        listed += sorted(of_section, key=_order_key(section))
    return listed[:limit]


def _order_key(section: OrderStatus) -> Callable[[Order], Any]:
    if section is OrderStatus.PENDING:
        return urgency
    return lambda order: -order.number


def _is_complete(order: Any) -> bool:
    complete: bool = order.status is OrderStatus.COMPLETE and order.deleted_at is None
    return complete


async def bots_as_of(connection: Connection, position: int) -> list[Bot]:
    past = await Past.at(connection, position, BOT)
    return sorted(past.of(Bot), key=lambda bot: (bot.created_at, bot.id), reverse=True)


async def jobs_as_of(
    connection: Connection,
    position: int,
    *,
    fits: Callable[[Job], bool],
    sections: Sequence[JobStatus],
    limit: int,
) -> list[Job]:
    past = await Past.at(connection, position, JOB)
    jobs = [job for job in past.of(Job) if fits(job)]
    if JobStatus.COMPLETED in sections or JobStatus.CANCELLED in sections:

        def is_listed(job: Job) -> bool:
            return job.is_over and job.status in sections and fits(job)

        kinds = (Job.Completed, Job.Cancelled)
        jobs += await _finished(connection, position, limit, kinds, is_listed)
    listed: list[Job] = []
    for section in sections:
        of_section = [job for job in jobs if job.status is section]
        is_waiting = section in (JobStatus.PENDING, JobStatus.PROCESSING)
        listed += sorted(of_section, key=lambda job: job.number, reverse=not is_waiting)
    return listed[:limit]


async def queues_as_of(connection: Connection, position: int) -> list[QueueStats]:
    then = await moment_of(connection, position)
    past = await Past.at(connection, position, QUEUE, JOB, OPERATION)
    settings = {queue.name: queue for queue in past.of(Queue)}
    jobs: dict[str, list[Job]] = {name: [] for name in settings}
    for job in past.of(Job):
        jobs.setdefault(job.queue, []).append(job)
    members = [job for job in past.of(Job) if job.entered is not None]
    behind = await _behind(connection, members, [*past.of(Operation)])
    for name, of_queue in jobs.items():
        jobs[name] = [job for job in of_queue if job.id not in behind]
    counts = Counter(behind.values())
    return [
        replace(_queue_stats(name, settings.get(name), jobs[name], then), behind=counts[name])
        for name in sorted(jobs)
    ]


async def _behind(
    connection: Connection, members: Sequence[Job], accepted: Sequence[Operation]
) -> dict[UUID, str]:
    """Returns the pending jobs behind another job or operation in their lane, with their queue."""
    entered = [(job.id, job.operation_id or job.id, _entry(job)) for job in members]
    entered += [(one.id, one.id, 1) for one in accepted]
    ids, entries, versions = [[*column] for column in zip(*entered, strict=True)] or ([], [], [])
    found = await connection.execute(
        READ_PLACES, {"ids": ids, "entries": entries, "versions": versions}
    )
    places: dict[UUID, int] = dict(await found.fetchall())
    in_lanes = [(places[job.id], job.number, (job.queue, job.partition), job.id) for job in members]
    in_lanes += [(places[one.id], 0, lane, one.id) for one in accepted for lane in one.lanes]
    heads: dict[tuple[str, str | None], UUID] = {}
    for _, _, lane, one_id in sorted(in_lanes):
        heads.setdefault(lane, one_id)
    first = {*heads.values()}
    waiting = [job for job in members if job.status is JobStatus.PENDING]
    return {job.id: job.queue for job in waiting if job.id not in first}


def _entry(job: Job) -> int:
    """Returns the version of the event that gave the job its place: its own or an operation's."""
    assert job.entered is not None, "the job is in a lane"
    return 1 if job.operation_id else job.entered


def _queue_stats(
    name: str, settings: Queue | None, jobs: list[Job], then: PastMoment
) -> QueueStats:
    ready = [job for job in jobs if job.status is JobStatus.PENDING and not _is_later(job, then)]
    counts = Counter(job.status for job in jobs)
    return QueueStats(
        name=name,
        paused=settings.paused if settings else False,
        limits=settings.limits if settings else Limits(),
        per_subject=settings.per_subject if settings else Limits(),
        lanes=settings.lanes if settings else DeadJobPolicy.BLOCK,
        pending=len(ready),
        scheduled=counts[JobStatus.PENDING] - len(ready),
        behind=0,
        processing=counts[JobStatus.PROCESSING],
        dead=counts[JobStatus.DEAD],
        at_least=(),
        oldest_pending_at=min((job.run_at or job.created_at for job in ready), default=None),
    )


def _is_later(job: Job, then: PastMoment) -> bool:
    return job.run_at is not None and then.at is not None and job.run_at > then.at


async def _finished(
    connection: Connection,
    position: int,
    limit: int,
    kinds: Iterable[type[Event]],
    is_wanted: Callable[[Any], bool],
) -> list[Any]:
    """Returns the last `limit` finished aggregates that are wanted."""
    found: dict[UUID, Any] = {}
    before, count, page = position + 1, 0, limit
    topics, deleting = _MAPPER.topics_of(kinds), _MAPPER.topics_of((Order.Deleted,))
    while len(found) < limit and count < WALK_MAX:
        given = {"before": before, "position": position, "limit": page}
        parameters = {**given, "topics": topics, "deleting": deleting}
        rows = await (await connection.execute(FIND_FINISHED, parameters)).fetchall()
        ids = [row[1] for row in rows]
        folded = await fold_histories(connection, _MAPPER, ids, upto=position)
        found |= {one: state for one, state in folded.items() if is_wanted(state)}
        if len(rows) < page:
            break
        # Pages double, so a filter with few matches takes few round trips.
        before, count = rows[-1][0], count + page
        page = min(page * 2, WALK_MAX - count)
    return [*found.values()]
