"""The list of jobs, page by page, as it is at one moment.

What waits and what is being worked on, the oldest first; then what is dead, completed and
cancelled, the newest first. All by number, because numbers rise with creation.

A job that is over leaves the live table at once and comes into `finished_jobs` a moment later. In
between it is in the tail of the log, behind that read model's cursor: all three are read in one
snapshot, so every job is in every list, and once.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from heapq import nlargest
from uuid import UUID

from msgspec import Struct
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from domain.job import JOB, Job, JobStatus
from eventlog.history import fold_histories
from eventlog.mapper import EventMapper
from projections.finished_jobs import (
    FinishedJob,
    FinishedJobs,
    begun_anew,
    finished_by,
    read_tail,
)
from projections.job_labels import read_labels
from projections.job_place import JobFilter, Place
from projections.job_walks import OF_SOURCES, OF_SUBJECT
from projections.jobs import load_jobs
from projections.snapshot import FOLD_MAX, TAIL_MAX, ListBehindError, enter_snapshot

_MAPPER = EventMapper((JOB,))
_FINISHED = (JobStatus.COMPLETED, JobStatus.CANCELLED)


class JobPage(Struct, frozen=True):
    jobs: list[Job]
    next_cursor: str | None
    now: datetime


async def read_jobs(
    connection: AsyncConnection[TupleRow],
    wanted: JobFilter,
    *,
    limit: int,
    cursor: str | None = None,
) -> JobPage:
    """One page of the jobs that fit, from the beginning or from a cursor."""
    place = Place.beginning(wanted) if cursor is None else Place.parse(cursor, wanted)
    async with connection.transaction():
        now, position = await enter_snapshot(connection, FinishedJobs.name)
        # One more than asked for shows whether there is another page.
        jobs = await _Reading(connection, wanted, position).from_place(place, limit + 1)
    if len(jobs) <= limit:
        return JobPage(jobs, None, now)
    last = jobs[limit - 1]
    return JobPage(jobs[:limit], Place(wanted.mark, last.status, last.number).cursor(), now)


class _Reading:
    """One look at the jobs that fit, in the snapshot of its transaction."""

    def __init__(
        self, connection: AsyncConnection[TupleRow], wanted: JobFilter, position: int
    ) -> None:
        self._connection = connection
        self._wanted = wanted
        self._position = position
        self._tail: _Tail | None = None

    async def from_place(self, place: Place, limit: int) -> list[Job]:
        jobs: list[Job] = []
        sections = self._wanted.sections
        for section in sections[sections.index(place.section) :]:
            missing = limit - len(jobs)
            if not missing:
                break
            is_first = section is place.section
            here = place if is_first else Place.beginning(self._wanted, section)
            read = self._finished if section in _FINISHED else self._live
            jobs += await read(here, missing)
        return jobs

    async def _live(self, place: Place, limit: int) -> list[Job]:
        return load_jobs(await self._walk(place, limit))

    async def _finished(self, place: Place, limit: int) -> list[Job]:
        """Of read model and tail together, the newest below a number."""
        tail = await self._read_tail()
        # Those that are no longer finished are still in the read model.
        rows = await self._walk(place, limit + len(tail.begun))
        found: list[tuple[int, UUID]] = [row for row in rows if row[1] not in tail.begun]
        found += [
            (job.label.number, job.id)
            for job in tail.finished
            if job.status is place.section and job.label.number < place.number
        ]
        return await self._fold([job_id for _, job_id in nlargest(limit, found)])

    async def _walk(self, place: Place, limit: int) -> list[TupleRow]:
        wanted = self._wanted
        given = {
            "queue": wanted.queue,
            "type": wanted.type,
            "subject": wanted.subject,
            "status": place.section.value,
            "number": place.number,
            "limit": limit,
        }
        statement = (OF_SOURCES if wanted.subject is None else OF_SUBJECT)[place.section]
        return await (await self._connection.execute(statement, given, binary=True)).fetchall()

    async def _read_tail(self) -> "_Tail":
        if self._tail is None:
            touched = await read_tail(self._connection, self._position, TAIL_MAX + 1)
            if len(touched) > TAIL_MAX:
                raise ListBehindError
            finished = await self._labelled(finished_by(touched))
            fitting = [job for job in finished if _fits(job, self._wanted)]
            self._tail = _Tail(begun_anew(touched), fitting)
        return self._tail

    async def _labelled(self, over: dict[UUID, JobStatus]) -> list[FinishedJob]:
        ids = [*over]
        labelled: list[FinishedJob] = []
        for start in range(0, len(ids), FOLD_MAX):
            labels = await read_labels(self._connection, ids[start : start + FOLD_MAX])
            labelled += [FinishedJob(one, over[one], label) for one, label in labels.items()]
            await asyncio.sleep(0)
        return labelled

    async def _fold(self, ids: Sequence[UUID]) -> list[Job]:
        folded: dict[UUID, Job] = {}
        for start in range(0, len(ids), FOLD_MAX):
            chunk = ids[start : start + FOLD_MAX]
            folded |= await fold_histories(self._connection, _MAPPER, chunk)
            await asyncio.sleep(0)
        return [folded[job_id] for job_id in ids]


class _Tail(Struct, frozen=True):
    """What the read model does not know yet."""

    begun: set[UUID]
    finished: list[FinishedJob]


def _fits(job: FinishedJob, wanted: JobFilter) -> bool:
    label = job.label
    pairs = (
        (wanted.queue, label.queue),
        (wanted.type, label.type),
        (wanted.subject, label.subject),
    )
    return all(asked is None or asked == given for asked, given in pairs)
