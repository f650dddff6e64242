"""Reading the dead jobs: those that failed for good and wait for somebody to look at them."""

from typing import Annotated, TypedDict

from msgspec import Meta
from starlette.requests import Request
from starlette.routing import Route

from daybook.api.endpoints.query import DatabaseQueryEndpoint
from daybook.api.http.query_parameters import Parameters
from daybook.api.http.request_reader import bad_request
from daybook.api.jobs.queries import (
    PAGE_USUAL,
    PageCursor,
    PageLimit,
    QueueWanted,
    TypeWanted,
    must_reach,
    read_page,
)
from daybook.api.jobs.responses import JobJSON, job_json
from daybook.api.keys.access import AUDITOR, CLIENT, WORKER
from daybook.api.runtime.service import Service
from daybook.domain.jobs.job import Job, JobStatus
from daybook.domain.values import ERROR_CHARACTERS_MAX
from daybook.projections.jobs.dead_job_search import search_dead
from daybook.projections.jobs.dead_jobs import DeadFilter
from daybook.projections.jobs.job_filter import JobFilter
from daybook.projections.page_cursor import BadCursorError


class DeadJobsAnswer(TypedDict):
    """With `error` a page may be empty although there is a next one: every page looks at some
    thousand dead jobs."""

    jobs: list[JobJSON]
    nextCursor: str | None


class DeadListing(Parameters, frozen=True):
    queue: QueueWanted | None = None
    type: TypeWanted | None = None
    error: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=ERROR_CHARACTERS_MAX,
                description="Only jobs whose error contains this text.",
            ),
        ]
        | None
    ) = None
    limit: PageLimit = PAGE_USUAL
    cursor: PageCursor | None = None


async def list_dead(asked: DeadListing, request: Request) -> DeadJobsAnswer:
    """Dead jobs with their last errors, newest first."""
    must_reach(request, asked.queue)
    if asked.error is not None:
        return await _search(asked, request)
    wanted = JobFilter(JobStatus.DEAD, asked.queue, asked.type)
    page = await read_page(request, wanted, asked.limit, asked.cursor)
    return _shaped(page.jobs, page.next_cursor)


async def _search(asked: DeadListing, request: Request) -> DeadJobsAnswer:
    service: Service = request.app.service
    wanted = DeadFilter(asked.queue, asked.type, asked.error)
    try:
        found = await service.read(
            lambda reader: search_dead(reader, wanted, limit=asked.limit, cursor=asked.cursor)
        )
    except BadCursorError as error:
        raise bad_request("bad_cursor", str(error)) from error
    return _shaped(found.jobs, found.next_cursor)


def _shaped(jobs: list[Job], next_cursor: str | None) -> DeadJobsAnswer:
    return {"jobs": [job_json(job) for job in jobs], "nextCursor": next_cursor}


routes: list[Route] = [
    DatabaseQueryEndpoint(
        "/api/dlq", list_dead, scope=CLIENT | WORKER | AUDITOR, parameters=DeadListing
    ).route
]
