"""`finished_jobs`: every job that is completed or cancelled, for lists that show the newest.

A job that is started over, by a retry or because its unique key is used again, leaves it. Only what
finds a job is kept here: to write all of it down costs more than folding those that a page shows.

Rows come and go with the events that finish a job or start it over, in their transaction: all that
is to be written is at hand there, and to follow the log for it took a tenth of the time of a job.
From the log alone it is derived only anew, by whoever rebuilds or audits it.
"""

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from msgspec import Struct

from daybook.domain.event import Event
from daybook.domain.jobs.job import JOB, Job, JobStatus
from daybook.eventlog.codec import EventMapper, FollowedEvent
from daybook.eventlog.postgres.binary_arrays import bigints, texts, unnested, uuids
from daybook.eventlog.postgres.pipeline import Connection
from daybook.eventlog.writing.live_table import Change, Parameters, Statements
from daybook.projections.jobs.job_labels import JobLabel, label_in, read_labels

_INSERTED = unnested(
    "ids uuid, numbers bigint, statuses text, queues text, types text, subjects text"
)

INSERT_FINISHED_JOBS = f"""
INSERT INTO finished_jobs (id, number, status, queue, type, subject)
SELECT {_INSERTED}
"""

DELETE_FINISHED_JOBS = "DELETE FROM finished_jobs WHERE id = ANY(%(ids)b::uuid[])"

_COMPLETED, _CANCELLED = JobStatus.COMPLETED, JobStatus.CANCELLED
_MAPPER = EventMapper((JOB,))
_STATUSES = {
    **dict.fromkeys(_MAPPER.topics_of([Job.Completed]), _COMPLETED),
    **dict.fromkeys(_MAPPER.topics_of([Job.Cancelled]), _CANCELLED),
}
_CREATED = frozenset(_MAPPER.topics_of([Job.Created]))


class FinishedJob(Struct, frozen=True, gc=False):
    id: UUID
    status: JobStatus
    label: JobLabel


def side_statements(changes: Iterable[Change]) -> Statements:
    """What the changes of a batch make of it. Who lives for the first time was never in it."""
    jobs: list[Job] = [change.state for change in changes]
    back = [job.id for job in jobs if job.life > 1]
    over = [job for job in jobs if job.status is _COMPLETED or job.status is _CANCELLED]
    statements: list[tuple[str, Parameters]] = []
    if back:
        statements.append((DELETE_FINISHED_JOBS, {"ids": uuids(back)}))
    if over:
        statements.append((INSERT_FINISHED_JOBS, _columns(over, over)))
    return statements


class FinishedJobs:
    name = "finished_jobs"
    kinds: tuple[type[Event], ...] | None = (
        Job.Created,
        Job.Requeued,
        Job.Completed,
        Job.Cancelled,
    )

    async def apply(self, connection: Connection, events: Sequence[FollowedEvent]) -> None:
        """Whatever is touched is taken out and put in anew: events may be told again."""
        # A job's first event neither finishes it nor starts it over.
        last = {one.originator_id: one.topic for one in events if one.originator_version > 1}
        await connection.execute(DELETE_FINISHED_JOBS, {"ids": uuids([*last])})
        over = {job_id: _STATUSES[topic] for job_id, topic in last.items() if topic in _STATUSES}
        if not over:
            return
        labels = _created_in(events, over)
        if unknown := [job_id for job_id in over if job_id not in labels]:
            labels |= await read_labels(connection, unknown, upto=events[-1].position)
        jobs = [FinishedJob(job_id, status, labels[job_id]) for job_id, status in over.items()]
        await connection.execute(INSERT_FINISHED_JOBS, _columns(jobs, [job.label for job in jobs]))


def _created_in(
    events: Iterable[FollowedEvent], over: Mapping[UUID, JobStatus]
) -> dict[UUID, JobLabel]:
    """Of those that were created in this batch; of several times, the last counts."""
    created = [one for one in events if one.topic in _CREATED and one.originator_id in over]
    return {one.originator_id: label_in(one.event) for one in created}


def _columns(
    jobs: Sequence[Job] | Sequence[FinishedJob], labels: Sequence[Job] | Sequence[JobLabel]
) -> Mapping[str, bytes]:
    return {
        "ids": uuids([job.id for job in jobs]),
        "statuses": texts([job.status for job in jobs]),
        "numbers": bigints([label.number for label in labels]),
        "queues": texts([label.queue for label in labels]),
        "types": texts([label.type for label in labels]),
        "subjects": texts([label.subject for label in labels]),
    }
