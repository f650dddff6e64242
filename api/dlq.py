"""Reading the dead jobs: those that failed for good and wait for somebody to look at them."""

from typing import TypedDict

from starlette.requests import Request
from starlette.routing import Route

from api.access import AUDITOR, CLIENT, WORKER
from api.job_reads import (
    PAGE_USUAL,
    PageCursor,
    PageLimit,
    QueueWanted,
    TypeWanted,
    must_reach,
    read_page,
)
from api.job_shapes import JobJSON, job_json
from api.parameters import Parameters
from api.queries import DatabaseRead
from domain.job import JobStatus
from projections.job_place import JobFilter


class DeadJobsAnswer(TypedDict):
    jobs: list[JobJSON]
    nextCursor: str | None


class DeadListing(Parameters, frozen=True):
    queue: QueueWanted | None = None
    type: TypeWanted | None = None
    limit: PageLimit = PAGE_USUAL
    cursor: PageCursor | None = None


async def list_dead(asked: DeadListing, request: Request) -> DeadJobsAnswer:
    """Dead jobs with their last errors, newest first."""
    must_reach(request, asked.queue)
    wanted = JobFilter(JobStatus.DEAD, asked.queue, asked.type)
    page = await read_page(request, wanted, asked.limit, asked.cursor)
    return {"jobs": [job_json(job) for job in page.jobs], "nextCursor": page.next_cursor}


routes: list[Route] = [
    DatabaseRead(
        "/api/dlq", list_dead, scope=CLIENT | WORKER | AUDITOR, parameters=DeadListing
    ).route
]
