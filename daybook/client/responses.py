"""Decodes HTTP responses into values or errors."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, TypeVar
from uuid import UUID

from msgspec import DecodeError, Struct, ValidationError
from msgspec.json import Decoder

from daybook.client.jobs import (
    ClaimedJob,
    Heartbeats,
    Job,
    JobStatus,
    Page,
    Queue,
    Redriven,
    Reported,
    Wire,
)
from daybook.errors import (
    ClaimLost,
    DaybookError,
    NotFound,
    Refused,
    ServerFault,
    Unavailable,
)

_COMPLETED = JobStatus.COMPLETED

S = TypeVar("S")
T = TypeVar("T")

# Transient statuses, independent of the request.
TRANSIENT = {
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
}


class Answer(Struct, frozen=True):
    status: int
    headers: Mapping[str, str]
    content: bytes


class Problem(Struct, frozen=True):
    code: str
    detail: str


PROBLEM = Decoder(Problem)


def value_of(answer: Answer, read: Callable[[bytes], T]) -> T:
    """Returns the decoded body, or raises the error that the response means."""
    if not 200 <= answer.status < 300:
        raise error_of(answer)
    try:
        return read(answer.content)
    except (DecodeError, ValidationError) as error:
        sentence = f"The response cannot be decoded: {error}."
        raise ServerFault(sentence, code="unreadable_answer", status=answer.status) from error


def error_of(answer: Answer) -> DaybookError:
    problem, status = _problem(answer), answer.status
    code, sentence = problem.code, problem.detail
    # Retry-After marks any status as transient, also a 409 after a lost race.
    if status in TRANSIENT or "retry-after" in answer.headers:
        seconds = retry_after_seconds(answer.headers)
        return Unavailable(sentence, code=code, status=status, retry_after_seconds=seconds)
    if status == HTTPStatus.NOT_FOUND:
        return NotFound(sentence, code=code, status=status)
    if code == "claim_lost":
        return ClaimLost(sentence, code=code, status=status)
    if 400 <= status < 500:
        return Refused(sentence, code=code, status=status)
    return ServerFault(sentence, code=code, status=status)


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """Parses seconds or a date, which is measured by the server's own Date header."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        until = parsedate_to_datetime(text)
        server_now = parsedate_to_datetime(headers.get("date", ""))
        return max(0.0, (until - server_now).total_seconds())
    except (ValueError, TypeError):
        return None


def _problem(answer: Answer) -> Problem:
    """Falls back to the status if a proxy answered with a body of its own."""
    try:
        return PROBLEM.decode(answer.content)
    except (DecodeError, UnicodeDecodeError):
        sentence = f"The response was {answer.status}, without a reason."
        return Problem(f"http_{answer.status}", sentence)


class _OneJob(Wire, frozen=True):
    job: Job


class _ManyJobs(Wire, frozen=True):
    jobs: list[Job]


class _Ids(Wire, frozen=True):
    ids: list[UUID]


class _ClaimedJobs(Wire, frozen=True):
    jobs: list[ClaimedJob]


class _LeaseUntil(Wire, frozen=True):
    lease_until: datetime


class _IndexedReport(Reported, frozen=True, kw_only=True):
    place: int = 0


class _Reports(Wire, frozen=True):
    """All reports; or, with `completed`, only the unfinished ones, each with its index."""

    results: list[_IndexedReport]
    completed: int | None = None


class _History(Wire, frozen=True):
    events: list[dict[str, Any]]


class _OneQueue(Wire, frozen=True):
    queue: Queue


class _ManyQueues(Wire, frozen=True):
    queues: list[Queue]


def _reader(kind: type[S], inside: Callable[[S], T]) -> Callable[[bytes], T]:
    decoder = Decoder(kind)
    return lambda content: inside(decoder.decode(content))


read_job = _reader(_OneJob, lambda answer: answer.job)
read_jobs = _reader(_ManyJobs, lambda answer: answer.jobs)
read_ids = _reader(_Ids, lambda answer: answer.ids)
read_claimed_jobs = _reader(_ClaimedJobs, lambda answer: answer.jobs)
read_lease_until = _reader(_LeaseUntil, lambda answer: answer.lease_until)
read_history = _reader(_History, lambda answer: answer.events)
read_queue = _reader(_OneQueue, lambda answer: answer.queue)
read_queues = _reader(_ManyQueues, lambda answer: answer.queues)
read_heartbeats = Decoder(Heartbeats).decode
read_page = Decoder(Page).decode
read_redriven = Decoder(Redriven).decode

_reports = Decoder(_Reports)


def reports_reader(ids: Sequence[UUID]) -> Callable[[bytes], list[Reported]]:
    """Returns a reader that restores the order of `ids`."""

    def read(content: bytes) -> list[Reported]:
        answer = _reports.decode(content)
        listed = [
            Reported(id=one.id, status=one.status, code=one.code, error=one.error)
            for one in answer.results
        ]
        if answer.completed is None:
            return listed
        reports = [Reported(id=one, status=_COMPLETED) for one in ids]
        for indexed, one in zip(answer.results, listed, strict=True):
            reports[indexed.place] = one
        return reports

    return read
