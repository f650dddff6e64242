"""Lists of jobs walk indexes and stop at their limit, however many jobs exist."""

from typing import Any

import pytest
from msgspec.structs import asdict
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from daybook.domain.jobs.job import JobStatus
from daybook.projections.jobs.job_filter import JobCursor, JobFilter
from daybook.projections.jobs.job_list_sql import walk_sql
from daybook.projections.snapshot import PLAN_BY_INDEX
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
        await reader.execute(PLAN_BY_INDEX)
        for wanted in ({}, {"queue": "q1"}, {"type": "t1"}, {"subject": "s1"}):
            for section in JobStatus:
                await assert_walks(reader, JobFilter(status=section, **wanted))


async def assert_walks(reader: Reader, wanted: JobFilter) -> None:
    assert wanted.status is not None
    statement = walk_sql(wanted, wanted.status)
    given = {
        **asdict(wanted),
        "status": wanted.status.value,
        "number": JobCursor.beginning(wanted).number,
        "limit": 11,
    }
    explain = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}"
    ((plan,),) = await (await reader.execute(explain.encode(), given)).fetchall()
    # Six pairs of a queue and a type, and three walks for each: jobs that can be claimed at once,
    # with a subject and without, and jobs that cannot. Claimed jobs are sorted as a whole: 198.
    rows_max = 198 if wanted.status is JobStatus.PROCESSING else 6 + 6 * 3 * 11
    assert plan[0]["Plan"]["Actual Rows"] == 11, wanted
    assert sum(_rows_read(plan[0]["Plan"])) <= rows_max, wanted


def _rows_read(plan: dict[str, Any]) -> list[float]:
    own = []
    if "Relation Name" in plan:
        assert plan["Node Type"] in ("Index Scan", "Index Only Scan"), plan["Node Type"]
        removed = plan.get("Rows Removed by Filter", 0)
        own = [(plan["Actual Rows"] + removed) * plan["Actual Loops"]]
    return own + [count for child in plan.get("Plans", []) for count in _rows_read(child)]
