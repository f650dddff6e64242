"""Jobs that are created in somebody else's transaction: they exist once that commits, and a
booking and its jobs are there together or not at all.

The decision and the statements are those of the committer. What it holds and checks beforehand,
the log's own primary key decides here.
"""

from collections.abc import Collection, Generator, Sequence
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection, Connection
from psycopg.rows import tuple_row

from domain.job import JOB, Job
from domain.new_jobs import JOB_NUMBERS, CreateJobs, Enqueued, NewJob
from eventlog import arrays
from eventlog.appending import APPEND_EVENTS, appended
from eventlog.arrays import uuids
from eventlog.batch import DRAW_NUMBERS, READ_CLOCK
from eventlog.database import SCHEMA
from eventlog.desk import BatchDesk
from eventlog.folding import READ_AGGREGATES, fold_aggregates
from eventlog.live import Parameters
from eventlog.mapper import EventMapper
from eventlog.origin import Origin
from eventlog.wakeups import NOTIFY
from projections.jobs import LiveJobs
from projections.queues import LiveQueues
from projections.registry import DECIDERS

# Who is quicker with a unique key has it: the other waits until that is certain.
APPEND_NEW_EVENTS = APPEND_EVENTS.replace(
    "RETURNING notification_id", "ON CONFLICT DO NOTHING RETURNING notification_id, originator_id"
)
ENTER_SCHEMA = """
SELECT current_setting('search_path'), set_config('search_path', %(schema)s, true)
"""
LEAVE_SCHEMA = "SELECT set_config('search_path', %(path)s, true)"

Rows = list[tuple[Any, ...]]
Steps = Generator[tuple[str, dict[str, Any]], Rows, list[Enqueued]]

_MAPPER = EventMapper(DECIDERS)
_TABLE = LiveJobs()


def enqueue(
    connection: "Connection[Any]", new: Sequence[NewJob], origin: Origin, *, wake: bool = True
) -> list[Enqueued]:
    """`wake` tells the service at once when the caller commits; else it looks within a second."""
    arrays.register(connection)
    cursor = connection.cursor(row_factory=tuple_row)
    steps = _steps(new, origin, wake)
    rows: Any = None
    while True:
        try:
            query, parameters = steps.send(rows)
        except StopIteration as done:
            return list(done.value)
        cursor.execute(query.encode(), parameters, binary=True)
        rows = cursor.fetchall() if cursor.description else []


async def enqueue_async(
    connection: "AsyncConnection[Any]", new: Sequence[NewJob], origin: Origin, *, wake: bool = True
) -> list[Enqueued]:
    arrays.register(connection)
    cursor = connection.cursor(row_factory=tuple_row)
    steps = _steps(new, origin, wake)
    rows: Any = None
    while True:
        try:
            query, parameters = steps.send(rows)
        except StopIteration as done:
            return list(done.value)
        await cursor.execute(query.encode(), parameters, binary=True)
        rows = await cursor.fetchall() if cursor.description else []


def _steps(new: Sequence[NewJob], origin: Origin, wake: bool) -> Steps:
    """The statements one after another, each sent the rows of the one before."""
    ((path, _),) = yield ENTER_SCHEMA, {"schema": SCHEMA}
    desk = yield from _desk(new)
    enqueued = CreateJobs(new).decide(desk)
    changes = desk.changes.get(JOB.name, [])
    events = desk.accept()
    for holding in _TABLE.around({JOB.name: changes}).first:
        yield _sent(holding)
    written = yield APPEND_NEW_EVENTS, appended(events, [origin] * len(events), _MAPPER)
    taken = {event.originator_id for event in events} - {row[1] for row in written}
    created = [one.job for one in enqueued if one.is_new and one.job.id not in taken]
    if created:
        created.sort(key=lambda job: job.id.int)
        yield _sent(_TABLE.insertion(created))
        ours = [change for change in changes if change.state and change.state.id not in taken]
        for settling in _TABLE.around({JOB.name: ours}).last:
            yield _sent(settling)
    if taken:
        # Somebody else was quicker with the same unique key.
        others = yield from _fold(taken)
        enqueued = [
            Enqueued(others[one.job.id], is_new=False) if one.job.id in taken else one
            for one in enqueued
        ]
    if wake:
        yield NOTIFY, {}
    yield LEAVE_SCHEMA, {"path": path}
    return enqueued


def _sent(statement: tuple[str, Parameters]) -> tuple[str, dict[str, Any]]:
    query, given = statement
    return query, dict(given)


def _desk(new: Sequence[NewJob]) -> Generator[tuple[str, dict[str, Any]], Rows, BatchDesk]:
    keyed = [job_id for _, job_id in CreateJobs(new).reads.names]
    existing: dict[UUID, Job] = {}
    if keyed:
        existing = yield from _fold(keyed)
    queues = [queue for _, queue in CreateJobs(new).reads.seen]
    seen = (yield LiveQueues.see, {"ids": uuids(queues)}) if queues else []
    drawn = yield DRAW_NUMBERS, {"sequence": JOB_NUMBERS, "count": len(new)}
    ((now,),) = yield READ_CLOCK, {}
    return BatchDesk(
        now=now,
        held=existing.values(),
        absent=[*queues, *(one for one in keyed if one not in existing)],
        ready={},
        drawn={JOB_NUMBERS: iter([row[0] for row in drawn])},
        seen=map(LiveQueues().load, seen),
    )


def _fold(
    ids: Collection[UUID],
) -> Generator[tuple[str, dict[str, Any]], Rows, dict[UUID, Job]]:
    rows = yield READ_AGGREGATES, {"ids": uuids([*ids])}
    return fold_aggregates(_MAPPER, rows)
