"""Redrive of dead jobs in chunks, oldest first; each chunk is one command.

Other commands run between chunks. A request takes at most 3 seconds and returns a cursor if jobs
remain. With an Idempotency-Key each chunk stores its response, so a replay returns the first result
or resumes where the first attempt stopped. `expectedCount` refuses if more jobs are dead by now.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from hashlib import blake2s
from http import HTTPStatus
from typing import Annotated, TypedDict
from uuid import UUID

import orjson
import psycopg
from msgspec import Meta, Struct, json
from msgspec.structs import replace
from starlette.routing import Route

from daybook.api.endpoints.command import (
    KEY_HEADER,
    Body,
    Reply,
    RequestContext,
    WithReason,
    WriteEndpoint,
    client_key,
    problem_reply,
    receipt_headers,
    stored_problem,
)
from daybook.api.endpoints.paging import PageCursor, refusing_bad_cursors
from daybook.api.endpoints.query import CANNOT_READ
from daybook.api.http.problems import KNOWN_ERRORS, Problem, problem_of, unavailable_response
from daybook.api.jobs.bulk import COUNT_MAX, ExpectedCount
from daybook.api.keys.access import ADMIN
from daybook.domain.command import Command
from daybook.domain.event import add_seconds
from daybook.domain.jobs.job import Job, JobStatus
from daybook.domain.jobs.manage import RetryJobs
from daybook.domain.jobs.work import JobOutcome
from daybook.domain.values import ERROR_CHARACTERS_MAX, Instant, Name, check_instant
from daybook.domain.version_check import AsCounted
from daybook.eventlog.errors import OutcomeUnknownError
from daybook.eventlog.origin import Receipt, StoredResponse
from daybook.eventlog.writing.idempotency import IdempotencyKey
from daybook.projections.jobs.dead_jobs import DeadFilter, DeadJobBatch, count_dead, find_dead
from daybook.projections.page_cursor import NUMBER_MAX, BadCursorError, read_cursor, write_cursor

# Other commands wait for one chunk at most: 8 ms with 100 jobs, 50 ms with 500, which is only 25 %
# faster.
CHUNK_MAX = 100
SECONDS_MAX = 3.0

HANDLED_ERRORS: tuple[type[Exception], ...] = (*KNOWN_ERRORS, psycopg.OperationalError, OSError)

# Status of the stored response of every chunk but the last; it is never sent to a client.
CONTINUES = HTTPStatus.ACCEPTED


RedriveMax = Annotated[int, Meta(ge=1, le=COUNT_MAX, description="Jobs to redrive at most.")]


class RedriveFilter(Body, frozen=True):
    queue: Name | None = None
    type: Name | None = None
    error: Annotated[str, Meta(min_length=1, max_length=ERROR_CHARACTERS_MAX)] | None = None


class Redrive(WithReason, frozen=True, kw_only=True):
    filter: RedriveFilter = RedriveFilter()
    rate_per_second: Annotated[float, Meta(gt=0, le=10_000)] | None = None
    dry_run: bool = False
    cursor: PageCursor | None = None
    expected_count: ExpectedCount | None = None
    limit: RedriveMax | None = None


class RedriveAnswer(TypedDict):
    """The number of matched and of redriven jobs. If `more`, `nextCursor` continues after them at
    the same rate."""

    matched: int
    redriven: int
    more: bool
    nextCursor: str | None


def _answer_json(
    matched: int, redriven: int, *, more: bool, next_cursor: str | None = None
) -> RedriveAnswer:
    return {"matched": matched, "redriven": redriven, "more": more, "nextCursor": next_cursor}


class RedriveCursor(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The last examined dead job, and the earliest run time of the next."""

    filter_fingerprint: str
    number: Annotated[int, Meta(ge=0, le=NUMBER_MAX)] = 0
    run_at: Instant | None = None

    def __post_init__(self) -> None:
        check_instant(self.run_at)


class RedriveChunk(Struct, frozen=True, kw_only=True):
    """The dead jobs of one command, and the response after it."""

    batch: DeadJobBatch
    before: RedriveAnswer
    """Totals of this request so far."""

    cursor: RedriveCursor
    rate_per_second: float | None
    because: str | None
    is_end: bool
    """Whether the request ends here, because no jobs or no time remain."""

    @property
    def command(self) -> RetryJobs:
        rate, start = self.rate_per_second, self._start
        times: list[Instant] = []
        if rate is not None and start is not None:
            times = [add_seconds(start, n / rate) for n in range(len(self.batch.ids))]
        return RetryJobs(
            job_ids=self.batch.ids,
            expected_status=JobStatus.DEAD,
            run_at=times,
            because=self.because,
        )

    @property
    def _start(self) -> Instant | None:
        now, planned = self.batch.now, self.cursor.run_at
        return now if now is None or planned is None else max(now, planned)

    @property
    def _after(self) -> RedriveCursor:
        cursor = replace(self.cursor, number=self.batch.last_number)
        rate, start = self.rate_per_second, self._start
        if rate is None or start is None:
            return cursor
        return replace(cursor, run_at=add_seconds(start, len(self.batch.ids) / rate))

    def render(self, outcomes: Sequence[JobOutcome]) -> StoredResponse:
        """Each job is decided independently: one no longer dead is matched, but not redriven."""
        more = not self.batch.is_last
        started = [one for one in outcomes if isinstance(one.answer, Job)]
        answer = _answer_json(
            self.before["matched"] + len(outcomes),
            self.before["redriven"] + len(started),
            more=more,
            next_cursor=write_cursor(self._after) if more else None,
        )
        status = HTTPStatus.OK if self.is_end else CONTINUES
        return StoredResponse(status, orjson.dumps(answer))


class RedriveRun:
    """The progress of one redrive request."""

    def __init__(
        self, context: RequestContext, request: Redrive, key: IdempotencyKey | None
    ) -> None:
        self._context = context
        self._request = request
        self._key = key
        self._cursor = _start_cursor(request)
        self._totals = _answer_json(0, 0, more=True)
        self._chunks_count = 0
        self._correlation: UUID | None = None
        self._counted: tuple[int, bool] | None = None
        self._deadline = asyncio.get_running_loop().time() + SECONDS_MAX

    async def run(self) -> Reply:
        while True:
            try:
                if self._request.expected_count is not None and self._counted is None:
                    # One more than is reported shows whether there are more.
                    self._counted = await self._count(COUNT_MAX + 1)
                ended = await self._advance()
            except HANDLED_ERRORS as error:
                return self._stop_early(error)
            if ended is not None:
                return ended

    async def count(self) -> RedriveAnswer:
        """The response of a dry run."""
        matched, more = await self._count(COUNT_MAX)
        return _answer_json(matched, 0, more=more)

    async def _count(self, limit: int) -> tuple[int, bool]:
        return await self._context.service.read(
            partial(count_dead, wanted=self._wanted, after=self._cursor.number, limit=limit)
        )

    async def _advance(self) -> Reply | None:
        batch = await self._context.service.read(
            partial(find_dead, wanted=self._wanted, after=self._cursor.number, limit=CHUNK_MAX)
        )
        left = self._left
        if left is not None:
            batch = batch.cut(left)
        is_late = asyncio.get_running_loop().time() >= self._deadline
        is_end = batch.is_last or is_late or left == len(batch.matches)
        if not batch.ids and not is_end:
            self._cursor = replace(self._cursor, number=batch.last_number)
            return None
        chunk = RedriveChunk(
            batch=batch,
            before=self._totals,
            cursor=self._cursor,
            rate_per_second=self._request.rate_per_second,
            because=self._request.reason,
            is_end=is_end,
        )
        receipt = await self._submit(chunk)
        answer = receipt.replayed_response or chunk.render(receipt.result)
        if answer.status != CONTINUES:
            return Reply(answer, receipt_headers(receipt))
        self._go_on(answer)
        return None

    def _go_on(self, answer: StoredResponse) -> None:
        self._totals = orjson.loads(answer.body)
        cursor = self._totals["nextCursor"]
        assert cursor is not None, "a chunk that continues has a cursor"
        self._cursor = read_cursor(cursor, RedriveCursor)

    async def _submit(self, chunk: RedriveChunk) -> Receipt:
        key = self._key
        if key is not None:
            # The space makes a key that no client can send.
            text = f"{key.key} {self._chunks_count}" if self._chunks_count else key.key
            key = replace(key, key=text, render=chunk.render)
        origin = self._context.origin(key, self._correlation)
        self._correlation = origin.correlation_id
        self._chunks_count += 1
        return await self._context.submit(self._with_expected_count(chunk.command), origin, key)

    def _with_expected_count(self, command: RetryJobs) -> Command[list[JobOutcome]]:
        """Jobs are counted once a request: only its first chunk can be refused."""
        expected = self._request.expected_count
        if expected is None or self._counted is None:
            return command
        counted, is_more = self._counted
        counted = min(counted, COUNT_MAX)
        return AsCounted(command=command, expected=expected, counted=counted, is_more=is_more)

    @property
    def _left(self) -> int | None:
        """The number of jobs still allowed by limit and expectedCount, or None."""
        named = [self._request.expected_count, self._request.limit]
        given = [number for number in named if number is not None]
        return max(0, min(given) - self._totals["matched"]) if given else None

    def _stop_early(self, error: Exception) -> Reply:
        """Reports the chunks done so far; the error, if none was done or the outcome is unknown."""
        if self._totals["nextCursor"] is not None and not isinstance(error, OutcomeUnknownError):
            return Reply(StoredResponse(HTTPStatus.OK, orjson.dumps(self._totals)), [])
        return problem_reply(_problem(error))

    @property
    def _wanted(self) -> DeadFilter:
        given = self._request.filter
        return DeadFilter(given.queue, given.type, given.error)


def _start_cursor(request: Redrive) -> RedriveCursor:
    encoded = json.encode((request.filter, request.rate_per_second))
    fingerprint = blake2s(encoded, digest_size=8).hexdigest()
    if request.cursor is None:
        return RedriveCursor(fingerprint)
    with refusing_bad_cursors():
        cursor = read_cursor(request.cursor, RedriveCursor)
        if cursor.filter_fingerprint != fingerprint:
            raise BadCursorError
    return cursor


def _problem(error: Exception) -> Problem:
    is_known = isinstance(error, KNOWN_ERRORS)
    return problem_of(error) if is_known else unavailable_response(CANNOT_READ)


async def redrive(request: Redrive, context: RequestContext) -> RedriveAnswer | Reply:
    """Redrive dead jobs, as many as 3 seconds allow; or count them."""
    key = context.idempotency_key(client_key(context), request, stored_problem)
    run = RedriveRun(context, request, key)
    if not request.dry_run:
        return await run.run()
    try:
        return await run.count()
    except HANDLED_ERRORS as error:
        return problem_reply(_problem(error))


REDRIVE = WriteEndpoint(
    "POST",
    "/api/dlq/redrive",
    scope=ADMIN,
    answer=redrive,
    # No correlation header: the chunks of one redrive correlate with each other.
    headers=KEY_HEADER,
)

routes: list[Route] = [REDRIVE.route]
