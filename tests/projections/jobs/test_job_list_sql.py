"""Lists of jobs walk indexes and stop at their limit, however many jobs exist."""

from typing import Any

import psycopg
import pytest
from msgspec.structs import asdict
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from daybook.domain.jobs.job import JobStatus
from daybook.projections.jobs.job_filter import JobCursor, JobFilter
from daybook.projections.jobs.job_list_sql import walk_sql
from daybook.projections.snapshot import READ_CLOCK
from tests.projections.jobs.test_job_list import open_reader

pytestmark = pytest.mark.anyio

Reader = AsyncConnection[TupleRow]

FILL_JOBS = """
INSERT INTO jobs (id, version, number, created_at, updated_at, run_at, claim_id, lease_seconds,
                  life, failures, crashes, interruptions, priority, attempts, attempts_max, status,
                  queue, type, subject, payload)
SELECT gen_random_uuid(), 1, n, now(), now(), CASE WHEN n % 13 = 1 THEN now() END,
       CASE WHEN n % 101 = 0 THEN gen_random_uuid() END, 90, 1, 0, 0, 0, 5, 0, 3,
       CASE WHEN n % 101 = 0 THEN 'PROCESSING' WHEN n % 11 = 3 THEN 'DEAD' ELSE 'PENDING' END,
       'q' || n % 2, 't' || n % 3, CASE WHEN n % 7 <> 0 THEN 's' || n % 5 END, 'null'
FROM generate_series(1, 20000) AS n
"""
FILL_FINISHED = """
INSERT INTO finished_jobs (id, number, status, queue, type, subject)
SELECT gen_random_uuid(), n, CASE WHEN n % 11 = 0 THEN 'CANCELLED' ELSE 'COMPLETED' END,
       'q' || n % 2, 't' || n % 3, 's' || n % 5
FROM generate_series(20001, 40000) AS n
"""
FILL_TYPES = "INSERT INTO job_types SELECT DISTINCT queue, type FROM jobs"


async def test_every_section_is_walked_along_an_index_and_only_as_far_as_its_limit(
    database: str,
) -> None:
    # S4-06
    async with open_reader(database) as reader, reader.transaction():
        for statement in (FILL_JOBS, FILL_FINISHED, FILL_TYPES):
            await reader.execute(statement)
        for wanted in ({}, {"queue": "q1"}, {"type": "t1"}, {"subject": "s1"}):
            for section in JobStatus:
                await assert_walks(reader, JobFilter(status=section, **wanted))


FILL_TAGGED_JOBS = """
INSERT INTO jobs (id, version, number, created_at, updated_at, lease_seconds, life, failures,
                  crashes, interruptions, priority, attempts, attempts_max, status, queue, type,
                  payload, tags)
SELECT gen_random_uuid(), 1, n, now(), now(), 90, 1, 0, 0, 0, 5, 0, 3,
       CASE WHEN n % 5 = 0 THEN 'DEAD' ELSE 'PENDING' END, 'q' || n % 50, 't', 'null',
       CASE WHEN n % 2000 = 0 THEN 'common,rare' WHEN n % 4 <> 1 THEN 'common' END
FROM generate_series(1, 20000) AS n
"""
FILL_TAGGED_FINISHED = """
INSERT INTO finished_jobs (id, number, status, queue, type, subject, tags)
SELECT gen_random_uuid(), n, 'COMPLETED', 'q' || n % 50, 't', 's' || n % 500,
       CASE WHEN n % 5000 = 0 THEN 'common,rare' WHEN n % 4 <> 1 THEN 'common' END
FROM generate_series(20001, 70000) AS n
"""


@pytest.fixture
def tagged(own_database: str) -> str:
    """A database with 20,000 live and 50,000 finished jobs and current statistics."""
    with psycopg.connect(own_database, autocommit=True) as owner:
        owner.execute("SET search_path TO daybook")
        for statement in (FILL_TAGGED_JOBS, FILL_TAGGED_FINISHED, "ANALYZE"):
            owner.execute(statement)
    return own_database


async def test_a_rare_tag_is_searched_and_a_common_one_walked(tagged: str) -> None:
    async with open_reader(tagged) as reader, reader.transaction():
        for section in (JobStatus.PENDING, JobStatus.DEAD, JobStatus.COMPLETED):
            table = "finished_jobs" if section is JobStatus.COMPLETED else "jobs"
            rare = await _plan(reader, JobFilter(status=section, tag="rare"))
            assert _indexes(rare) == [f"{table}_tags_idx"]
            assert max(_rows_fetched(rare)) <= 10
            common = await _plan(reader, JobFilter(status=section, tag="common", type="t"))
            assert _indexes(common) == [f"{table}_tagged_idx"]
            assert max(_rows_fetched(common)) == 11


async def test_a_subject_with_a_tag_is_walked_along_the_index_of_subjects(tagged: str) -> None:
    async with open_reader(tagged) as reader, reader.transaction():
        wanted = JobFilter(status=JobStatus.COMPLETED, subject="s1", tag="common")
        assert _indexes(await _plan(reader, wanted)) == ["finished_jobs_subject_idx"]


async def _plan(reader: Reader, wanted: JobFilter) -> dict[str, Any]:
    assert wanted.status is not None
    await reader.execute(wanted.plan or READ_CLOCK)
    given = {
        **asdict(wanted),
        "status": wanted.status.value,
        "number": JobCursor.beginning(wanted).number,
        "limit": 11,
    }
    explain = f"EXPLAIN (ANALYZE, FORMAT JSON) {walk_sql(wanted, wanted.status)}"
    ((plan,),) = await (await reader.execute(explain.encode(), given)).fetchall()
    found: dict[str, Any] = plan[0]["Plan"]
    return found


def _indexes(plan: dict[str, Any]) -> list[str]:
    own = [plan["Index Name"]] if "Index Name" in plan else []
    return own + [name for child in plan.get("Plans", []) for name in _indexes(child)]


def _rows_fetched(plan: dict[str, Any]) -> list[float]:
    """The rows that scans of a table or index read, with those that a filter removes."""
    removed = plan.get("Rows Removed by Filter", 0) + plan.get("Rows Removed by Index Recheck", 0)
    own = [plan["Actual Rows"] + removed] if plan["Node Type"].endswith("Scan") else []
    return own + [count for child in plan.get("Plans", []) for count in _rows_fetched(child)]


async def assert_walks(reader: Reader, wanted: JobFilter) -> None:
    assert wanted.status is not None
    plan = await _plan(reader, wanted)
    # Six pairs of a queue and a type, and three walks for each: jobs that can be claimed at once,
    # with a subject and without, and jobs that cannot. Claimed jobs are sorted as a whole: 198.
    rows_max = 198 if wanted.status is JobStatus.PROCESSING else 6 + 6 * 3 * 11
    assert plan["Actual Rows"] == 11, wanted
    assert sum(_rows_read(plan)) <= rows_max, wanted


def _rows_read(plan: dict[str, Any]) -> list[float]:
    own = []
    if "Relation Name" in plan:
        assert plan["Node Type"] in ("Index Scan", "Index Only Scan"), plan["Node Type"]
        removed = plan.get("Rows Removed by Filter", 0)
        own = [(plan["Actual Rows"] + removed) * plan["Actual Loops"]]
    return own + [count for child in plan.get("Plans", []) for count in _rows_read(child)]
