"""`finished_jobs`: every job that is completed or cancelled, for lists that show the newest.

A job that is started over, by a retry or because its unique key is used again, leaves it.
"""

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from msgspec import Struct
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from domain.event import Event
from domain.job import Job, JobStatus
from eventlog.arrays import bigints, texts, uuids
from eventlog.mapper import RecordedEvent
from projections.job_labels import JobLabel, label_of, read_labels

INSERT_FINISHED_JOBS = """
INSERT INTO finished_jobs (id, number, status, queue, type, subject)
SELECT * FROM unnest(
    %(ids)b::uuid[], %(numbers)b::bigint[], %(statuses)b::text[], %(queues)b::text[],
    %(types)b::text[], %(subjects)b::text[])
"""

DELETE_FINISHED_JOBS = "DELETE FROM finished_jobs WHERE id = ANY(%(ids)b::uuid[])"

_ENDS: Mapping[type[Event], JobStatus] = {
    Job.Completed: JobStatus.COMPLETED,
    Job.Cancelled: JobStatus.CANCELLED,
}


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

    # Lists read the log after the cursor too, so nobody waits for this.
    pause_seconds = 0.25

    async def apply(
        self, connection: AsyncConnection[TupleRow], events: Sequence[RecordedEvent]
    ) -> None:
        if anew := {event.originator_id for event in events if _begins_anew(event)}:
            await connection.execute(DELETE_FINISHED_JOBS, {"ids": uuids([*anew])})
        finished = await find_finished(connection, events, upto=events[-1].position)
        if finished:
            await connection.execute(INSERT_FINISHED_JOBS, _columns(finished))


async def find_finished(
    connection: AsyncConnection[TupleRow], events: Iterable[RecordedEvent], *, upto: int
) -> list[FinishedJob]:
    """The jobs that are over after these events, which are all that matter up to a position."""
    statuses: dict[UUID, JobStatus | None] = {}
    labels: dict[UUID, JobLabel] = {}
    for recorded in events:
        event = recorded.event
        statuses[recorded.originator_id] = _ENDS.get(type(event))
        if isinstance(event, Job.Created):
            labels[recorded.originator_id] = label_of(event)
    over = {job_id: status for job_id, status in statuses.items() if status is not None}
    if unknown := [job_id for job_id in over if job_id not in labels]:
        labels |= await read_labels(connection, unknown, upto=upto)
    return [FinishedJob(job_id, status, labels[job_id]) for job_id, status in over.items()]


def _begins_anew(recorded: RecordedEvent) -> bool:
    event = recorded.event
    is_again = isinstance(event, Job.Created) and recorded.originator_version > 1
    return is_again or isinstance(event, Job.Requeued)


def _columns(jobs: Sequence[FinishedJob]) -> dict[str, bytes]:
    labels = [job.label for job in jobs]
    return {
        "ids": uuids([job.id for job in jobs]),
        "statuses": texts([job.status for job in jobs]),
        "numbers": bigints([label.number for label in labels]),
        "queues": texts([label.queue for label in labels]),
        "types": texts([label.type for label in labels]),
        "subjects": texts([label.subject for label in labels]),
    }
