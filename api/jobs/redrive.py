"""Starting dead jobs over, however many there are.

They are started in chunks, oldest first, each chunk a command of its own, so that others have their
turn in between. A request goes on for a few seconds at most; if there is more then, its answer says
where the next request goes on. With an Idempotency-Key every chunk keeps its answer, so that a
repetition comes to what was told the first time, or goes on where the first attempt was cut off.
A request that names the number that a person saw is refused once there are more.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from hashlib import blake2s
from http import HTTPStatus
from typing import Annotated, Any, ClassVar, TypedDict
from uuid import UUID

import orjson
import psycopg
from msgspec import Meta, Struct, json
from msgspec.structs import replace
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
    retry_after,
    stored_problem,
)
from daybook.api.endpoints.query import AWAY
from daybook.api.http.problems import KNOWN_ERRORS, Problem, problem_of, unavailable_response
from daybook.api.http.request_reader import KeyText, bad_request, read_idempotency_key
from daybook.api.jobs.queries import PageCursor
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

# Whoever else has something to do waits for one chunk at most: with 500 that was 50 ms, with 100 it
# is 8, and four fifths of the rate.
CHUNK_MAX = 100
SECONDS_MAX = 3.0
# A dry run looks at no more dead jobs than this.
COUNT_MAX = 10_000

TROUBLE: tuple[type[Exception], ...] = (*KNOWN_ERRORS, psycopg.OperationalError, OSError)

# A chunk after which the request went on is kept with this status. Nobody is ever told it.
GOES_ON = HTTPStatus.ACCEPTED


ExpectedCount = Annotated[
    int,
    Meta(
        ge=0,
        le=COUNT_MAX,
        description="How many dead jobs were counted, from `cursor` on if there is one. If there "
        "are more by now, the request is refused with `count_grown`, and nothing is changed.",
    ),
]
RedriveMax = Annotated[
    int, Meta(ge=1, le=COUNT_MAX, description="How many this request redrives at most.")
]


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
    """Of the dead jobs that were looked at, how many were meant and how many began a new life. When
    there are more, `nextCursor` sent as `cursor` goes on behind them, at the same pace."""

    matched: int
    redriven: int
    more: bool
    nextCursor: str | None


class RedriveCursor(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Up to where dead jobs were looked at, and when the next one may be taken."""

    mark: str
    number: Annotated[int, Meta(ge=0, le=NUMBER_MAX)] = 0
    run_at: Instant | None = None

    def __post_init__(self) -> None:
        check_instant(self.run_at)


class RedriveChunk(Struct, frozen=True, kw_only=True):
    """Dead jobs that are started over together, and what is told once they are."""

    stretch: DeadJobBatch
    before: RedriveAnswer
    """What was done by this request until now."""

    place: RedriveCursor
    rate_per_second: float | None
    because: str | None
    is_end: bool
    """Whether the request ends with it, because there is no more or no more time."""

    @property
    def command(self) -> RetryJobs:
        rate, start = self.rate_per_second, self._start
        times: list[Instant] = []
        if rate is not None and start is not None:
            times = [add_seconds(start, n / rate) for n in range(len(self.stretch.ids))]
        return RetryJobs(
            job_ids=self.stretch.ids,
            expected_status=JobStatus.DEAD,
            run_at=times,
            because=self.because,
        )

    @property
    def _start(self) -> Instant | None:
        now, planned = self.stretch.now, self.place.run_at
        return now if now is None or planned is None else max(now, planned)

    @property
    def _after(self) -> RedriveCursor:
        place = replace(self.place, number=self.stretch.last_number)
        rate, start = self.rate_per_second, self._start
        if rate is None or start is None:
            return place
        return replace(place, run_at=add_seconds(start, len(self.stretch.ids) / rate))

    def render(self, settled: Sequence[JobOutcome]) -> StoredResponse:
        """Each is decided by itself: one that is no longer dead is matched, but not redriven."""
        more = not self.stretch.is_last
        started = [one for one in settled if isinstance(one.answer, Job)]
        answer: RedriveAnswer = {
            "matched": self.before["matched"] + len(settled),
            "redriven": self.before["redriven"] + len(started),
            "more": more,
            "nextCursor": write_cursor(self._after) if more else None,
        }
        status = HTTPStatus.OK if self.is_end else GOES_ON
        return StoredResponse(status, orjson.dumps(answer))


class Redriving:
    """One request on its way through the dead jobs."""

    def __init__(self, context: RequestContext, asked: Redrive, key: IdempotencyKey | None) -> None:
        self._call = context
        self._asked = asked
        self._key = key
        self._place = _place_of(asked)
        self._told: RedriveAnswer = {"matched": 0, "redriven": 0, "more": True, "nextCursor": None}
        self._chunks_count = 0
        self._correlation: UUID | None = None
        self._counted: tuple[int, bool] | None = None
        self._deadline = asyncio.get_running_loop().time() + SECONDS_MAX

    async def run(self) -> tuple[StoredResponse, RawHeaders]:
        while True:
            try:
                if self._asked.expected_count is not None and self._counted is None:
                    # One more than is told shows whether there are more.
                    self._counted = await self._count(COUNT_MAX + 1)
                ended = await self._advance()
            except TROUBLE as error:
                return self._cut_short(error)
            if ended is not None:
                return ended

    async def count(self) -> StoredResponse:
        """What a request that changes something would come upon."""
        matched, more = await self._count(COUNT_MAX)
        counted: RedriveAnswer = {
            "matched": matched,
            "redriven": 0,
            "more": more,
            "nextCursor": None,
        }
        return StoredResponse(HTTPStatus.OK, orjson.dumps(counted))

    async def _count(self, limit: int) -> tuple[int, bool]:
        return await self._call.service.read(
            partial(count_dead, wanted=self._wanted, after=self._place.number, limit=limit)
        )

    async def _advance(self) -> tuple[StoredResponse, RawHeaders] | None:
        stretch = await self._call.service.read(
            partial(find_dead, wanted=self._wanted, after=self._place.number, limit=CHUNK_MAX)
        )
        left = self._left
        if left is not None:
            stretch = stretch.cut(left)
        is_late = asyncio.get_running_loop().time() >= self._deadline
        is_end = stretch.is_last or is_late or left == len(stretch.meant)
        if not stretch.ids and not is_end:
            self._place = replace(self._place, number=stretch.last_number)
            return None
        chunk = RedriveChunk(
            stretch=stretch,
            before=self._told,
            place=self._place,
            rate_per_second=self._asked.rate_per_second,
            because=self._asked.reason,
            is_end=is_end,
        )
        receipt = await self._submit(chunk)
        answer = receipt.replayed_response or chunk.render(receipt.result)
        if answer.status != GOES_ON:
            return answer, receipt_headers(receipt)
        self._go_on(answer)
        return None

    def _go_on(self, answer: StoredResponse) -> None:
        self._told = orjson.loads(answer.body)
        cursor = self._told["nextCursor"]
        assert cursor is not None, "a request that goes on knows where"
        self._place = read_cursor(cursor, RedriveCursor)

    async def _submit(self, chunk: RedriveChunk) -> Receipt:
        key = self._key
        if key is not None:
            # No client's key has a space in it.
            text = f"{key.key} {self._chunks_count}" if self._chunks_count else key.key
            key = replace(key, key=text, render=chunk.render)
        origin = replace(origin_of(self._call, key), correlation=self._correlation)
        self._correlation = origin.correlation_id
        self._chunks_count += 1
        return await self._call.submit(self._as_counted(chunk.command), origin, key)

    def _as_counted(self, command: RetryJobs) -> Command[list[JobOutcome]]:
        """The jobs are counted once for all chunks: the first chunk is refused, or none."""
        expected = self._asked.expected_count
        if expected is None or self._counted is None:
            return command
        counted, is_more = self._counted
        told = min(counted, COUNT_MAX)
        return AsCounted(command=command, expected=expected, counted=told, is_more=is_more)

    @property
    def _left(self) -> int | None:
        """How many more may be redriven, if a number was named."""
        named = [self._asked.expected_count, self._asked.limit]
        given = [number for number in named if number is not None]
        return max(0, min(given) - self._told["matched"]) if given else None

    def _cut_short(self, error: Exception) -> tuple[StoredResponse, RawHeaders]:
        """What was done is told, unless nothing was, or nobody knows."""
        if self._told["nextCursor"] is not None and not isinstance(error, OutcomeUnknownError):
            return StoredResponse(HTTPStatus.OK, orjson.dumps(self._told)), []
        problem = _problem(error)
        return stored_problem(problem), retry_after(problem)

    @property
    def _wanted(self) -> DeadFilter:
        given = self._asked.filter
        return DeadFilter(given.queue, given.type, given.error)


def _place_of(asked: Redrive) -> RedriveCursor:
    meant = json.encode((asked.filter, asked.rate_per_second))
    mark = blake2s(meant, digest_size=8).hexdigest()
    if asked.cursor is None:
        return RedriveCursor(mark)
    try:
        place = read_cursor(asked.cursor, RedriveCursor)
        if place.mark != mark:
            raise BadCursorError
    except BadCursorError as error:
        raise bad_request("bad_cursor", str(error)) from error
    return place


def _problem(error: Exception) -> Problem:
    return problem_of(error) if isinstance(error, KNOWN_ERRORS) else unavailable_response(AWAY)


class RedriveEndpoint(WriteEndpoint[Redrive]):
    summary = "Start dead jobs over, as many as a few seconds allow; or only count them."
    # What belongs together here are the jobs of one redrive.
    headers: ClassVar[Mapping[str, Any]] = {"Idempotency-Key": KeyText}

    async def answer(
        self, context: RequestContext, body: bytes
    ) -> tuple[StoredResponse, RawHeaders]:
        asked = self.read(context, body)
        redriving = Redriving(context, asked, self._key(context, asked))
        if not asked.dry_run:
            return await redriving.run()
        try:
            return await redriving.count(), []
        except TROUBLE as error:
            problem = _problem(error)
            return stored_problem(problem), retry_after(problem)

    def _key(self, context: RequestContext, asked: Redrive) -> IdempotencyKey | None:
        text = read_idempotency_key(context.scope)
        return (
            None
            if text is None
            else idempotency_key(context, asked, self.operation, text, stored_problem)
        )

    @staticmethod
    def answers(answer: RedriveAnswer) -> RedriveAnswer:
        return answer


REDRIVE = RedriveEndpoint("POST", "/api/dlq/redrive", takes=Redrive, scope=ADMIN)

routes: list[Route] = [REDRIVE.route]
