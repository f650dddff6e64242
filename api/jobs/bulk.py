"""Bulk retry and cancel of the jobs that match a filter, one page a request.

One request is one command, so other commands run in between. The response has each job's outcome
and the cursor of the next page. A dry run only counts. With `expectedCount` a request is refused if
more jobs match by now than the operator saw.
"""

from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from typing import Annotated, Literal, TypedDict

import orjson
import psycopg
from msgspec import Meta
from starlette.routing import Route

from daybook.api.endpoints.command import (
    Body,
    Reply,
    RequestContext,
    WithReason,
    WriteEndpoint,
    client_key,
    receipt_headers,
)
from daybook.api.endpoints.paging import PageCursor, refusing_bad_cursors
from daybook.api.jobs.commands import JobResultJSON, job_outcome_json
from daybook.api.keys.access import ADMIN
from daybook.domain.command import Command
from daybook.domain.jobs.job import Job, JobStatus
from daybook.domain.jobs.manage import CancelJobs, ChangeJobs, RetryJobs
from daybook.domain.jobs.work import JobOutcome
from daybook.domain.version_check import AsCounted
from daybook.eventlog.errors import UnavailableError
from daybook.eventlog.origin import StoredResponse
from daybook.projections.jobs.job_filter import JobCriteria
from daybook.projections.jobs.job_list import JobPage, read_jobs
from daybook.projections.snapshot import ListBehindError

# Other commands wait for one page: 8 ms with 100 jobs, 50 ms with 500.
PAGE_DEFAULT = 100
PAGE_MAX = 500
# A dry run stops counting here: 10,000 jobs take 15 ms.
COUNT_MAX = 10_000

PageSize = Annotated[int, Meta(ge=1, le=PAGE_MAX)]
ExpectedCount = Annotated[
    int,
    Meta(
        ge=0,
        le=COUNT_MAX,
        description="The count of a dry run, from `cursor` on if given. If more jobs match by now, "
        "the request is refused with `count_grown` and changes nothing.",
    ),
]


class RetryFilter(JobCriteria, Body, frozen=True):
    status: Literal["DEAD", "CANCELLED"] = "DEAD"


class CancelFilter(JobCriteria, Body, frozen=True):
    status: Literal["PENDING", "PROCESSING", "DEAD"] = "PENDING"


class BulkBody(WithReason, frozen=True):
    dry_run: bool = False
    limit: PageSize = PAGE_DEFAULT
    cursor: PageCursor | None = None
    expected_count: ExpectedCount | None = None


class RetryMany(BulkBody, frozen=True):
    filter: RetryFilter = RetryFilter()


class CancelMany(BulkBody, frozen=True):
    filter: CancelFilter = CancelFilter()


class BulkAnswer(TypedDict):
    """The number of matched and of changed jobs, and the outcome of each. `nextCursor` continues
    with the next page. In a dry run, `more` means that counting stopped at `matched`."""

    matched: int
    changed: int
    results: list[JobResultJSON]
    more: bool
    nextCursor: str | None


async def retry(body: RetryMany, context: RequestContext) -> BulkAnswer | Reply:
    """Retry dead or cancelled jobs, one page a request; or count them."""
    return await _change_page(body, context, RetryJobs)


async def cancel(body: CancelMany, context: RequestContext) -> BulkAnswer | Reply:
    """Cancel pending, processing or dead jobs, one page a request; or count them."""
    return await _change_page(body, context, CancelJobs)


async def _change_page(
    request: RetryMany | CancelMany,
    context: RequestContext,
    change: type[RetryJobs] | type[CancelJobs],
) -> BulkAnswer | Reply:
    # A dry run ignores the key, but a malformed one is still refused.
    text, correlation = client_key(context), context.correlation
    page = await _page(context, request)
    if request.dry_run:
        return _count_json(page)
    render = partial(_render, page)
    command = change(
        job_ids=[job.id for job in page.jobs],
        expected_status=JobStatus(request.filter.status),
        because=request.reason,
    )
    key = context.idempotency_key(text, request, render)
    origin = context.origin(key, correlation)
    receipt = await context.submit(_with_expected_count(command, request, page), origin, key)
    response = receipt.replayed_response or render(receipt.result)
    return Reply(response, receipt_headers(receipt))


async def _page(context: RequestContext, request: RetryMany | CancelMany) -> JobPage:
    given = request.filter
    wanted = given.with_status(JobStatus(given.status))
    is_counted = request.dry_run or request.expected_count is not None
    try:
        with refusing_bad_cursors():
            return await context.service.read(
                lambda reader: read_jobs(
                    reader,
                    wanted,
                    limit=1 if request.dry_run else request.limit,
                    cursor=request.cursor,
                    # One more than is reported shows whether there are more.
                    count_max=COUNT_MAX + 1 if is_counted else 0,
                )
            )
    except (ListBehindError, psycopg.OperationalError, OSError) as error:
        raise UnavailableError("The job list cannot be read at the moment; retry.") from error


def _with_expected_count(
    command: ChangeJobs, request: RetryMany | CancelMany, page: JobPage
) -> Command[list[JobOutcome]]:
    if request.expected_count is None:
        return command
    return AsCounted(
        command=command,
        expected=request.expected_count,
        counted=min(page.counted, COUNT_MAX),
        is_more=page.counted > COUNT_MAX,
    )


def _count_json(page: JobPage) -> BulkAnswer:
    return {
        "matched": min(page.counted, COUNT_MAX),
        "changed": 0,
        "results": [],
        "more": page.counted > COUNT_MAX,
        "nextCursor": None,
    }


def _render(page: JobPage, outcomes: Sequence[JobOutcome]) -> StoredResponse:
    answer: BulkAnswer = {
        "matched": len(outcomes),
        "changed": len([one for one in outcomes if isinstance(one.answer, Job)]),
        "results": [job_outcome_json(one) for one in outcomes],
        "more": page.next_cursor is not None,
        "nextCursor": page.next_cursor,
    }
    return StoredResponse(HTTPStatus.OK, orjson.dumps(answer))


RETRY = WriteEndpoint("POST", "/api/jobs/retry", scope=ADMIN, answer=retry)
CANCEL = WriteEndpoint("POST", "/api/jobs/cancel", scope=ADMIN, answer=cancel)

routes: list[Route] = [RETRY.route, CANCEL.route]
