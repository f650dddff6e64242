"""The list of jobs: current, every job exactly once, in the order of its sections."""

import asyncio
import random
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from uuid_utils.compat import uuid7

from daybook.domain.jobs.job import Job, JobStatus, UniqueScope
from daybook.domain.jobs.manage import CancelJob, RetryJob
from daybook.domain.jobs.work import Outcome
from daybook.eventlog.postgres.connections import connect, reader_conninfo
from daybook.projections.by_id import one_job
from daybook.projections.jobs.job_filter import JobCursor, JobFilter
from daybook.projections.jobs.job_list import read_jobs
from daybook.projections.page_cursor import BadCursorError
from tests.support.jobs import Workshop, new_job, open_workshop

pytestmark = pytest.mark.anyio

Reader = AsyncConnection[TupleRow]
LATER = datetime(2100, 1, 1, tzinfo=UTC)


@asynccontextmanager
async def open_reader(conninfo: str) -> AsyncIterator[Reader]:
    async with await connect(reader_conninfo(conninfo)) as connection:
        yield connection


async def numbers(reader: Reader, **wanted: Any) -> list[int]:
    page = await read_jobs(reader, JobFilter(**wanted), limit=1000)
    assert page.next_cursor is None
    return [job.number for job in page.jobs]


async def all_pages(reader: Reader, limit: int, **wanted: Any) -> list[list[Job]]:
    filter_ = JobFilter(**wanted)
    page = await read_jobs(reader, filter_, limit=limit)
    pages = [page.jobs]
    while page.next_cursor is not None:
        page = await read_jobs(reader, filter_, limit=limit, cursor=page.next_cursor)
        pages.append(page.jobs)
        assert len(pages) < 1000, "the list does not end"
    return pages


async def take(workshop: Workshop, count: int, type_: str) -> list[Job]:
    taken = await workshop.claim(count, types=(type_,))
    assert len(taken) == count
    return taken


async def fill(workshop: Workshop) -> None:
    """Creates numbers 1 to 16: some of every section, in several queues and types."""
    await workshop.jobs(3, type_="done", subject="booking-1")
    await workshop.jobs(2, type_="poison", subject="booking-1")
    cancelled = await workshop.jobs(2, type_="send", subject="booking-2")
    await workshop.jobs(2, type_="slow")
    await workshop.job("invoices", "issue", subject="booking-1", priority=9)
    await workshop.job("invoices", "issue", priority=1)
    await workshop.job("email", "send", run_at=LATER)
    await workshop.jobs(3, type_="send", priority=1)
    await workshop.job("invoices", "send", subject="booking-2")
    for job in await take(workshop, 3, "done"):
        await workshop.finish(job)
    for job in await take(workshop, 2, "poison"):
        await workshop.finish(job, Outcome.FAIL, error="no")
    for job in cancelled:
        await workshop.submit(CancelJob(job.id))
    await take(workshop, 2, "slow")


PENDING, PROCESSING, DEAD = [10, 11, 12, 13, 14, 15, 16], [8, 9], [5, 4]
COMPLETED, CANCELLED = [3, 2, 1], [7, 6]
LISTED = PENDING + PROCESSING + DEAD + COMPLETED + CANCELLED


async def test_open_jobs_come_oldest_first_and_finished_ones_newest_first(
    database: str,
) -> None:  # S4-38, S4-39
    async with open_workshop(database) as workshop:
        await fill(workshop)
        async with open_reader(database) as reader:
            assert await numbers(reader) == LISTED
            assert await numbers(reader, status=JobStatus.PENDING) == PENDING
            assert await numbers(reader, status=JobStatus.PROCESSING) == PROCESSING
            assert await numbers(reader, status=JobStatus.DEAD) == DEAD
            assert await numbers(reader, status=JobStatus.COMPLETED) == COMPLETED
            assert await numbers(reader, status=JobStatus.CANCELLED) == CANCELLED


async def test_a_list_is_of_the_queue_type_and_subject_asked_for(
    database: str,
) -> None:  # S4-40
    async with open_workshop(database) as workshop:
        await fill(workshop)
        async with open_reader(database) as reader:
            assert await numbers(reader, queue="invoices") == [10, 11, 16]
            assert await numbers(reader, type="send") == [12, 13, 14, 15, 16, 7, 6]
            assert await numbers(reader, queue="email", type="send") == [12, 13, 14, 15, 7, 6]
            assert await numbers(reader, subject="booking-1") == [10, 5, 4, 3, 2, 1]
            assert await numbers(reader, subject="booking-2", queue="email") == [7, 6]
            assert await numbers(reader, subject="booking-1", type="done") == [3, 2, 1]
            assert await numbers(reader, subject="booking-1", status=JobStatus.DEAD) == [5, 4]
            assert await numbers(reader, status=JobStatus.COMPLETED, queue="invoices") == []
            for nothing in ({"queue": "none"}, {"type": "none"}, {"subject": "none"}):
                assert await numbers(reader, **nothing) == []


async def test_a_list_of_a_tag_has_the_jobs_of_every_section_with_it(database: str) -> None:
    async with open_workshop(database) as workshop:
        await workshop.jobs(2, type_="done", tags=("eu", "vip"), subject="s")
        await workshop.jobs(2, type_="poison", tags=("vip",))
        await workshop.jobs(2, type_="slow", tags=("vip", "eu"))
        await workshop.jobs(2, type_="send", tags=("vip", "vip-2"))
        await workshop.jobs(2, type_="send", tags=("vip-2",))
        await workshop.jobs(2, type_="send", subject="s")
        for job in await take(workshop, 2, "done"):
            await workshop.finish(job)
        for job in await take(workshop, 2, "poison"):
            await workshop.finish(job, Outcome.FAIL, error="no")
        await take(workshop, 2, "slow")
    async with open_reader(database) as reader:
        assert await numbers(reader, tag="vip") == [7, 8, 5, 6, 4, 3, 2, 1]
        assert await numbers(reader, tag="eu") == [5, 6, 2, 1]
        assert await numbers(reader, tag="vip-2") == [7, 8, 9, 10]
        assert await numbers(reader, tag="none") == []
        assert await numbers(reader, tag="eu", type="done") == [2, 1]
        assert await numbers(reader, tag="eu", subject="s", queue="email") == [2, 1]
        assert await numbers(reader, tag="vip", status=JobStatus.DEAD) == [4, 3]
        pages = await all_pages(reader, 3, tag="vip")
        assert [[job.number for job in page] for page in pages] == [[7, 8, 5], [6, 4, 3], [2, 1]]
        counted = await read_jobs(reader, JobFilter(tag="vip"), limit=1, count_max=100)
        assert counted.counted == 8
        for page in pages:
            for job in page:
                assert await one_job(reader, job.id) == job


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 15, 16, 17])
async def test_pages_of_any_size_are_the_list_cut_into_pieces(database: str, limit: int) -> None:
    async with open_workshop(database) as workshop:
        await fill(workshop)
    async with open_reader(database) as reader:
        pages = await all_pages(reader, limit)
        of_subject = await all_pages(reader, limit, subject="booking-1")
        completed = await all_pages(reader, limit, status=JobStatus.COMPLETED)

    assert [job.number for page in pages for job in page] == LISTED
    assert all(len(page) == limit for page in pages[:-1])
    assert [job.number for page in of_subject for job in page] == [10, 5, 4, 3, 2, 1]
    assert [job.number for page in completed for job in page] == COMPLETED


async def test_a_listed_job_equals_the_fold_of_its_events(database: str) -> None:
    async with open_workshop(database) as workshop:
        await fill(workshop)
        async with open_reader(database) as reader:
            listed = (await read_jobs(reader, JobFilter(), limit=100)).jobs
            by_id = [await one_job(reader, job.id) for job in listed]

    assert listed == by_id


async def test_a_job_of_every_priority_is_listed(database: str) -> None:
    async with open_workshop(database) as workshop, open_reader(database) as reader:
        await workshop.enqueue(*(new_job(priority=priority) for priority in range(10, 0, -1)))
        assert await numbers(reader) == [*range(1, 11)]


async def test_a_retry_moves_a_cancelled_job_between_sections_at_once(database: str) -> None:
    async with open_workshop(database) as workshop, open_reader(database) as reader:
        one, two = await workshop.jobs(2)
        for job in (one, two):
            await workshop.submit(CancelJob(job.id))
        assert await numbers(reader, status=JobStatus.CANCELLED) == [2, 1]
        await workshop.submit(RetryJob(two.id))
        assert await numbers(reader, status=JobStatus.CANCELLED) == [1]
        assert await numbers(reader) == [2, 1]
        await workshop.submit(CancelJob(two.id))
        assert await numbers(reader, status=JobStatus.CANCELLED) == [2, 1]


async def test_a_job_whose_key_is_used_again_is_listed_once_in_its_new_life(database: str) -> None:
    keyed = {"unique_key": "nightly", "unique_scope": UniqueScope.UNFINISHED}
    async with open_workshop(database) as workshop, open_reader(database) as reader:
        await workshop.job(**keyed)
        (job,) = await workshop.claim()
        await workshop.finish(job)
        await workshop.job(**keyed)
        assert await numbers(reader, status=JobStatus.COMPLETED) == []
        assert await numbers(reader) == [2]
        (job,) = await workshop.claim()
        await workshop.finish(job)
        assert await numbers(reader) == [2]


async def work_through(workshop: Workshop, workers_count: int) -> None:
    async def work() -> None:
        while claimed := await workshop.claim(3):
            for job in claimed:
                await workshop.finish(job)

    await asyncio.gather(*(work() for _ in range(workers_count)))


async def test_every_job_is_in_every_snapshot_once_while_workers_work(database: str) -> None:
    async with open_workshop(database, writers=2) as workshop, open_reader(database) as reader:
        every = [job.number for job in await workshop.jobs(300)]
        working = asyncio.create_task(work_through(workshop, 8))
        snapshots = 0
        while not working.done() or snapshots < 20:
            assert sorted(await numbers(reader)) == every
            snapshots += 1
        await working

        assert await numbers(reader, status=JobStatus.COMPLETED) == every[::-1]


async def test_pages_over_changing_jobs_show_each_unchanged_one_once(database: str) -> None:
    async with open_workshop(database) as workshop, open_reader(database) as reader:
        done = await workshop.jobs(20, type_="done")
        for job in await take(workshop, 20, "done"):
            await workshop.finish(job)
        unchanged = [await workshop.job(priority=random.randint(1, 10)) for _ in range(20)]
        changing = await workshop.jobs(20, type_="changing")

        async def change() -> None:
            for job in changing:
                await workshop.submit(CancelJob(job.id))
                await workshop.job(type_="changing", priority=1)
                if random.random() < 0.5:
                    await workshop.submit(RetryJob(job.id))

        task = asyncio.create_task(change())
        while not task.done():
            pages = await all_pages(reader, 7)
            seen = [job.id for page in pages for job in page]
            for job in (*done, *unchanged):
                assert seen.count(job.id) == 1
        await task


def forged(text: bytes) -> str:
    return urlsafe_b64encode(text + b"123456").decode()


GOOD = JobCursor.beginning(JobFilter()).cursor()


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "é",
        "=" * 8,
        GOOD[:-4],
        GOOD + "AAAA",
        GOOD + "\n",
        forged(b'["","PENDING",5]'),
        forged(b"{}"),
        "A" * 100_000,
        JobCursor("", JobStatus.DEAD, 5).cursor(),
        JobCursor.beginning(JobFilter(status=JobStatus.DEAD)).cursor(),
    ],
)
async def test_a_cursor_that_this_list_did_not_give_out_is_refused(
    database: str, cursor: str
) -> None:
    async with open_reader(database) as reader:
        with pytest.raises(BadCursorError):
            await read_jobs(reader, JobFilter(), limit=10, cursor=cursor)


@pytest.mark.parametrize(
    "other",
    [
        JobFilter(),
        JobFilter(status=JobStatus.PENDING),
        JobFilter(queue="email", type="send"),
        JobFilter(type="email"),
        JobFilter(subject="email"),
        JobFilter(tag="email"),
        JobFilter(queue="email", tag="email"),
    ],
)
async def test_a_cursor_serves_the_list_of_its_own_filter_only(
    database: str, other: JobFilter
) -> None:
    async with open_workshop(database) as workshop, open_reader(database) as reader:
        await workshop.jobs(2)
        page = await read_jobs(reader, JobFilter(queue="email"), limit=1)
        with pytest.raises(BadCursorError):
            await read_jobs(reader, other, limit=1, cursor=page.next_cursor)


def test_a_filter_has_the_mark_of_older_versions() -> None:
    # Services of two versions serve the pages of one list during an upgrade.
    assert JobFilter(queue="email").mark == "c670cdf0704a8d9d"
    assert JobFilter(status=JobStatus.DEAD, subject="ä").mark == "698ddf3a118e907d"


async def test_a_cursor_cannot_lead_into_a_section_that_its_list_does_not_have(
    database: str,
) -> None:
    wanted = JobFilter(status=JobStatus.DEAD)
    astray = JobCursor(wanted.mark, JobStatus.PENDING, 5).cursor()
    async with open_reader(database) as reader:
        with pytest.raises(BadCursorError):
            await read_jobs(reader, wanted, limit=1, cursor=astray)


async def test_a_job_is_found_by_id_in_every_status(database: str) -> None:
    async with open_workshop(database) as workshop, open_reader(database) as reader:
        pending = await workshop.job()
        (claimed,) = await workshop.claim()
        assert await one_job(reader, pending.id) == claimed
        completed = await workshop.finish(claimed)
        assert await one_job(reader, pending.id) == completed
        assert await one_job(reader, uuid7()) is None
