"""`finished_jobs`: every completed or cancelled job, for lists. A restarted job leaves the table.

A row holds only the columns that find a job: folding the jobs of a page is cheaper than storing
all of them. Rows change in the transaction of the events; a follower took 10 % of the time of a
job. Only a rebuild or an audit derives the table from the log.
"""

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from msgspec import Struct

from daybook.domain.event import Event
from daybook.domain.jobs.job import JOB, Job, JobStatus
from daybook.eventlog.codec import EventMapper, FollowedEvent
from daybook.eventlog.postgres.binary_arrays import bigints, texts, unnested, uuids
from daybook.eventlog.postgres.pipeline import Connection
from daybook.eventlog.writing.live_table import Change, Statement, Statements
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
    """Returns the statements for the changes of a batch. A job in its first life has no row yet."""
    jobs: list[Job] = [change.state for change in changes]
    back = [job.id for job in jobs if job.life > 1]
    over = [job for job in jobs if job.status is _COMPLETED or job.status is _CANCELLED]
    statements: list[Statement] = []
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
        """Deletes and inserts every touched job: a replay may deliver events twice."""
        # A job's first event neither finishes nor restarts it.
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
    """Returns the labels of jobs created in this batch; of several creations, the last."""
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
