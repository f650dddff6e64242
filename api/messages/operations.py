"""Operations: pushes accepted for later. Read status and result, retry, cancel."""

from typing import Annotated, NotRequired, TypedDict
from uuid import UUID

from msgspec import Meta
from starlette.requests import Request
from starlette.routing import Route

from daybook.api.endpoints.command import RequestContext, WithReason, WriteEndpoint
from daybook.api.endpoints.query import QueryEndpoint, service_of
from daybook.api.endpoints.wait import read_until
from daybook.api.http.query_parameters import Parameters
from daybook.api.http.request_reader import read_id
from daybook.api.http.timestamps import Moment, moment
from daybook.api.keys.access import (
    ADMIN,
    AUDITOR,
    CLIENT,
    WORKER,
    can_see,
)
from daybook.api.messages.responses import ReceiptJSON
from daybook.api.runtime.service import Service
from daybook.api.settings.limits import WAIT_SECONDS_MAX
from daybook.domain.errors import NotFoundError
from daybook.domain.jobs.lane import lane_id
from daybook.domain.messages.commands import CancelOperation, RetryOperation
from daybook.domain.messages.operation import OPERATION, Operation, OperationKind, OperationStatus
from daybook.projections.history import read_history

TIMEOUT_MILLISECONDS_MAX = WAIT_SECONDS_MAX * 1000
# 1 is the most urgent. Only pushes are deferred.
PRIORITIES = {OperationKind.PUSH: 5}


class Waiting(Parameters, frozen=True):
    wait: Annotated[bool, Meta(description="Whether to wait until the operation ends.")] = False
    timeout: Annotated[
        int,
        Meta(ge=0, le=TIMEOUT_MILLISECONDS_MAX, description="Maximum wait in milliseconds."),
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


async def get_operation(query: Waiting, request: Request) -> OperationJSON:
    """One operation, with its result once it is executed."""
    operation_id = read_id(request.path_params["id"])

    async def read() -> Operation:
        operation = await _read(service_of(request), operation_id)
        if not can_see(request, operation):
            raise NotFoundError("operation", operation_id)
        return operation

    operation = await read_until(
        request,
        read,
        lambda one: one.status is not OperationStatus.PENDING,
        decider=OPERATION,
        seconds=query.timeout / 1000 if query.wait else 0,
    )
    return operation_json(operation)


def operation_json(operation: Operation) -> OperationJSON:
    latency = (operation.updated_at - operation.created_at).total_seconds()
    rendered: OperationJSON = {
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
    return {**rendered, "result": _result_json(operation)} if is_done else rendered


def _result_json(operation: Operation) -> OperationResultJSON:
    duplicates = frozenset(operation.duplicates)
    return {
        "messages": [
            {
                "transactionId": item.unique_key[len(item.partition) + 1 :],
                "queue": item.queue,
                "partition": item.partition,
                "partitionId": lane_id(item.queue, item.partition),
                "status": "duplicate" if index in duplicates else "created",
            }
            for index, item in enumerate(operation.items)
        ]
    }


async def _read(service: Service, operation_id: UUID) -> Operation:
    history = await service.read(lambda reader: read_history(reader, operation_id))
    if history is None or not isinstance(history.state, Operation):
        raise NotFoundError("operation", operation_id)
    return history.state


def retry(body: WithReason, context: RequestContext) -> RetryOperation:
    """Retry a failed operation with all its attempts."""
    return RetryOperation(context.id, body.reason)


def cancel(body: WithReason, context: RequestContext) -> CancelOperation:
    """Cancel an operation: its messages are never pushed."""
    return CancelOperation(context.id, body.reason)


GET = QueryEndpoint(
    "/api/v1/operations/{id}", get_operation, scope=CLIENT | WORKER | AUDITOR, parameters=Waiting
)
RETRY = WriteEndpoint(
    "POST", "/api/v1/operations/{id}/retry", scope=ADMIN, command=retry, shape=operation_json
)
CANCEL = WriteEndpoint(
    "POST", "/api/v1/operations/{id}/cancel", scope=ADMIN, command=cancel, shape=operation_json
)

routes: list[Route] = [GET.route, RETRY.route, CANCEL.route]
