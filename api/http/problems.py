"""JSON responses and RFC 9457 problems. Owns the one table from errors to HTTP statuses."""

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from math import ceil
from typing import Any, TypedDict

import orjson
from msgspec import Struct
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from daybook.api.telemetry import counters
from daybook.domain import errors
from daybook.domain.command import NotLoadedError
from daybook.domain.errors import Refusal
from daybook.eventlog.errors import (
    ConflictError,
    IdempotencyKeyExpiredError,
    IdempotencyKeyReusedError,
    NoGuestKeyError,
    OutcomeUnknownError,
    StorageFullError,
    UnavailableError,
)

RETRY_AFTER = {"Retry-After": "1"}
RETRY_SECONDS_MAX = 60

REFUSALS: dict[type[Refusal], HTTPStatus] = {
    errors.NotFoundError: HTTPStatus.NOT_FOUND,
    errors.QueueOutOfReachError: HTTPStatus.FORBIDDEN,
    errors.VersionConflictError: HTTPStatus.PRECONDITION_FAILED,
    errors.CountGrownError: HTTPStatus.CONFLICT,
    errors.OrderNotPendingError: HTTPStatus.CONFLICT,
    errors.OrderNotProcessingError: HTTPStatus.CONFLICT,
    errors.OrderNotDeadError: HTTPStatus.CONFLICT,
    errors.OrderDeletedError: HTTPStatus.GONE,
    errors.OrderNotDeletedError: HTTPStatus.CONFLICT,
    errors.OrderTakenError: HTTPStatus.CONFLICT,
    errors.BotBusyError: HTTPStatus.CONFLICT,
    errors.BotInUseError: HTTPStatus.CONFLICT,
    errors.BotDeletedError: HTTPStatus.GONE,
    errors.BotDeadError: HTTPStatus.CONFLICT,
    errors.BotNotDeadError: HTTPStatus.CONFLICT,
    errors.ClaimLostError: HTTPStatus.CONFLICT,
    errors.NotYetDueError: HTTPStatus.CONFLICT,
    errors.JobNotDeadError: HTTPStatus.CONFLICT,
    errors.JobOverError: HTTPStatus.CONFLICT,
    errors.JobStatusChangedError: HTTPStatus.CONFLICT,
    errors.LeaseHeldError: HTTPStatus.CONFLICT,
    errors.LeaseLostError: HTTPStatus.CONFLICT,
    errors.OperationOverError: HTTPStatus.CONFLICT,
    errors.OperationNotFailedError: HTTPStatus.CONFLICT,
    errors.LaneFullError: HTTPStatus.TOO_MANY_REQUESTS,
    errors.BadValueError: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.BadCronError: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.UnknownTimeZoneError: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.NeverDueError: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.ScheduleNotDueError: HTTPStatus.CONFLICT,
    errors.ConcurrentPollError: HTTPStatus.CONFLICT,
    errors.InvalidApiKeyError: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.ApiKeyNameTakenError: HTTPStatus.CONFLICT,
    errors.KeyRevokedError: HTTPStatus.CONFLICT,
    errors.RestaurantExistsError: HTTPStatus.CONFLICT,
    errors.TicketNotWaitingError: HTTPStatus.CONFLICT,
    errors.TicketNotCalledError: HTTPStatus.CONFLICT,
    errors.TicketNotReturnableError: HTTPStatus.CONFLICT,
    errors.TicketOverError: HTTPStatus.CONFLICT,
    errors.ConcurrentCallError: HTTPStatus.CONFLICT,
    errors.SameRestaurantError: HTTPStatus.CONFLICT,
    errors.GraceNotOverError: HTTPStatus.CONFLICT,
    errors.RebuildRunningError: HTTPStatus.CONFLICT,
    errors.UnreadableAggregateError: HTTPStatus.CONFLICT,
    errors.ReadableAggregateError: HTTPStatus.CONFLICT,
}


class InfrastructureProblem(Struct, frozen=True):
    """The public problem for an error of the event log, whose own text may name the database."""

    status: HTTPStatus
    code: str
    detail: str
    is_retryable: bool = True


BUSY = InfrastructureProblem(
    HTTPStatus.CONFLICT,
    "conflict",
    "Concurrent requests changed the same data. Nothing was done; send it again.",
)
INFRASTRUCTURE_PROBLEMS: dict[type[Exception], InfrastructureProblem] = {
    ConflictError: BUSY,
    NotLoadedError: BUSY,
    IdempotencyKeyReusedError: InfrastructureProblem(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "idempotency_key_reused",
        "This Idempotency-Key was already used for another request.",
        is_retryable=False,
    ),
    IdempotencyKeyExpiredError: InfrastructureProblem(
        HTTPStatus.CONFLICT,
        "already_exists",
        "Read it, or send a new request with a new Idempotency-Key.",
        is_retryable=False,
    ),
    UnavailableError: InfrastructureProblem(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "unavailable",
        "The database is not accepting writes. Nothing was done; send it again.",
    ),
    StorageFullError: InfrastructureProblem(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "storage_full",
        "The disk of the database is full. Nothing was done; free some space, then send it again.",
    ),
    OutcomeUnknownError: InfrastructureProblem(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "outcome_unknown",
        "With an Idempotency-Key it is safe to send it again.",
    ),
    NoGuestKeyError: InfrastructureProblem(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "no_guest_key",
        "This service has no key to encrypt guests' data: set DAYBOOK_GUEST_KEY_FILE and restart "
        "it.",
        is_retryable=False,
    ),
}
KNOWN_ERRORS: tuple[type[Exception], ...] = (Refusal, *INFRASTRUCTURE_PROBLEMS)


class ProblemJSON(TypedDict):
    """`code` is stable, for programs; `detail` and `error` are the same sentence, for people."""

    type: str
    title: str
    status: int
    detail: str
    error: str
    code: str


class JSONAnswer(Response):
    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return orjson.dumps(content)


class Problem(JSONAnswer):
    media_type = "application/problem+json"

    def __init__(
        self,
        status: HTTPStatus,
        code: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        more: Mapping[str, Any] = {},
    ) -> None:
        content = {**problem_json(status, code, detail), **more}
        super().__init__(content, status_code=status, headers=headers)
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            counters.ERRORS.labels(int(status)).inc()


class BadInputError(Exception):
    """The request is invalid or refused before any command is decided."""

    def __init__(
        self, status: HTTPStatus, code: str, detail: str, *, headers: Mapping[str, str] = {}
    ) -> None:
        super().__init__(detail)
        self.problem = Problem(status, code, detail, headers=headers)


def problem_json(status: HTTPStatus, code: str, detail: str) -> ProblemJSON:
    return {
        "type": f"urn:daybook:problem:{code.replace('_', '-')}",
        "title": status.phrase,
        "status": status,
        "detail": detail,
        "error": detail,
        "code": code,
    }


def clamp_retry_after(seconds: float) -> int:
    """Whole seconds for Retry-After, from 1 to RETRY_SECONDS_MAX."""
    return min(RETRY_SECONDS_MAX, max(1, ceil(seconds)))


def overloaded_response(
    *, queue_depth: int, retry_seconds: int, why: str = "The service is overloaded."
) -> Problem:
    return Problem(
        HTTPStatus.TOO_MANY_REQUESTS,
        "overloaded",
        f"{why} Retry after {retry_seconds} seconds.",
        headers={"Retry-After": str(retry_seconds)},
        more={"queueDepth": queue_depth},
    )


def unavailable_response(sentence: str) -> Problem:
    return Problem(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", sentence, headers=RETRY_AFTER)


def problem_of(error: Exception) -> Problem:
    """The problem for a refusal or for an error of the event log."""
    code, sentence = reason_of(error)
    if isinstance(error, errors.LaneFullError):
        seconds = clamp_retry_after(error.wait_seconds)
        return overloaded_response(queue_depth=error.depth, retry_seconds=seconds, why=sentence)
    if isinstance(error, Refusal):
        return Problem(REFUSALS[type(error)], code, sentence, more=error.facts)
    infrastructure = INFRASTRUCTURE_PROBLEMS[type(error)]
    headers = RETRY_AFTER if infrastructure.is_retryable else None
    return Problem(infrastructure.status, code, sentence, headers=headers)


def reason_of(error: Exception) -> tuple[str, str]:
    """The code and the detail of an error in KNOWN_ERRORS."""
    if isinstance(error, Refusal):
        return error.code, str(error)
    infrastructure = INFRASTRUCTURE_PROBLEMS[type(error)]
    if isinstance(error, OutcomeUnknownError | IdempotencyKeyExpiredError):
        # The error's own text names the command, or the resource that exists.
        return infrastructure.code, f"{error} {infrastructure.detail}"
    return infrastructure.code, infrastructure.detail


async def bad_input(_request: Request, error: Exception) -> Response:
    assert isinstance(error, BadInputError)
    return error.problem


async def known_error(_request: Request, error: Exception) -> Response:
    return problem_of(error)


async def not_found(request: Request, _error: Exception) -> Response:
    return Problem(HTTPStatus.NOT_FOUND, "not_found", f"There is nothing at {request.url.path}.")


async def method_not_allowed(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return method_not_allowed_response(request.method, request.url.path, _methods_of(request))


def method_not_allowed_response(method: str, path: str, methods: Iterable[str]) -> Problem:
    allowed = ", ".join(sorted(methods))
    return Problem(
        HTTPStatus.METHOD_NOT_ALLOWED,
        "method_not_allowed",
        f"{path} supports {allowed}, not {method}.",
        headers={"Allow": allowed},
    )


def _methods_of(request: Request) -> set[str]:
    """The methods of all routes to this path; each route knows only its own."""
    return {
        method
        for route in request.app.routes
        if route.matches(request.scope)[0] is not Match.NONE
        for method in route.methods
    }


def internal_error_response() -> Problem:
    detail = "Internal error of Daybook: its log has the details, under the Daybook-Request-Id."
    return Problem(HTTPStatus.INTERNAL_SERVER_ERROR, "internal_error", detail)


async def internal_error(_request: Request, _error: Exception) -> Response:
    return internal_error_response()
