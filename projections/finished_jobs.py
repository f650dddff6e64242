"""`finished_jobs`: every job that is completed or cancelled, for lists that show the newest.

A job that is started over, by a retry or because its unique key is used again, leaves it. Only what
finds a job is kept here: to write all of it down costs more than folding those that a page shows.
"""

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from msgspec import Struct
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from domain.event import Event
from domain.job import JOB, Job, JobStatus
from eventlog.arrays import bigints, texts, unnested, uuids
from eventlog.mapper import EventMapper, FollowedEvent
from projections.job_labels import JobLabel, RecentLabels, label_in, read_labels

_INSERTED = unnested(
    "ids uuid, numbers bigint, statuses text, queues text, types text, subjects text"
)

INSERT_FINISHED_JOBS = f"""
INSERT INTO finished_jobs (id, number, status, queue, type, subject)
SELECT {_INSERTED}
"""

DELETE_FINISHED_JOBS = "DELETE FROM finished_jobs WHERE id = ANY(%(ids)b::uuid[])"

# What happened to finished jobs since a position, in order. A job's first event is nothing to them.
READ_TAIL = """
SELECT originator_id, topic
FROM stored_events
WHERE notification_id > %(after)s AND topic = ANY(%(topics)s) AND originator_version > 1
ORDER BY notification_id
LIMIT %(limit)s
"""

_MAPPER = EventMapper((JOB,))
_STATUSES = {
    **dict.fromkeys(_MAPPER.topics_of([Job.Completed]), JobStatus.COMPLETED),
    **dict.fromkeys(_MAPPER.topics_of([Job.Cancelled]), JobStatus.CANCELLED),
}

_CREATED = frozenset(_MAPPER.topics_of([Job.Created]))

Touched = Sequence[tuple[UUID, str]]
"""Jobs, each with the topic of something that happened to it, in the order of the log."""


class FinishedJob(Struct, frozen=True, gc=False):
    id: UUID
    status: JobStatus
    label: JobLabel


class FinishedJobs:
    name = "finished_jobs"
    kinds: tuple[type[Event], ...] | None = (
        Job.Created,
        Job.Requeued,
        Job.Completed,
        Job.Cancelled,
    )

    # What it wants to know of a job is mostly known where it was finished.
    looks_inside = False
    # Lists read the log after the cursor too, so nobody waits for this.
    pause_seconds = 0.25

    def __init__(self, recent: RecentLabels | None = None) -> None:
        self.recent = recent or RecentLabels()

    async def apply(
        self, connection: AsyncConnection[TupleRow], events: Sequence[FollowedEvent]
    ) -> None:
        touched = [(one.originator_id, one.topic) for one in events if one.originator_version > 1]
        if begun := begun_anew(touched):
            await connection.execute(DELETE_FINISHED_JOBS, {"ids": uuids([*begun])})
        over = finished_by(touched)
        labels = self._labels_of(over, events)
        if unknown := [job_id for job_id in over if job_id not in labels]:
            labels |= await read_labels(connection, unknown, upto=events[-1].position)
        if over:
            jobs = [FinishedJob(job_id, status, labels[job_id]) for job_id, status in over.items()]
            await connection.execute(INSERT_FINISHED_JOBS, _columns(jobs))

    def _labels_of(
        self, over: Mapping[UUID, JobStatus], events: Iterable[FollowedEvent]
    ) -> dict[UUID, JobLabel]:
        """As far as they are known without a look into the log: this process has just finished
        them or, where states are given, they were created in this batch. Of what happened to a
        job, the last counts."""
        labels: dict[UUID, JobLabel] = {}
        for one in events:
            if (job_id := one.originator_id) not in over:
                continue
            if one.topic not in _CREATED:
                label = self.recent.take(job_id, one.originator_version)
            else:
                label = label_in(one.event) if one.state else None
                # What was known of an earlier life says nothing about this one.
                labels.pop(job_id, None)
            if label is not None:
                labels[job_id] = label
        return labels


def begun_anew(touched: Touched) -> set[UUID]:
    """Those that are, or were for a while, no longer finished."""
    return {job_id for job_id, topic in touched if topic not in _STATUSES}


def finished_by(touched: Touched) -> dict[UUID, JobStatus]:
    """How those stand that are finished after all this."""
    last = dict(touched)
    return {job_id: _STATUSES[topic] for job_id, topic in last.items() if topic in _STATUSES}


async def read_tail(connection: AsyncConnection[TupleRow], after: int, limit: int) -> Touched:
    """What the read model does not know at its cursor."""
    wanted = {
        "after": after,
        "topics": _MAPPER.topics_of(FinishedJobs.kinds or ()),
        "limit": limit,
    }
    rows = await connection.execute(READ_TAIL, wanted, binary=True)
    return [(job_id, topic) for job_id, topic in await rows.fetchall()]


def _columns(jobs: Sequence[FinishedJob]) -> Mapping[str, bytes]:
    labels = [job.label for job in jobs]
    return {
        "ids": uuids([job.id for job in jobs]),
        "statuses": texts([job.status for job in jobs]),
        "numbers": bigints([label.number for label in labels]),
        "queues": texts([label.queue for label in labels]),
        "types": texts([label.type for label in labels]),
        "subjects": texts([label.subject for label in labels]),
    }
