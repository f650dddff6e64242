"""Retrying and cancelling all jobs that fit a filter, a page of them with each request.

One request is one command: others have their turn between two of them, and whoever asks sees how
far it is. The answer says what became of each job, and where the next request goes on. A dry run
only says how many there are. A request that names the number that a person saw is refused once
there are more.
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
    RawHeaders,
    RequestContext,
    WithReason,
    WriteEndpoint,
    idempotency_key,
    origin_of,
    receipt_headers,
)
from daybook.api.http.request_reader import bad_request, read_idempotency_key
from daybook.api.jobs.commands import JobResultJSON, told
from daybook.api.jobs.queries import PageCursor
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
from daybook.projections.page_cursor import BadCursorError
from daybook.projections.snapshot import ListBehindError

# Whoever else has something to do waits for one command: 8 ms with 100 jobs, 50 ms with 500.
PAGE_USUAL = 100
PAGE_MAX = 500
# A dry run counts no further: 10,000 jobs take 15 ms.
COUNT_MAX = 10_000

PageSize = Annotated[int, Meta(ge=1, le=PAGE_MAX)]
ExpectedCount = Annotated[
    int,
    Meta(
        ge=0,
        le=COUNT_MAX,
        description="How many were counted, from `cursor` on if there is one. If there are more "
        "by now, the request is refused with `count_grown`, and nothing is changed.",
    ),
]


class JobsOf(Body, frozen=True):
    """None means any."""

    queue: Name | None = None
    type: Name | None = None
    subject: Text | None = None


class RetryFilter(JobsOf, frozen=True):
    status: Literal["DEAD", "CANCELLED"] = "DEAD"


class CancelFilter(JobsOf, frozen=True):
    status: Literal["PENDING", "PROCESSING", "DEAD"] = "PENDING"


class RetryMany(WithReason, frozen=True):
    filter: RetryFilter = RetryFilter()
    dry_run: bool = False
    limit: PageSize = PAGE_USUAL
    cursor: PageCursor | None = None
    expected_count: ExpectedCount | None = None


class CancelMany(WithReason, frozen=True):
    filter: CancelFilter = CancelFilter()
    dry_run: bool = False
    limit: PageSize = PAGE_USUAL
    cursor: PageCursor | None = None
    expected_count: ExpectedCount | None = None


class BulkAnswer(TypedDict):
    """How many jobs were looked at and how many of them changed, and what became of each. When
    there are more, `nextCursor` sent as `cursor` goes on behind them; a dry run changes none, and
    with `more` there are at least so many."""

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

    async def answer(
        self, context: RequestContext, body: bytes
    ) -> tuple[StoredResponse, RawHeaders]:
        asked = self.read(context, body)
        # A dry run has no use for them, but what is bad is bad all the same.
        read_idempotency_key(context.scope)
        correlation = context.correlation
        page = await _page(context, asked)
        if asked.dry_run:
            return StoredResponse(HTTPStatus.OK, orjson.dumps(_counted(page))), []
        render = partial(_render, page)
        key = self._key(context, asked, render)
        ids, seen = [job.id for job in page.jobs], JobStatus(asked.filter.status)
        command = _as_counted(self._change(ids, seen, asked.reason), asked, page)
        origin = origin_of(context, key, correlation)
        receipt = await context.submit(command, origin, key)
        return receipt.replayed_response or render(receipt.result), receipt_headers(receipt)

    def _key(
        self,
        context: RequestContext,
        asked: B,
        render: Callable[[Sequence[JobOutcome]], StoredResponse],
    ) -> IdempotencyKey | None:
        text = read_idempotency_key(context.scope)
        return (
            None if text is None else idempotency_key(context, asked, self.operation, text, render)
        )

    @staticmethod
    def answers(answer: BulkAnswer) -> BulkAnswer:
        return answer


async def _page(context: RequestContext, asked: RetryMany | CancelMany) -> JobPage:
    of = asked.filter
    wanted = JobFilter(JobStatus(of.status), of.queue, of.type, of.subject)
    is_counted = asked.dry_run or asked.expected_count is not None
    try:
        return await context.service.read(
            lambda reader: read_jobs(
                reader,
                wanted,
                limit=1 if asked.dry_run else asked.limit,
                cursor=asked.cursor,
                # One more than is told shows whether there are more.
                count_max=COUNT_MAX + 1 if is_counted else 0,
            )
        )
    except BadCursorError as error:
        raise bad_request("bad_cursor", str(error)) from error
    except (ListBehindError, psycopg.OperationalError, OSError) as error:
        raise UnavailableError("The jobs cannot be listed at the moment.") from error


def _as_counted(
    command: ChangeJobs, asked: RetryMany | CancelMany, page: JobPage
) -> Command[list[JobOutcome]]:
    if asked.expected_count is None:
        return command
    return AsCounted(
        command=command,
        expected=asked.expected_count,
        counted=min(page.counted, COUNT_MAX),
        is_more=page.counted > COUNT_MAX,
    )


def _counted(page: JobPage) -> BulkAnswer:
    return {
        "matched": min(page.counted, COUNT_MAX),
        "changed": 0,
        "results": [],
        "more": page.counted > COUNT_MAX,
        "nextCursor": None,
    }


def _render(page: JobPage, settled: Sequence[JobOutcome]) -> StoredResponse:
    answer: BulkAnswer = {
        "matched": len(settled),
        "changed": len([one for one in settled if isinstance(one.answer, Job)]),
        "results": [told(one) for one in settled],
        "more": page.next_cursor is not None,
        "nextCursor": page.next_cursor,
    }
    return StoredResponse(HTTPStatus.OK, orjson.dumps(answer))


def retry(ids: Sequence[UUID], seen: JobStatus, because: str | None) -> RetryJobs:
    """Start dead or cancelled jobs over, a page of them; or only count them."""
    return RetryJobs(job_ids=ids, expected_status=seen, because=because)


def cancel(ids: Sequence[UUID], seen: JobStatus, because: str | None) -> CancelJobs:
    """Cancel jobs that wait, run or are dead, a page of them; or only count them."""
    return CancelJobs(job_ids=ids, expected_status=seen, because=because)


RETRY = BulkEndpoint("/api/jobs/retry", takes=RetryMany, change=retry)
CANCEL = BulkEndpoint("/api/jobs/cancel", takes=CancelMany, change=cancel)

routes: list[Route] = [RETRY.route, CANCEL.route]
