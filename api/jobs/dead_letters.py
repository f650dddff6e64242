"""Queries on dead letters: jobs that exhausted their attempts or failed permanently."""

from typing import Annotated, TypedDict

from msgspec import Meta
from starlette.requests import Request
from starlette.routing import Route

from daybook.api.endpoints.paging import PageCursor, refusing_bad_cursors
from daybook.api.endpoints.query import QueryEndpoint, service_of
from daybook.api.http.query_parameters import Parameters
from daybook.api.jobs.queries import (
    PAGE_DEFAULT,
    PageLimit,
    read_page,
    require_queue,
)
from daybook.api.jobs.responses import JobJSON, job_json
from daybook.api.keys.access import AUDITOR, CLIENT, WORKER
from daybook.domain.jobs.job import Job, JobStatus
from daybook.domain.values import ERROR_CHARACTERS_MAX
from daybook.projections.jobs.dead_job_search import search_dead
from daybook.projections.jobs.dead_jobs import DeadFilter
from daybook.projections.jobs.job_filter import JobFilter, QueueWanted, TypeWanted


class DeadJobsAnswer(TypedDict):
    """With `error` a page may be empty and still have a next one: each page scans a limited number
    of dead jobs."""

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
    limit: PageLimit = PAGE_DEFAULT
    cursor: PageCursor | None = None


async def list_dead(query: DeadListing, request: Request) -> DeadJobsAnswer:
    """Dead jobs with their last errors, newest first."""
    require_queue(request, query.queue)
    if query.error is not None:
        return await _search(query, request)
    wanted = JobFilter(status=JobStatus.DEAD, queue=query.queue, type=query.type)
    page = await read_page(request, wanted, query.limit, query.cursor)
    return _page_json(page.jobs, page.next_cursor)


async def _search(query: DeadListing, request: Request) -> DeadJobsAnswer:
    wanted = DeadFilter(query.queue, query.type, query.error)
    with refusing_bad_cursors():
        found = await service_of(request).read(
            lambda reader: search_dead(reader, wanted, limit=query.limit, cursor=query.cursor)
        )
    return _page_json(found.jobs, found.next_cursor)


def _page_json(jobs: list[Job], next_cursor: str | None) -> DeadJobsAnswer:
    return {"jobs": [job_json(job) for job in jobs], "nextCursor": next_cursor}


routes: list[Route] = [
    QueryEndpoint(
        "/api/dlq", list_dead, scope=CLIENT | WORKER | AUDITOR, parameters=DeadListing
    ).route
]
