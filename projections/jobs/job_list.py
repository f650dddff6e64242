"""The list of jobs, page by page, as it is at one moment.

What waits and what is being worked on, the oldest first; then what is dead, completed and
cancelled, the newest first. All by number, because numbers rise with creation.

A job that is over leaves the live table and comes into `finished_jobs` in one transaction, and both
are read in one snapshot: so every job is in every list, and once.
"""

import asyncio
from collections.abc import Iterator, Sequence
from datetime import datetime
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace
from psycopg.rows import TupleRow

from daybook.domain.jobs.job import JOB, Job, JobStatus
from daybook.eventlog.codec import EventMapper
from daybook.eventlog.postgres.pipeline import Connection
from daybook.eventlog.reading.fold import fold_histories
from daybook.projections.jobs.job_filter import JobCursor, JobFilter
from daybook.projections.jobs.job_list_sql import (
    COUNT_OF_SOURCES,
    COUNT_OF_SUBJECT,
    OF_SOURCES,
    OF_SUBJECT,
)
from daybook.projections.jobs.jobs import load_jobs
from daybook.projections.snapshot import FOLD_MAX, enter_live_snapshot

_MAPPER = EventMapper((JOB,))
_FINISHED = (JobStatus.COMPLETED, JobStatus.CANCELLED)


class JobPage(Struct, frozen=True):
    jobs: list[Job]
    next_cursor: str | None
    now: datetime
    counted: int = 0
    """How many there are from the place on, this page among them, as far as was asked."""


async def read_jobs(
    connection: Connection,
    wanted: JobFilter,
    *,
    limit: int,
    cursor: str | None = None,
    count_max: int = 0,
) -> JobPage:
    """One page of the jobs that fit, from the beginning or from a cursor. Page and count are of
    the same moment."""
    place = JobCursor.beginning(wanted) if cursor is None else JobCursor.parse(cursor, wanted)
    async with connection.transaction():
        now = await enter_live_snapshot(connection)
        # One more than asked for shows whether there is another page.
        reading = _Reading(connection, wanted)
        jobs = await reading.read_from(place, limit + 1)
        counted = await reading.count(place, count_max) if count_max else 0
    if len(jobs) <= limit:
        return JobPage(jobs, None, now, counted)
    last = jobs[limit - 1]
    cursor = JobCursor(wanted.mark, last.status, last.number).cursor()
    return JobPage(jobs[:limit], cursor, now, counted)


class _Reading:
    """One look at the jobs that fit, in the snapshot of its transaction."""

    def __init__(self, connection: Connection, wanted: JobFilter) -> None:
        self._connection = connection
        self._wanted = wanted

    async def read_from(self, place: JobCursor, limit: int) -> list[Job]:
        jobs: list[Job] = []
        for here in self._places_from(place):
            missing = limit - len(jobs)
            if not missing:
                break
            read = self._finished if here.section in _FINISHED else self._live
            jobs += await read(here, missing)
        return jobs

    async def count(self, place: JobCursor, limit: int) -> int:
        counted = 0
        by_subject = self._wanted.subject is not None
        statements = COUNT_OF_SUBJECT if by_subject else COUNT_OF_SOURCES
        for here in self._places_from(place):
            ((more,),) = await self._run(statements[here.section], here, limit - counted)
            counted += more
        return counted

    def _places_from(self, place: JobCursor) -> Iterator[JobCursor]:
        """Where each section begins, from this place on."""
        sections = self._wanted.sections
        for section in sections[sections.index(place.section) :]:
            is_first = section is place.section
            yield place if is_first else JobCursor.beginning(self._wanted, section)

    async def _live(self, place: JobCursor, limit: int) -> list[Job]:
        return load_jobs(await self._walk(place, limit))

    async def _finished(self, place: JobCursor, limit: int) -> list[Job]:
        """Jobs that cannot be read are left out, and do not end the page."""
        jobs: list[Job] = []
        while missing := limit - len(jobs):
            walked = await self._walk(place, missing)
            jobs += await self._fold([job_id for _, job_id in walked])
            if len(walked) < missing:
                break
            place = replace(place, number=walked[-1][0])
        return jobs

    async def _walk(self, place: JobCursor, limit: int) -> list[TupleRow]:
        statements = OF_SOURCES if self._wanted.subject is None else OF_SUBJECT
        return await self._run(statements[place.section], place, limit)

    async def _run(self, statement: str, place: JobCursor, limit: int) -> list[TupleRow]:
        wanted = self._wanted
        given = {
            "queue": wanted.queue,
            "type": wanted.type,
            "subject": wanted.subject,
            "status": place.section.value,
            "number": place.number,
            "limit": limit,
        }
        return await (await self._connection.execute(statement, given, binary=True)).fetchall()

    async def _fold(self, ids: Sequence[UUID]) -> list[Job]:
        folded: dict[UUID, Job] = {}
        for start in range(0, len(ids), FOLD_MAX):
            chunk = ids[start : start + FOLD_MAX]
            folded |= await fold_histories(self._connection, _MAPPER, chunk)
            await asyncio.sleep(0)
        return [folded[job_id] for job_id in ids if job_id in folded]
