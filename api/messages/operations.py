"""What was accepted for later: how it stands, what came of it, and what to do when it failed."""

import asyncio
from typing import Annotated, NotRequired, TypedDict
from uuid import UUID

from msgspec import Meta
from starlette.requests import Request
from starlette.routing import Route

from daybook.api.endpoints.command import CommandEndpoint, RequestContext, WithReason
from daybook.api.endpoints.query import DatabaseQueryEndpoint
from daybook.api.http.query_parameters import Parameters
from daybook.api.http.request_reader import read_id
from daybook.api.http.timestamps import Moment, moment
from daybook.api.keys.access import (
    ADMIN,
    AUDITOR,
    CLIENT,
    WORKER,
    can_see,
    is_key_valid,
    unknown_key,
)
from daybook.api.messages.responses import ReceiptJSON
from daybook.api.runtime.service import Service
from daybook.api.settings.limits import WAIT_SECONDS_MAX
from daybook.domain.errors import NotFoundError
from daybook.domain.jobs.lane import lane_id
from daybook.domain.messages.commands import CancelOperation, RetryOperation
from daybook.domain.messages.operation import Operation, OperationKind, OperationStatus
from daybook.projections.history import read_history

TIMEOUT_MILLISECONDS_MAX = WAIT_SECONDS_MAX * 1000
LOOK_SECONDS = 0.5
PAUSE_SECONDS = 0.05
# 1 is the most urgent. Only pushes are ever put off.
PRIORITIES = {OperationKind.PUSH: 5}


class Waiting(Parameters, frozen=True):
    wait: Annotated[bool, Meta(description="Whether to wait until it is carried out.")] = False
    timeout: Annotated[
        int,
        Meta(ge=0, le=TIMEOUT_MILLISECONDS_MAX, description="For how many milliseconds at most."),
    ] = TIMEOUT_MILLISECONDS_MAX


class OperationResultJSON(TypedDict):
    messages: list[ReceiptJSON]


class OperationJSON(TypedDict):
    operationId: UUID
    operationType: OperationKind
    priority: int
    status: OperationStatus
    createdAt: Moment
    processedAt: Moment | None
    retryCount: int
    attemptsMax: int
    errorMessage: str | None
    lastErrorAt: Moment | None
    latencySeconds: float | None
    version: int
    result: NotRequired[OperationResultJSON]


async def get_operation(asked: Waiting, request: Request) -> OperationJSON:
    """One operation, also long after it was carried out, with what came of it."""
    service = _service(request)
    operation_id = read_id(request.path_params["id"])
    deadline = asyncio.get_running_loop().time() + (asked.timeout / 1000 if asked.wait else 0)
    with service.notifier.listener() as wake:
        while True:
            operation = await _read(service, operation_id)
            if not is_key_valid(request):
                raise unknown_key()
            if not can_see(request, operation):
                raise NotFoundError("operation", operation_id)
            left = deadline - asyncio.get_running_loop().time()
            if operation.status is not OperationStatus.PENDING or left <= 0:
                return operation_json(operation)
            # A busy service rings all the time.
            await asyncio.sleep(PAUSE_SECONDS)
            await wake.wait(min(left, LOOK_SECONDS))


def operation_json(operation: Operation) -> OperationJSON:
    latency = (operation.updated_at - operation.created_at).total_seconds()
    told: OperationJSON = {
        "operationId": operation.id,
        "operationType": operation.kind,
        "priority": PRIORITIES[operation.kind],
        "status": operation.status,
        "createdAt": moment(operation.created_at),
        "processedAt": moment(operation.updated_at) if operation.is_over else None,
        "retryCount": operation.failures,
        "attemptsMax": operation.attempts_max,
        "errorMessage": operation.error,
        "lastErrorAt": moment(operation.failed_at) if operation.failed_at else None,
        "latencySeconds": latency if operation.is_over else None,
        "version": operation.version,
    }
    is_done = operation.status is OperationStatus.COMPLETED
    return {**told, "result": _result(operation)} if is_done else told


def _result(operation: Operation) -> OperationResultJSON:
    duplicates = frozenset(operation.duplicates)
    return {
        "messages": [
            {
                "transactionId": item.unique_key[len(item.partition) + 1 :],
                "queue": item.queue,
                "partition": item.partition,
                "partitionId": lane_id(item.queue, item.partition),
                "status": "duplicate" if place in duplicates else "created",
            }
            for place, item in enumerate(operation.items)
        ]
    }


async def _read(service: Service, operation_id: UUID) -> Operation:
    history = await service.read(lambda reader: read_history(reader, operation_id))
    if history is None or not isinstance(history.state, Operation):
        raise NotFoundError("operation", operation_id)
    return history.state


def retry(asked: WithReason, context: RequestContext) -> RetryOperation:
    """A failed operation is tried again, with all its attempts before it."""
    return RetryOperation(context.id, asked.reason)


def cancel(asked: WithReason, context: RequestContext) -> CancelOperation:
    """What was accepted is not wanted any more: its messages never come into their lanes."""
    return CancelOperation(context.id, asked.reason)


def _service(request: Request) -> Service:
    service: Service = request.app.service
    return service


GET = DatabaseQueryEndpoint(
    "/api/v1/operations/{id}",
    get_operation,
    scope=CLIENT | WORKER | AUDITOR,
    parameters=Waiting,
)
RETRY = CommandEndpoint(
    "POST",
    "/api/v1/operations/{id}/retry",
    takes=WithReason,
    scope=ADMIN,
    command=retry,
    shape=operation_json,
)
CANCEL = CommandEndpoint(
    "POST",
    "/api/v1/operations/{id}/cancel",
    takes=WithReason,
    scope=ADMIN,
    command=cancel,
    shape=operation_json,
)

routes: list[Route] = [GET.route, RETRY.route, CANCEL.route]
