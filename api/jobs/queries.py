"""Reading jobs: nothing here writes, and every answer is current."""

from typing import Annotated, NotRequired, TypedDict

from msgspec import Meta
from starlette.requests import Request
from starlette.routing import Route

from daybook.api.clock import now
from daybook.api.endpoints.as_of import AsOf, ThenJSON, read_then, refuse_cursor, then_json
from daybook.api.endpoints.query import DatabaseQueryEndpoint
from daybook.api.http.query_parameters import NoParameters, Parameters
from daybook.api.http.request_reader import bad_request, read_id
from daybook.api.http.timestamps import Moment, moment
from daybook.api.jobs.commands import JobAnswer
from daybook.api.jobs.responses import JobJSON, job_json
from daybook.api.keys.access import AUDITOR, CLIENT, WORKER, caller_of, can_see, forbidden
from daybook.api.runtime.service import Service
from daybook.domain.errors import NotFoundError
from daybook.domain.jobs.job import JobStatus
from daybook.domain.values import Name, Text
from daybook.projections.by_id import one_job
from daybook.projections.jobs.job_filter import JobFilter
from daybook.projections.jobs.job_list import JobPage, read_jobs
from daybook.projections.page_cursor import CURSOR_LENGTH_MAX, BadCursorError
from daybook.projections.time_travel.lists import jobs_as_of

PAGE_USUAL = 100
PAGE_MAX = 1000

QueueWanted = Annotated[Name, Meta(description="Only jobs of this queue.")]
TypeWanted = Annotated[Name, Meta(description="Only jobs of this type.")]
PageLimit = Annotated[int, Meta(ge=1, le=PAGE_MAX, description="How many jobs a page has at most.")]
PageCursor = Annotated[
    str,
    # Not checked here: a cursor that is too long is as bad as any other.
    Meta(
        description="nextCursor of the page before.",
        extra_json_schema={"minLength": 1, "maxLength": CURSOR_LENGTH_MAX},
    ),
]


class JobPageAnswer(TypedDict):
    jobs: list[JobJSON]
    nextCursor: str | None
    serverNow: Moment
    asOf: NotRequired[ThenJSON]


class JobListing(Parameters, frozen=True):
    queue: QueueWanted | None = None
    status: Annotated[JobStatus, Meta(description="Only jobs of this status.")] | None = None
    type: TypeWanted | None = None
    subject: Annotated[Text, Meta(description="Only jobs of this subject.")] | None = None
    limit: PageLimit = PAGE_USUAL
    cursor: PageCursor | None = None
    as_of: AsOf | None = None


async def list_jobs(asked: JobListing, request: Request) -> JobPageAnswer:
    """What waits and is worked on, oldest first; what is dead or over, newest first."""
    must_reach(request, asked.queue)
    wanted = JobFilter(asked.status, asked.queue, asked.type, asked.subject)
    if asked.as_of is not None:
        return await _past_jobs(wanted, asked, asked.as_of, request)
    page = await read_page(request, wanted, asked.limit, asked.cursor)
    return {
        "jobs": [job_json(job) for job in page.jobs],
        "nextCursor": page.next_cursor,
        "serverNow": moment(page.now),
    }


async def _past_jobs(
    wanted: JobFilter, asked: JobListing, text: str, request: Request
) -> JobPageAnswer:
    """The past has one page, of what was over the latest."""
    refuse_cursor(asked.cursor)
    then, jobs = await read_then(
        request,
        text,
        lambda reader, position: jobs_as_of(
            reader, position, fits=wanted.fits, sections=wanted.sections, limit=asked.limit
        ),
    )
    return {
        "jobs": [job_json(job) for job in jobs],
        "nextCursor": None,
        "serverNow": moment(then.at) if then.at else moment(now()),
        "asOf": then_json(then),
    }


async def get_job(_: NoParameters, request: Request) -> JobAnswer:
    """One job, also when it is over."""
    job_id = read_id(request.path_params["id"])
    service: Service = request.app.service
    job = await service.read(lambda reader: one_job(reader, job_id))
    if job is None or not can_see(request, job):
        raise NotFoundError("job", job_id)
    return {"job": job_json(job)}


def must_reach(request: Request, queue: str | None) -> None:
    """Whoever sees some queues only lists one of them at a time."""
    caller = caller_of(request)
    if queue is not None:
        caller.must_reach(queue)
    elif caller.bounds.queues is not None:
        raise forbidden("name a queue that it is for, with the parameter queue")


async def read_page(request: Request, wanted: JobFilter, limit: int, cursor: str | None) -> JobPage:
    service: Service = request.app.service
    try:
        return await service.read(
            lambda reader: read_jobs(reader, wanted, limit=limit, cursor=cursor)
        )
    except BadCursorError as error:
        raise bad_request("bad_cursor", str(error)) from error


routes: list[Route] = [
    DatabaseQueryEndpoint(
        "/api/jobs", list_jobs, scope=CLIENT | WORKER | AUDITOR, parameters=JobListing
    ).route,
    DatabaseQueryEndpoint("/api/jobs/{id}", get_job, scope=CLIENT | WORKER | AUDITOR).route,
]
