"""What was accepted for later: how it stands, and what came of it."""

import asyncio
from typing import Annotated, Literal, NotRequired, TypedDict
from uuid import UUID

from msgspec import Meta
from starlette.requests import Request
from starlette.routing import Route

from api.access import AUDITOR, CLIENT, WORKER, sees
from api.limit_settings import WAIT_SECONDS_MAX
from api.message_shapes import ReceiptJSON
from api.parameters import NoParameters, Parameters
from api.queries import DatabaseRead
from api.requests import read_id
from api.service import Service
from api.shapes import Moment, moment
from domain.errors import NotFoundError
from domain.lane import lane_id
from domain.operation import Operation, OperationKind, OperationStatus
from projections.history import read_history

TIMEOUT_MILLISECONDS_MAX = WAIT_SECONDS_MAX * 1000
LOOK_SECONDS = 1.0
PAUSE_SECONDS = 0.05
# 1 is the most urgent. Only pushes are ever put off.
PRIORITIES = {OperationKind.PUSH: 5}


class Waiting(Parameters, frozen=True):
    wait: Annotated[bool, Meta(description="Whether to wait until it is carried out.")] = False
    timeout: Annotated[
        int,
        Meta(ge=0, le=TIMEOUT_MILLISECONDS_MAX, description="For how many milliseconds at most."),
    ] = TIMEOUT_MILLISECONDS_MAX


class ResultJSON(TypedDict):
    messages: list[ReceiptJSON]


class OperationJSON(TypedDict):
    operationId: UUID
    operationType: OperationKind
    priority: int
    status: OperationStatus
    createdAt: Moment
    processedAt: Moment | None
    retryCount: int
    error: str | None
    latencySeconds: float | None
    result: NotRequired[ResultJSON]


class KindJSON(TypedDict):
    """`count` is at most so many."""

    operationType: OperationKind
    priority: int
    status: Literal["pending"]
    count: int
    oldestAt: Moment | None
    newestAt: Moment | None


class HealthJSON(TypedDict):
    """A `load` of 1 means that commands wait as long as DAYBOOK_BUSY_SECONDS."""

    load: float
    waitingSeconds: float
    queueDepth: int
    executedPerSecond: float
    updatedAt: Moment


class StatsJSON(TypedDict):
    operations: list[KindJSON]
    systemHealth: HealthJSON


async def stats(_: NoParameters, request: Request) -> StatsJSON:
    """How many operations are still to be carried out, and how busy the service is."""
    admission = _service(request).admission
    numbers = admission.numbers
    return {
        "operations": [
            {
                "operationType": OperationKind.PUSH,
                "priority": PRIORITIES[OperationKind.PUSH],
                "status": "pending",
                "count": admission.depth,
                "oldestAt": moment(numbers.oldest_at) if numbers.oldest_at else None,
                "newestAt": moment(numbers.newest_at) if numbers.newest_at else None,
            }
        ],
        "systemHealth": {
            "load": round(admission.load, 3),
            "waitingSeconds": round(admission.waiting_seconds, 4),
            "queueDepth": admission.depth,
            "executedPerSecond": round(admission.per_second, 1),
            "updatedAt": moment(admission.updated_at),
        },
    }


async def get_operation(asked: Waiting, request: Request) -> OperationJSON:
    """One operation, also long after it was carried out, with what came of it."""
    service = _service(request)
    operation_id = read_id(request.path_params["id"])
    deadline = asyncio.get_running_loop().time() + (asked.timeout / 1000 if asked.wait else 0)
    with service.wakeups.listener() as wake:
        while True:
            operation = await _read(service, operation_id)
            if not sees(request, operation):
                raise NotFoundError("operation", operation_id)
            left = deadline - asyncio.get_running_loop().time()
            if operation.is_over or left <= 0:
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
        "error": operation.error,
        "latencySeconds": latency if operation.is_over else None,
    }
    return {**told, "result": _result(operation)} if operation.is_over else told


def _result(operation: Operation) -> ResultJSON:
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


def _service(request: Request) -> Service:
    service: Service = request.app.service
    return service


reads = (
    DatabaseRead("/api/v1/operations/stats", stats, scope=CLIENT | WORKER | AUDITOR),
    DatabaseRead(
        "/api/v1/operations/{id}",
        get_operation,
        scope=CLIENT | WORKER | AUDITOR,
        parameters=Waiting,
    ),
)

routes: list[Route] = [read.route for read in reads]
