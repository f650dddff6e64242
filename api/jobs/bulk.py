"""Bulk retry and cancel of the jobs that match a filter, one page a request.

One request is one command, so other commands run in between. The response has each job's outcome
and the cursor of the next page. A dry run only counts. With `expectedCount` a request is refused if
more jobs match by now than the operator saw.
"""

from collections.abc import Callable, Sequence
from functools import partial
from http import HTTPStatus
from typing import Annotated, Literal, TypedDict, TypeVar
from uuid import UUID

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
    idempotency_key,
    origin_of,
    receipt_headers,
)
from daybook.api.endpoints.paging import PageCursor, refusing_bad_cursors
from daybook.api.http.request_reader import read_idempotency_key
from daybook.api.jobs.commands import JobResultJSON, job_outcome_json
from daybook.api.keys.access import ADMIN
from daybook.domain.command import Command
from daybook.domain.jobs.job import Job, JobStatus
from daybook.domain.jobs.manage import CancelJobs, ChangeJobs, RetryJobs
from daybook.domain.jobs.work import JobOutcome
from daybook.domain.values import Name, Text
from daybook.domain.version_check import AsCounted
from daybook.eventlog.errors import UnavailableError
from daybook.eventlog.origin import StoredResponse
from daybook.eventlog.writing.idempotency import IdempotencyKey
from daybook.projections.jobs.job_filter import JobFilter
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


class JobsOf(Body, frozen=True):
    """An omitted member matches any value."""

    queue: Name | None = None
    type: Name | None = None
    subject: Text | None = None


class RetryFilter(JobsOf, frozen=True):
    status: Literal["DEAD", "CANCELLED"] = "DEAD"


class CancelFilter(JobsOf, frozen=True):
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


B = TypeVar("B", bound=RetryMany | CancelMany)
Change = Callable[[Sequence[UUID], JobStatus, str | None], ChangeJobs]


class BulkEndpoint(WriteEndpoint[B]):
    def __init__(self, path: str, *, takes: type[B], change: Change) -> None:
        super().__init__("POST", path, takes=takes, scope=ADMIN)
        self.summary = change.__doc__ or ""
        self._change = change

    async def answer(self, context: RequestContext, body: bytes) -> Reply:
        request = self.read(context, body)
        # A dry run ignores the key, but a malformed one is still refused.
        read_idempotency_key(context.scope)
        correlation = context.correlation
        page = await _page(context, request)
        if request.dry_run:
            return StoredResponse(HTTPStatus.OK, orjson.dumps(_count_json(page))), []
        render = partial(_render, page)
        key = self._key(context, request, render)
        ids, seen = [job.id for job in page.jobs], JobStatus(request.filter.status)
        command = _with_expected_count(self._change(ids, seen, request.reason), request, page)
        origin = origin_of(context, key, correlation)
        receipt = await context.submit(command, origin, key)
        return receipt.replayed_response or render(receipt.result), receipt_headers(receipt)

    def _key(
        self,
        context: RequestContext,
        request: B,
        render: Callable[[Sequence[JobOutcome]], StoredResponse],
    ) -> IdempotencyKey | None:
        text = read_idempotency_key(context.scope)
        return (
            None
            if text is None
            else idempotency_key(context, request, self.operation, text, render)
        )

    @staticmethod
    def answers(answer: BulkAnswer) -> BulkAnswer:
        return answer


async def _page(context: RequestContext, request: RetryMany | CancelMany) -> JobPage:
    given = request.filter
    wanted = JobFilter(JobStatus(given.status), given.queue, given.type, given.subject)
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


def retry(ids: Sequence[UUID], seen: JobStatus, because: str | None) -> RetryJobs:
    """Retry dead or cancelled jobs, one page a request; or count them."""
    return RetryJobs(job_ids=ids, expected_status=seen, because=because)


def cancel(ids: Sequence[UUID], seen: JobStatus, because: str | None) -> CancelJobs:
    """Cancel pending, processing or dead jobs, one page a request; or count them."""
    return CancelJobs(job_ids=ids, expected_status=seen, because=because)


RETRY = BulkEndpoint("/api/jobs/retry", takes=RetryMany, change=retry)
CANCEL = BulkEndpoint("/api/jobs/cancel", takes=CancelMany, change=cancel)

routes: list[Route] = [RETRY.route, CANCEL.route]
