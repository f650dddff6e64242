"""The list of jobs, by section: pending and processing jobs oldest first, then dead, completed and
cancelled jobs newest first, each by number.

A finished job moves from the live table to `finished_jobs` in one transaction and both are read in
one snapshot, so a list shows every job exactly once.
"""

import asyncio
from collections.abc import Iterator, Sequence
from datetime import datetime
from uuid import UUID

from msgspec import Struct
from msgspec.structs import asdict, replace
from psycopg.rows import TupleRow

from daybook.domain.jobs.job import JOB, Job
from daybook.eventlog.codec import EventMapper
from daybook.eventlog.postgres.pipeline import Connection
from daybook.eventlog.reading.fold import fold_histories
from daybook.projections.jobs.job_filter import FINISHED, JobCursor, JobFilter
from daybook.projections.jobs.job_list_sql import count_sql, walk_sql
from daybook.projections.jobs.jobs import load_jobs
from daybook.projections.snapshot import FOLD_MAX, READ_CLOCK, enter_live_snapshot

_MAPPER = EventMapper((JOB,))


class JobPage(Struct, frozen=True):
    jobs: list[Job]
    next_cursor: str | None
    now: datetime
    counted: int = 0  # jobs from the cursor on, up to count_max


async def read_jobs(
    connection: Connection,
    wanted: JobFilter,
    *,
    limit: int,
    cursor: str | None = None,
    count_max: int = 0,
) -> JobPage:
    """Returns one page; page and count are of the same snapshot."""
    start = JobCursor.beginning(wanted) if cursor is None else JobCursor.parse(cursor, wanted)
    async with connection.transaction():
        now = await enter_live_snapshot(connection, wanted.plan or READ_CLOCK)
        # One more than asked for shows whether there is another page.
        reading = _Reading(connection, wanted)
        jobs = await reading.read_from(start, limit + 1)
        counted = await reading.count(start, count_max) if count_max else 0
    if len(jobs) <= limit:
        return JobPage(jobs, None, now, counted)
    last = jobs[limit - 1]
    cursor = JobCursor(wanted.mark, last.status, last.number).cursor()
    return JobPage(jobs[:limit], cursor, now, counted)


class _Reading:
    def __init__(self, connection: Connection, wanted: JobFilter) -> None:
        self._connection = connection
        self._wanted = wanted

    async def read_from(self, start: JobCursor, limit: int) -> list[Job]:
        jobs: list[Job] = []
        for begin in self._section_starts(start):
            missing = limit - len(jobs)
            if not missing:
                break
            read = self._finished if begin.section in FINISHED else self._live
            jobs += await read(begin, missing)
        return jobs

    async def count(self, start: JobCursor, limit: int) -> int:
        counted = 0
        for begin in self._section_starts(start):
            statement = count_sql(self._wanted, begin.section)
            ((more,),) = await self._run(statement, begin, limit - counted)
            counted += more
        return counted

    def _section_starts(self, start: JobCursor) -> Iterator[JobCursor]:
        """Yields the cursor at which each remaining section begins."""
        sections = self._wanted.sections
        for section in sections[sections.index(start.section) :]:
            is_first = section is start.section
            yield start if is_first else JobCursor.beginning(self._wanted, section)

    async def _live(self, start: JobCursor, limit: int) -> list[Job]:
        return load_jobs(await self._walk(start, limit))

    async def _finished(self, start: JobCursor, limit: int) -> list[Job]:
        """Skips unreadable jobs without ending the page."""
        jobs: list[Job] = []
        while missing := limit - len(jobs):
            walked = await self._walk(start, missing)
            jobs += await self._fold([job_id for _, job_id in walked])
            if len(walked) < missing:
                break
            start = replace(start, number=walked[-1][0])
        return jobs

    async def _walk(self, start: JobCursor, limit: int) -> list[TupleRow]:
        return await self._run(walk_sql(self._wanted, start.section), start, limit)

    async def _run(self, statement: str, start: JobCursor, limit: int) -> list[TupleRow]:
        given = {
            **asdict(self._wanted),
            "status": start.section.value,
            "number": start.number,
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
