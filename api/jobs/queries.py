"""Queries on jobs: unfinished, finished, and as of a past position."""

from typing import Annotated, NotRequired, TypedDict

from msgspec import Meta
from starlette.requests import Request
from starlette.routing import Route

from daybook.api.clock import now
from daybook.api.endpoints.as_of import AsOf, ThenJSON, read_then, refuse_cursor, then_json
from daybook.api.endpoints.paging import PageCursor, refusing_bad_cursors
from daybook.api.endpoints.query import QueryEndpoint, service_of
from daybook.api.endpoints.wait import read_until
from daybook.api.http.query_parameters import Parameters
from daybook.api.http.request_reader import read_id
from daybook.api.http.timestamps import Moment, moment
from daybook.api.jobs.commands import JobAnswer
from daybook.api.jobs.responses import JobJSON, job_json
from daybook.api.keys.access import (
    AUDITOR,
    CLIENT,
    WORKER,
    caller_of,
    can_see,
    forbidden,
)
from daybook.api.settings.limits import WAIT_SECONDS_MAX
from daybook.domain.errors import NotFoundError
from daybook.domain.jobs.job import JOB, Job, JobStatus
from daybook.projections.by_id import one_job
from daybook.projections.jobs.job_filter import JobCriteria, JobFilter
from daybook.projections.jobs.job_list import JobPage, read_jobs
from daybook.projections.time_travel.lists import jobs_as_of

PAGE_DEFAULT = 100
PAGE_MAX = 1000

PageLimit = Annotated[int, Meta(ge=1, le=PAGE_MAX, description="Jobs per page at most.")]


class JobPageAnswer(TypedDict):
    jobs: list[JobJSON]
    nextCursor: str | None
    serverNow: Moment
    asOf: NotRequired[ThenJSON]


class JobListing(JobCriteria, Parameters, frozen=True):
    status: Annotated[JobStatus, Meta(description="Only jobs of this status.")] | None = None
    limit: PageLimit = PAGE_DEFAULT
    cursor: PageCursor | None = None
    as_of: AsOf | None = None


async def list_jobs(query: JobListing, request: Request) -> JobPageAnswer:
    """Pending and processing jobs, oldest first; dead and finished ones, newest first."""
    require_queue(request, query.queue)
    wanted = query.with_status(query.status)
    if query.as_of is not None:
        return await _past_jobs(wanted, query, query.as_of, request)
    page = await read_page(request, wanted, query.limit, query.cursor)
    return {
        "jobs": [job_json(job) for job in page.jobs],
        "nextCursor": page.next_cursor,
        "serverNow": moment(page.now),
    }


async def _past_jobs(
    wanted: JobFilter, query: JobListing, text: str, request: Request
) -> JobPageAnswer:
    """A single page: as-of lists have no cursor. Of finished jobs, the latest."""
    refuse_cursor(query.cursor)
    then, jobs = await read_then(
        request,
        text,
        lambda reader, position: jobs_as_of(
            reader, position, fits=wanted.fits, sections=wanted.sections, limit=query.limit
        ),
    )
    return {
        "jobs": [job_json(job) for job in jobs],
        "nextCursor": None,
        "serverNow": moment(then.at) if then.at else moment(now()),
        "asOf": then_json(then),
    }


class JobWait(Parameters, frozen=True):
    wait_seconds: Annotated[
        float,
        Meta(ge=0, le=WAIT_SECONDS_MAX, description="Maximum wait until the job is finished."),
    ] = 0.0


async def get_job(query: JobWait, request: Request) -> JobAnswer:
    """One job, including finished ones; waits up to waitSeconds until it is finished.

    Also answers with the unfinished job when the service stops, and after
    DAYBOOK_WAIT_SECONDS_MAX."""
    job_id = read_id(request.path_params["id"])

    async def read() -> Job:
        job = await service_of(request).read(lambda reader: one_job(reader, job_id))
        if job is None or not can_see(request, job):
            raise NotFoundError("job", job_id)
        return job

    seconds = min(query.wait_seconds, request.app.settings.wait_seconds_max)
    job = await read_until(
        request, read, lambda one: one.finished_at is not None, decider=JOB, seconds=seconds
    )
    return {"job": job_json(job)}


def require_queue(request: Request, queue: str | None) -> None:
    """A caller restricted to some queues must name one of them."""
    caller = caller_of(request)
    if queue is not None:
        caller.must_reach(queue)
    elif caller.bounds.queues is not None:
        raise forbidden("name one of its queues in the parameter queue")


async def read_page(request: Request, wanted: JobFilter, limit: int, cursor: str | None) -> JobPage:
    with refusing_bad_cursors():
        return await service_of(request).read(
            lambda reader: read_jobs(reader, wanted, limit=limit, cursor=cursor)
        )


routes: list[Route] = [
    QueryEndpoint(
        "/api/jobs", list_jobs, scope=CLIENT | WORKER | AUDITOR, parameters=JobListing
    ).route,
    QueryEndpoint(
        "/api/jobs/{id}", get_job, scope=CLIENT | WORKER | AUDITOR, parameters=JobWait
    ).route,
]
