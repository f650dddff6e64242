"""`finished_jobs`: every completed or cancelled job, for lists. A restarted job leaves the table.

Rows change in the transaction of the events; a follower took 10 % of the time of a job. Only a
rebuild or an audit derives the table from the log.
"""

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from msgspec.structs import replace

from daybook.domain.event import Event
from daybook.domain.jobs.job import JOB, Job, JobStatus, evolve
from daybook.eventlog.codec import EventMapper, FollowedEvent
from daybook.eventlog.postgres.binary_arrays import uuids
from daybook.eventlog.postgres.pipeline import Connection
from daybook.eventlog.writing.live_table import Change, Statement, Statements
from daybook.eventlog.writing.row_mapping import RowMapping
from daybook.projections.jobs.job_columns import FINISHED_JOB_COLUMNS
from daybook.projections.jobs.job_creations import read_creations

_FINISHED_JOBS = RowMapping("finished_jobs", Job, FINISHED_JOB_COLUMNS)
INSERT_FINISHED_JOBS = _FINISHED_JOBS.insert_sql()
DELETE_FINISHED_JOBS = "DELETE FROM finished_jobs WHERE id = ANY(%(ids)b::uuid[])"

_COMPLETED, _CANCELLED = JobStatus.COMPLETED, JobStatus.CANCELLED
_MAPPER = EventMapper((JOB,))
_STATUSES = {
    **dict.fromkeys(_MAPPER.topics_of([Job.Completed]), _COMPLETED),
    **dict.fromkeys(_MAPPER.topics_of([Job.Cancelled]), _CANCELLED),
}
_CREATED = frozenset(_MAPPER.topics_of([Job.Created]))
_pack = _FINISHED_JOBS.packer(_FINISHED_JOBS.columns)


def side_statements(changes: Iterable[Change]) -> Statements:
    """Returns the statements for the changes of a batch. A job in its first life has no row yet."""
    jobs: list[Job] = [change.state for change in changes]
    back = [job.id for job in jobs if job.life > 1]
    over = [job for job in jobs if job.status is _COMPLETED or job.status is _CANCELLED]
    statements: list[Statement] = []
    if back:
        statements.append((DELETE_FINISHED_JOBS, {"ids": uuids(back)}))
    if over:
        statements.append((INSERT_FINISHED_JOBS, _pack(over)))
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
        creations = _creations_in(events, over)
        if unknown := [job_id for job_id in over if job_id not in creations]:
            creations |= await read_creations(connection, unknown, upto=events[-1].position)
        jobs = [
            replace(evolve(None, creations[job_id]), status=status)
            for job_id, status in over.items()
        ]
        await connection.execute(INSERT_FINISHED_JOBS, _pack(jobs))


def _creations_in(
    events: Iterable[FollowedEvent], over: Mapping[UUID, JobStatus]
) -> dict[UUID, Event]:
    """Returns the creations in this batch; of several of one job, the last."""
    created = [one for one in events if one.topic in _CREATED and one.originator_id in over]
    return {one.originator_id: one.event for one in created}
